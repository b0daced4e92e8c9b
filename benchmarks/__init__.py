"""Workloads and measurements: what the figures in docs/results are made with."""
