"""A cost and its maximum: what can be met before any training, and what holds after it."""
