"""The commands with their options and help texts. What a command does is imported when it is called."""

from budgetnet.cli.commands.listing import completion, cost, costs, describe, spaces
from budgetnet.cli.commands.results import certify, draw, export, predict, report, runs, show, watch
from budgetnet.cli.commands.running import meter, reproduce, search, sweep, train

COMMANDS = (
    search,
    train,
    sweep,
    reproduce,
    meter,
    certify,
    export,
    predict,
    report,
    watch,
    draw,
    show,
    runs,
    describe,
    cost,
    spaces,
    costs,
    completion,
)
"""In the order in which `budgetnet --help` lists them."""
