"""The report: one HTML file with what a job is, what its plan foresaw, and how it went."""
