"""Trained models made to fit: this package's default against other tools (`python -m benchmarks.trained`).

`peer` runs in the environment of the other tools, which has no budgetnet: this file imports nothing.
"""
