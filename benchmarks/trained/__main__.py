"""A trained model made to fit: this package's default against other tools, at equal limits and equal finishing.

    python tools/make_peers.py PEERS
    python -m benchmarks.trained --data-root DATA --peers PEERS/bin/python [--parts macs] [--shares 0.3,0.15,0.5]
        [--seeds 0,1,2] [--contestants ours,magnitude] [--out sweeps/trained]

Every run is an entry of `results/trained_ledger.json`, saved as it comes: what is there is not run again, and an
interrupted run is begun again. Without `--peers` the other tools are left out; with `--parts ""` nothing is run, and
`results/trained.json` is made of the entries that there are. A seed takes hours of one core, most of it finishing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks._common import RESULTS, add_data_root, numbers, pin_threads, save_result, shares
from benchmarks.trained import faces, gamma, latency, macs, ours, sentences, table
from benchmarks.trained.ledger import Ledger
from benchmarks.trained.study import BF16, Protocol, Study

LEDGER = "trained_ledger.json"
LARGE = Protocol("cifar10", before=30.0, after=15.0, precision=BF16)
"""32×32 images, all of them: an hour of one core, with fewer epochs than published rows have, and in bf16."""


def large(study: Study, shares: Sequence[float], seeds: Sequence[int], contestants: Sequence[str]) -> None:
    """The comparison at full resolution, with the first seed."""
    macs.run(replace(study, protocol=LARGE, out=study.out / "large"), shares, seeds[:1], contestants)


TUNED = (
    "the learning rates of the tools, on validation data with the first seed: for multiply-adds at the first share, "
    "whose rate the other shares have, for time at each limit; all else has the recipe's default rate"
)
LARGE_COLUMNS = ("contestant", "limit", "seed", "teacher", "validation", "test", "macs", "share")
Run = Callable[[Study, Sequence[float], Sequence[int], Sequence[str]], None]
PARTS: dict[str, tuple[Run, Sequence[float], Sequence[str]]] = {
    "macs": (macs.run, macs.SHARES, macs.CONTESTANTS),
    "latency": (latency.run, latency.LIMITS, latency.CONTESTANTS),
    "gamma": (gamma.run, (0.3,), gamma.LEARNERS),
    "faces": (faces.run, (0.5,), ()),
    "sentences": (sentences.run, (0.5,), ()),
    "large": (large, (0.5,), ("ours",)),
}
"""What runs, its limits and its contestants, each in the order of what they are worth."""


def names(text: str) -> list[str]:
    """`ours,uniform` as a list."""
    return [name for name in text.split(",") if name]


def write(study: Study) -> None:
    """Makes the result of what the ledger has, and prints the differences."""
    entries = [entry for entry in study.entries() if ours.current(study, entry)]
    tables = {part: table.table(entries, part) for part in ("macs", "latency")}
    beside = [entry for entry in study.ledger.entries().values() if entry.get("part") == "sentences"]
    whole = replace(study, protocol=LARGE).entries()
    full = [entry for entry in entries if entry["contestant"] == "full"]
    save_result(
        "trained",
        {
            "protocol": asdict(study.protocol),
            "full": {str(entry["seed"]): {part: entry[part] for part in ("validation", "test")} for entry in full},
            "tuned": TUNED,
            **tables,
            "gamma": gamma.compared(study),
            "faces": faces.compared(study),
            "sentences": beside,
            "large": [{name: entry.get(name) for name in LARGE_COLUMNS} for entry in whole],
        },
    )
    for part, found in tables.items():
        print("\n".join([f"{part}:", *table.lines(found)]), flush=True)
    print("\n".join(["", *table.markdown(tables)]), flush=True)


def main() -> None:
    """Runs what the ledger does not have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_root(parser)
    parser.add_argument("--parts", type=names, default=list(PARTS))
    parser.add_argument("--shares", type=shares)
    parser.add_argument("--seeds", type=numbers, default=[0, 1, 2])
    parser.add_argument("--contestants", type=names)
    parser.add_argument("--peers", type=Path, help="the interpreter of the environment of tools/make_peers.py")
    parser.add_argument("--out", type=Path, default=Path("sweeps/trained"))
    options = parser.parse_args()
    pin_threads()
    study = Study(Protocol(), Ledger(RESULTS / LEDGER), options.out, options.data_root, options.peers)
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; use {', '.join(PARTS)}")
    for part in options.parts:
        run, limits, contestants = PARTS[part]
        run(study, options.shares or limits, options.seeds, options.contestants or contestants)
    write(study)


if __name__ == "__main__":
    main()
