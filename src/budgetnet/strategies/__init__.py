"""How an architecture is found and trained."""
