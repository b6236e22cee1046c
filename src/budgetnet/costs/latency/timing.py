"""Times of a network and of a fixed reference network, run in turns: what a busy machine cannot spoil.

A machine that slows down slows both. So the ratio of a pair is steady where seconds are not, and the time of the
network is that ratio times the reference's time when nothing disturbs it.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Run = Callable[[], object]
Statistic = Callable[["Series"], Array]

QUIET = 0.1
"""The quantile of the reference's times that counts as undisturbed."""
RESAMPLES = 1000
"""Of the bootstrap: with so many, the ends of a 95 % interval vary by about 2 % of its width."""
PAIRS = (20, 600)
"""The fewest and the most pairs of one series."""
PATIENCE = 3
"""How many times the seconds asked for may pass while pairs are disturbed."""
NAP = 0.001
"""Seconds of rest after a disturbed pair: a process that rested gets a whole slice of the processor."""
REFERENCE_RUNS = (1, 9)
"""The fewest and the most runs of the reference in one pair; between them, as many as last as long as the network."""


@dataclass(frozen=True, eq=False)
class Series:
    """Pairs, in seconds: a run of the network and the median run of the reference right after it (…, pairs).

    A pair is disturbed if the system gave the processor to somebody else while the network ran, or in every run of the
    reference; `processor` is the processor's time of the network's run, which leaves out what others took.
    """

    network: Array
    reference: Array
    disturbed: np.ndarray[Any, np.dtype[np.bool_]]
    processor: Array

    def __len__(self) -> int:
        return int(self.network.shape[-1])

    def at(self, index: Any) -> Series:
        """Chosen pairs; an index of resamples × pairs gives that many series at once."""
        return Series(self.network[index], self.reference[index], self.disturbed[index], self.processor[index])

    def calm(self) -> Series:
        """The undisturbed pairs; where these are too few, all of them, disturbed runs by the processor's time."""
        kept = np.flatnonzero(~self.disturbed)
        if len(kept) >= PAIRS[0]:
            return self.at(kept)
        return replace(self, network=np.where(self.disturbed, self.processor, self.network))


def join(series: Sequence[Series]) -> Series:
    """One after the other.

    Args:
        series: Series of the same network.

    Returns:
        All their pairs.
    """
    return Series(*(np.concatenate([getattr(s, f.name) for s in series]) for f in fields(Series)))


def ratio(series: Series) -> Array:
    """The median of the paired ratios to the reference.

    Args:
        series: The pairs.

    Returns:
        One number; for resamples, one each.
    """
    return _array(np.median(series.network / series.reference, -1))


def quiet(series: Series) -> Array:
    """The reference's time when nothing disturbs it.

    Args:
        series: The pairs.

    Returns:
        Seconds; for resamples, one number each.
    """
    return _array(np.quantile(series.reference, QUIET, axis=-1))


def latency(series: Series) -> Array:
    """Seconds of the network on a quiet machine.

    Args:
        series: The pairs.

    Returns:
        The median ratio times the reference's quiet time; for resamples, one number each.
    """
    return _array(ratio(series) * quiet(series))


def p95(series: Series) -> Array:
    """The plain 95th percentile of the network's times.

    Args:
        series: The pairs.

    Returns:
        Seconds; for resamples, one number each.
    """
    return _array(np.quantile(series.network, 0.95, axis=-1))


