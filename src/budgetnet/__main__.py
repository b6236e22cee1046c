"""`python -m budgetnet` is the command line."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the current folder, whose files are no code of ours; `naming` looks there for what the user names

from budgetnet.cli import main

sys.exit(main())
