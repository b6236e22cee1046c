"""Milliseconds of the extracted network, on a runtime: measured, and predicted during a search."""
