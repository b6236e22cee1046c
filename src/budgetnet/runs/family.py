"""Several budgets from one preparation: a network for each, in a folder of its own below the run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from budgetnet.costs.units import show
from budgetnet.errors import UserError
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.folder import RunFolder
from budgetnet.records.results import Summary
from budgetnet.runs.arguments import AND, check_network
from budgetnet.runs.config import from_mapping
from budgetnet.runs.result import Result, load
from budgetnet.runs.search import search
from budgetnet.strategies.recipes import Strategy
from budgetnet.strategies.trained import TrainedRecipe
from budgetnet.training.processes import expected

SHARED = "importance.safetensors"
"""What the one importance pass found, in the folder of the family."""
Member = TypeVar("Member")
LONGEST = 60
"""Characters of a member's folder."""


def parts_of(text: str) -> tuple[str, ...]:
    """The budgets of one network: `macs<=60% & params<=1M` are two."""
    return tuple(part.strip() for part in text.split(AND.strip()))


def member_folders(budgets: Sequence[str], out: Path) -> dict[str, Path]:
    """The folder of the network for each budget; two that are the same are refused."""
    if not budgets:
        raise UserError('no budget was given; write at least one, such as "macs<=60%" "macs<=30%"')
    folders: dict[str, Path] = {}
    for text in budgets:
        name = re.sub(r"[^A-Za-z0-9.]+", "-", text.replace("%", "pct")).strip("-.")[:LONGEST] or "budget"
        if text in folders or out / name in folders.values():
            raise UserError(f"the budget {text!r} is given twice; leave one out")
        folders[text] = out / name
    return folders


def sharing(recipe: Strategy, out: Path) -> Strategy:
    """A recipe whose importance pass is shared by the family in this folder."""
    return recipe.changed({"shared": out / SHARED}) if isinstance(recipe, TrainedRecipe) else recipe


def search_family(
    net: SuperNetwork,
    train: Any,
    validation: Any,
    test: Any = None,
    *,
    budgets: Sequence[str],
    out: str | Path,
    recipe: str | Strategy | None = None,
    **options: Any,
) -> list[Result]:
    """A network for each of several budgets, from one importance pass over the trained weights.

    Args:
        net: The super network with its trained weights.
        train: As for `search`.
        validation: As for `search`.
        test: As for `search`.
        budgets: A text for each network, such as `["latency<=12ms", "latency<=6ms"]`.
        out: The folder; each network has a run folder in it. Finished ones are kept, interrupted ones go on.
        recipe: As for `search`.
        **options: Of `search`.

    Returns:
        The results in the order of the budgets. The curve of cost and score is in `report.html` of the folder.
    """
    check_network(net)
    folder = Path(out)
    texts = [budgets] if isinstance(budgets, str) else list(budgets)
    if recipe is None or isinstance(recipe, str):
        known: dict[str, Any] = {
            name: options[name] for name in ("epochs", "groups", "batch_size", "penalty") if name in options
        }
        config = from_mapping({"budgets": tuple(texts), "recipe": recipe, "data": "own", **known}, "search_family()")
        recipe = config.make_recipe("classification", net.trained)
    chosen = sharing(recipe, folder)

    def run(text: str, where: Path) -> Result:
        if RunFolder(where).finished:
            return load(where)
        made: Result = search(
            net,
            train,
            validation,
            test,
            budgets=parts_of(text),
            out=where,
            recipe=chosen,
            **{**options, "resume": True},
        )
        return made

    return run_family(texts, folder, run)


def run_family(budgets: Sequence[str], out: Path, run: Callable[[str, Path], Member]) -> list[Member]:
    """Runs the members one after the other, and writes the page about all of them.

    Args:
        budgets: A text for each member.
        out: The folder of the family.
        run: Makes the member for a text in its folder.

    Returns:
        What `run` returned, in the order of the budgets.
    """
    from budgetnet.pictures.report import write_report

    if expected() > 1:
        raise UserError("several budgets at once are searched by one process; give each of them a torchrun of its own")
    folders = member_folders(budgets, out)
    out.mkdir(parents=True, exist_ok=True)
    results = [run(text, where) for text, where in folders.items()]
    if len(results) > 1:
        write_report(list(folders.values()), out / "report.html", force=True)
    return results


def curve(summaries: Sequence[Summary]) -> list[tuple[str, str, str, str, str]]:
    """A row for each network: its budgets, its cost under the tightest one, its scores, whether it is certified."""
    rows = []
    for summary in summaries:
        budget = max(summary.budgets, key=lambda budget: budget.share)
        scores = ", ".join(f"{part} {score}" for part, score in summary.scores().items())
        texts = AND.join(budget.text or budget.cost for budget in summary.budgets)
        value, met = show(budget.value, budget.unit), "yes" if summary.met else "NO"
        rows.append((texts, value, f"{budget.share:.1%}", scores, met))
    return rows
