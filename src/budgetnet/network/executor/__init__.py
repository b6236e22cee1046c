"""Which edge of a super network runs on which rows of a batch, and how the rows are handed over and summed."""
