"""Inner loops that numpy cannot carry, compiled by numba; imported late, for the import is slow."""
