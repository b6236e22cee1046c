"""One run from a configuration to a folder, and many runs on an engine."""