def interval(series: Series, statistic: Statistic, seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of a statistic; blocks of neighbours are redrawn, since disturbances last.

    Args:
        series: The pairs.
        statistic: A function of series, such as `latency`.
        seed: Of the resamples.

    Returns:
        The lower and the upper end.
    """
    values = statistic(series.at(_blocks(len(series), RESAMPLES, np.random.default_rng(seed))))
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def _blocks(pairs: int, resamples: int, generator: np.random.Generator) -> Any:
    """Indices, resamples × pairs: runs of neighbours of length √pairs from random starts, around the end."""
    length = max(1, round(pairs**0.5))
    starts = generator.integers(pairs, size=(resamples, -(-pairs // length), 1))
    return ((starts + np.arange(length)) % pairs).reshape(resamples, -1)[:, :pairs]


def _array(value: Any) -> Array:
    return np.asarray(value, np.float64)


def interleave(
    network: Callable[[], Run],
    reference: Callable[[], Run],
    *,
    seconds: float,
    rounds: int,
    clock: Callable[[Run], float] | None = None,
) -> Series:
    """Runs network and reference in turns for about so long, in rounds that each prepare both anew.

    Where things lie in memory changes times by some per cent: fresh rounds average over it.

    Args:
        network: Prepares the network, and returns what runs it once.
        reference: The same for the reference.
        seconds: How long to measure, about.
        rounds: How often both are prepared anew.
        clock: Times one run by itself, such as by the events of an accelerator, which leaves out what other processes
            do to this one; the clock of this process if not given.

    Returns:
        The pairs of all rounds.
    """
    timed = _timed if clock is None else lambda run: _by_clock(clock, run)
    series: list[Series] = []
    for _ in range(rounds):
        a, b = network(), reference()
        cost, beside = _warm(a, timed), _warm(b, timed)
        runs = int(np.clip(round(cost / beside), *REFERENCE_RUNS))
        least, most = (-(-limit // rounds) for limit in PAIRS)
        series.append(_pairs(a, b, runs, range(least, most), seconds / rounds, timed))
    return join(series)


def _warm(run: Run, timed: Callable[[Run], _Timed], least: int = 3, seconds: float = 0.01) -> float:
    """Runs until caches and allocators have settled; the best time."""
    best, begin, count = float("inf"), time.perf_counter(), 0
    while count < least or (time.perf_counter() - begin < seconds and count < 20):
        best = min(best, timed(run).seconds)
        count += 1
    return best


def _pairs(
    network: Run, reference: Run, runs: int, pairs: range, seconds: float, timed: Callable[[Run], _Timed]
) -> Series:
    """Pairs until the time is over, and for a while longer if too few of them were undisturbed."""
    rows: list[tuple[float, float, bool, float]] = []
    begin, calm = time.perf_counter(), 0
    with no_collection():
        while len(rows) < pairs.stop:
            passed = time.perf_counter() - begin
            if len(rows) >= pairs.start and passed > seconds * (1 if calm >= pairs.start else PATIENCE):
                break
            run = timed(network)
            beside = [timed(reference) for _ in range(runs)]
            disturbed = run.disturbed or all(other.disturbed for other in beside)
            rows.append((run.seconds, _typical(beside), disturbed, run.processor))
            calm += not disturbed
            if disturbed:
                time.sleep(NAP)
                reference()
    times = np.array(rows)
    return Series(times[:, 0], times[:, 1], times[:, 2].astype(bool), times[:, 3])


class _Timed(NamedTuple):
    seconds: float
    disturbed: bool
    processor: float


def _timed(run: Run) -> _Timed:
    before, processor, start = _switches(), time.thread_time(), time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    processor = time.thread_time() - processor
    return _Timed(seconds, _switches() != before, processor)


def _by_clock(clock: Callable[[Run], float], run: Run) -> _Timed:
    seconds = clock(run)
    return _Timed(seconds, False, seconds)


def _typical(runs: Sequence[_Timed]) -> float:
    """The median of the undisturbed runs; of the processor's times if there are none."""
    calm = [run.seconds for run in runs if not run.disturbed]
    return float(np.median(calm or [run.processor for run in runs]))


def _switches() -> int:
    """How often the system took the processor away from this process; always 0 where it does not say."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Python's collector would free things of earlier networks in the middle of a measurement."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Torch on so many threads, for as long as the measurement lasts.

    Args:
        count: The number of threads.
    """
    import torch  # here, since the meter on a device has none

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
