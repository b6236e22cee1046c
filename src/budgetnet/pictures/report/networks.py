"""The super network of a run folder, for drawing and counting: what the folder says of it, or a built-in space."""

from __future__ import annotations

from collections.abc import Iterator

from budgetnet.budgets.budget import Budget, parse
from budgetnet.costs import Meter, bind
from budgetnet.errors import UserError
from budgetnet.naming import own_names
from budgetnet.network.supernet import SuperNetwork
from budgetnet.pictures.outline import FILE, Outline
from budgetnet.records.folder import RunFiles
from budgetnet.spaces import SPACES, build

COUNTED = ("macs", "params", "size", "steps")
"""Costs that are counted at once. Others are measured, or code that no file may name: not bound here."""


class Networks:
    """Builds each super network once. A user's own space is built only if the user names it here, never from a file."""

    def __init__(self, space: str | None = None) -> None:
        self.space = space
        self._built: dict[tuple[str, tuple[int, ...] | None, int | None], SuperNetwork] = {}

    def of(self, run: RunFiles) -> tuple[Outline | None, str]:
        """The outline of the super network, or None and the reason."""
        if run.graph is not None and self.space is None:
            try:
                return Outline.from_json(run.graph, str(run.path / FILE)), ""
            except UserError as error:
                return None, f"{error}."
        net, reason = self.built(run)
        if net is None:
            return None, reason
        budgets = list(_counted(run, net))
        return Outline.of(net, [bind("macs", net), *(budget.meter for budget in budgets)], budgets), ""

    def built(self, run: RunFiles) -> tuple[SuperNetwork | None, str]:
        """The super network itself, or None and the reason."""
        written = run.settings.get("space")
        text = self.space or (written if isinstance(written, str) else "")
        if not text:
            return None, "The run folder does not say which space was searched."
        if self.space is None and text.partition(":")[0] not in SPACES:
            return (
                None,
                f"The space {text} is code of your own, which a report runs only when asked: add --space {text}",
            )
        try:
            return self._build(text, _shape(run), _classes(run)), ""
        except UserError as error:
            return None, f"The space {text} could not be built: {error}"

    def meter(self, run: RunFiles, outline: Outline, cost: str) -> Meter:
        """A cost that the user named, for this run."""
        if cost in outline.meters:
            return outline.meters[cost]
        net, reason = self.built(run)
        if net is None:
            raise UserError(f"{run.path} does not know the cost {cost}, only {', '.join(outline.meters)}; {reason}")
        return bind(cost, net, own=own_names(cost))

    def _build(self, text: str, shape: tuple[int, ...] | None, classes: int | None) -> SuperNetwork:
        key = (text, shape, classes)
        if key not in self._built:
            self._built[key] = build(text, shape, classes, own=own_names(self.space or ""))
        return self._built[key]


def counted(name: str) -> bool:
    """Whether a cost can be counted from the graph."""
    return name.partition("(")[0] in COUNTED


def _counted(run: RunFiles, net: SuperNetwork) -> Iterator[Budget]:
    """The budgets of a run without an outline that can be counted; those written by hand may be wrong."""
    texts = [budget.cost + "<=100%" for budget in run.summary.budgets] if run.summary else run.settings.get("budgets")
    for text in texts if isinstance(texts, list) else []:
        if counted(str(text).replace("≤", "<=").partition("<=")[0].strip()):
            try:
                yield parse(str(text), net)
            except UserError:
                continue


def _shape(run: RunFiles) -> tuple[int, ...] | None:
    return run.data.input_shape if run.data and run.data.input_shape else None


def _classes(run: RunFiles) -> int | None:
    return len(run.data.classes) if run.data and run.data.classes else None
