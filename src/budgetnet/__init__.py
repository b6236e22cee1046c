"""budgetnet."""
