"""Where the time of a run goes: seconds of each phase and part, which add up to all the time there was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

OTHER = "other"


class Untimed:
    """A stopwatch that is not running: it costs a call and does nothing."""

    running = False
    _nothing: AbstractContextManager[None] = nullcontext()

    def phase(self, name: str) -> None:
        """What comes next belongs to this phase."""

    def part(self, name: str) -> AbstractContextManager[None]:
        """What happens inside belongs to this part; a part within a part is taken off the outer one."""
        return self._nothing

    def each(self, name: str, items: Iterable[T]) -> Iterator[T]:
        """The items, the time that it takes to get them charged to a part."""
        return iter(items)


OFF = Untimed()


class Stopwatch(Untimed):
    """Charges every moment since it was made to one phase and one part."""

    running = True

    def __init__(self, phase: str, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[tuple[str, str], float] = {}
        self._clock = clock
        self._phase = phase
        self._parts = [OTHER]
        self._since = clock()

    def phase(self, name: str) -> None:
        """See `Untimed`."""
        self._charge()
        self._phase = name

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """See `Untimed`."""
        self._charge()
        self._parts.append(name)
        try:
            yield
        finally:
            self._charge()
            self._parts.pop()

    def each(self, name: str, items: Iterable[T]) -> Iterator[T]:
        """See `Untimed`."""
        iterator, end = iter(items), object()
        while True:
            with self.part(name):
                item: Any = next(iterator, end)
            if item is end:
                return
            yield item

    def totals(self) -> dict[str, float]:
        """Seconds of each phase, all of its parts together."""
        self._charge()
        found: dict[str, float] = {}
        for (phase, _), seconds in self.seconds.items():
            found[phase] = found.get(phase, 0.0) + seconds
        return found

    def table(self) -> list[dict[str, Any]]:
        """Phase, part, seconds and share of the whole: phases as they came, the longest part of each first."""
        self._charge()
        total = sum(self.seconds.values()) or 1.0
        phases = list(dict.fromkeys(phase for phase, _ in self.seconds))
        order = sorted(self.seconds.items(), key=lambda entry: (phases.index(entry[0][0]), -entry[1]))
        return [
            {"phase": phase, "part": part, "seconds": seconds, "share": seconds / total}
            for (phase, part), seconds in order
        ]

    def _charge(self) -> None:
        now = self._clock()
        key = self._phase, self._parts[-1]
        self.seconds[key] = self.seconds.get(key, 0.0) + now - self._since
        self._since = now


class Watched(Protocol):
    """Anything with a stopwatch, running or not."""

    watch: Untimed


W = TypeVar("W", bound=Watched)


def timed(part: str) -> Callable[[Callable[Concatenate[W, P], R]], Callable[Concatenate[W, P], R]]:
    """Charges the calls of a method to a part on the stopwatch of its object."""

    def decorate(method: Callable[Concatenate[W, P], R]) -> Callable[Concatenate[W, P], R]:
        @wraps(method)
        def call(self: W, /, *args: P.args, **kwargs: P.kwargs) -> R:
            with self.watch.part(part):
                return method(self, *args, **kwargs)

        return call

    return decorate
