"""What happened in a run, as values, the sinks that take them, and the files of a run."""
