"""The super network of a run folder, rebuilt for drawing and counting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from budgetnet.costs import Meter
from budgetnet.errors import UserError
from budgetnet.naming import own_names
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.folder import RunFiles
from budgetnet.spaces import SPACES, build


@dataclass(frozen=True)
class Made:
    """What the process that draws a run has made already, so that it is not built and counted again.

    Args:
        net: The super network of the run.
        meters: Its costs by their names.
    """

    net: SuperNetwork
    meters: Mapping[str, Meter] = field(default_factory=dict)


class Networks:
    """Builds each super network once. A user's own space is built only if the user names it here, never from a file."""

    def __init__(self, given: Mapping[Path, Made] | None = None, space: str | None = None) -> None:
        self.given = {path.resolve(): made for path, made in (given or {}).items()}
        self.space = space
        self._built: dict[tuple[str, tuple[int, ...] | None, int | None], SuperNetwork] = {}

    def of(self, run: RunFiles) -> tuple[SuperNetwork | None, str]:
        """The super network, or None and the reason."""
        if run.path.resolve() in self.given:
            return self.given[run.path.resolve()].net, ""
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

    def meters_of(self, run: RunFiles) -> Mapping[str, Meter]:
        """Costs of the run that need not be bound again."""
        made = self.given.get(run.path.resolve())
        return made.meters if made else {}

    def _build(self, text: str, shape: tuple[int, ...] | None, classes: int | None) -> SuperNetwork:
        key = (text, shape, classes)
        if key not in self._built:
            self._built[key] = build(text, shape, classes, own=own_names(self.space or ""))
        return self._built[key]


def _shape(run: RunFiles) -> tuple[int, ...] | None:
    return run.data.input_shape if run.data and run.data.input_shape else None


def _classes(run: RunFiles) -> int | None:
    return len(run.data.classes) if run.data and run.data.classes else None
