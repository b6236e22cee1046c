"""Losses, metrics, scores, and the state of a training as files."""
