"""Arguments, progress, tables and exit codes: what a person at the terminal meets."""
