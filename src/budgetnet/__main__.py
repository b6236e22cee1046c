"""`python -m budgetnet` is the command line."""

import sys

from budgetnet.cli import main

sys.exit(main())
