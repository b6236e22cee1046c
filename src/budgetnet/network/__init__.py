"""Graphs, architectures, their distribution, and the super network that runs them."""
