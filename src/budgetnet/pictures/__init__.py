"""Fronts, drawings, the report of runs, and the same page live."""
