"""Runs: what enters the engine next, and the loop around it."""
