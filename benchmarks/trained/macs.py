"""The comparison at shares of the multiply-adds: who takes part, and the runs in the order of what they are worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.trained import ours, peers
from benchmarks.trained.ledger import Entry
from benchmarks.trained.study import NONE, SELF, Study

PART = "macs"
SHARES = (0.3, 0.15, 0.5)
RATES = (0.1, 0.02)
"""Learning rates that a peer's finish is tried at, with the first seed and share; the better one by
validation is kept."""
DRAWS = 2
"""Networks of random widths for each seed."""
TAUGHT = "-taught"
CONTESTANTS = (
    *("ours", "magnitude", "uniform", "ours-alone", "taylor", "scratch", "random", "fastnas"),
    *(f"{name}{TAUGHT}" for name in ("uniform", "magnitude", "fastnas")),
)
"""In the order of what they are worth. `ours` has its default teacher, `ours-alone` none; those that are taught have
the same one."""


def run(study: Study, shares: Sequence[float], seeds: Sequence[int], contestants: Sequence[str]) -> None:
    """All runs that the ledger does not have, seed by seed."""
    for seed in seeds:
        for share in shares:
            for name in contestants:
                _run_one(study, share, seed, name)


def _run_one(study: Study, share: float, seed: int, name: str) -> None:
    plain, teacher = name.removesuffix(TAUGHT), SELF if name.endswith(TAUGHT) else NONE
    if plain in peers.TOOLS:
        peer(study, plain, share, seed, teacher)
    elif plain == "uniform":
        widths(study, share, seed, None, teacher)
    elif name == "random":
        for draw in range(DRAWS):
            widths(study, share, seed, draw, NONE)
    elif name == "scratch":
        scratch(study, share, seed)
    else:
        search(study, share, seed, SELF if name == "ours" else NONE)


def search(study: Study, share: float, seed: int, teacher: str) -> Entry:
    """This package's search."""
    how = ours.settings(study, teacher)
    known = study.known(part=PART, limit=share, seed=seed, contestant="ours", teacher=teacher, **how)
    folder = study.out / f"ours-{teacher}-{share:g}-{seed}"

    def make() -> dict[str, Any]:
        return ours.search(study, seed, f"macs<={100 * share:g}%", teacher, folder)[1]

    return study.ledger.run(known, make)


def widths(study: Study, share: float, seed: int, draw: int | None, teacher: str) -> Entry:
    """Uniform widths, or a draw of random ones, from the trained weights."""
    how = study.finishing()
    name = "uniform" if draw is None else "random"
    known = study.known(part=PART, limit=share, seed=seed, contestant=name, draw=draw, teacher=teacher, lr=how.lr)

    def make() -> dict[str, Any]:
        model = ours.widths(study, seed, share, draw)
        if model is None:
            return {"refused": True}
        found = study.train(model, seed, how, study.teacher(teacher, seed))
        return {**found, "share": found["macs"] / full_macs(study, seed)}

    return study.ledger.run(known, make)


def scratch(study: Study, share: float, seed: int) -> Entry:
    """The network that the search without a teacher chose, from fresh weights."""
    chosen = search(study, share, seed, NONE)
    known = study.known(part=PART, limit=share, seed=seed, contestant="scratch", teacher=NONE, kept=chosen["kept"])

    def make() -> dict[str, Any]:
        found = ours.from_scratch(study, seed, chosen["kept"])
        return {**found, "share": found["macs"] / full_macs(study, seed)}

    return study.ledger.run(known, make)


def peer(study: Study, tool: str, share: float, seed: int, teacher: str = NONE) -> None:
    """A peer's network, finished at the rate that was tuned for it, or at all of them where it is to be tuned."""
    if study.peers is None:
        return
    tuned = rate_of(study, tool)
    for lr in (tuned,) if tuned is not None else RATES:
        _finish_peer(study, tool, share, seed, teacher, lr)


def _finish_peer(study: Study, tool: str, share: float, seed: int, teacher: str, lr: float) -> Entry:
    known = study.known(part=PART, limit=share, seed=seed, contestant=tool, teacher=teacher, lr=lr)

    def make() -> dict[str, Any]:
        answer = peers.pruned(study, tool, seed, sorted({*SHARES, share}))
        found = peers.network_of(study, answer, share)
        about = {name: answer[name] for name in ("versions", "settings")}
        if found is None:
            return {**about, "refused": True}
        model, said = found
        trained = study.train(model, seed, study.finishing(lr), study.teacher(teacher, seed))
        share_of = trained["macs"] / full_macs(study, seed)
        return {**about, **trained, "share": share_of, "tool_seconds": said["tool_seconds"]}

    return study.ledger.run(known, make)


def rate_of(study: Study, tool: str) -> float | None:
    """The best rate of a tool by validation, for the first seed and share finished at all of them; None before that."""
    found: dict[tuple[int, float], dict[float, float]] = {}
    for entry in study.entries(part=PART, contestant=tool, teacher=NONE):
        found.setdefault((entry["seed"], entry["limit"]), {})[entry["lr"]] = entry.get("validation", 0.0)
    complete = [rates for _, rates in sorted(found.items(), key=_in_order) if set(rates) == set(RATES)]
    return max(complete[0], key=complete[0].__getitem__) if complete else None


def _in_order(found: tuple[tuple[int, float], Any]) -> tuple[int, int]:
    """Seeds in their order, and shares in the order of `SHARES`."""
    (seed, share), _ = found
    return seed, SHARES.index(share) if share in SHARES else len(SHARES)


def full_macs(study: Study, seed: int) -> int:
    """Multiply-adds of the full network."""
    found = study.entries(contestant="full", seed=seed)
    return int(found[0]["macs"] if found else study.judged(study.full(seed), seed)["macs"])
