"""A trained model made to fit: this package's default against other tools, at equal limits and equal finishing.

    python tools/make_peers.py PEERS
    python -m benchmarks.trained --data-root DATA --peers PEERS/bin/python [--parts macs] [--shares 0.3,0.15,0.5]
        [--seeds 0,1,2] [--contestants ours,magnitude] [--out sweeps/trained]

Every run is an entry of `results/trained_ledger.json`, saved as it comes: what is there is not run again, and an
interrupted run is begun again. Without `--peers` the other tools are left out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks._common import RESULTS, add_data_root, numbers, pin_threads, shares
from benchmarks.trained import macs
from benchmarks.trained.ledger import Ledger
from benchmarks.trained.study import Protocol, Study

LEDGER = "trained_ledger.json"


def names(text: str) -> list[str]:
    """`ours,uniform` as a list."""
    return text.split(",")


def main() -> None:
    """Runs what the ledger does not have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_root(parser)
    parser.add_argument("--parts", type=names, default=["macs"])
    parser.add_argument("--shares", type=shares)
    parser.add_argument("--seeds", type=numbers, default=[0, 1, 2])
    parser.add_argument("--contestants", type=names)
    parser.add_argument("--peers", type=Path, help="the interpreter of the environment of tools/make_peers.py")
    parser.add_argument("--out", type=Path, default=Path("sweeps/trained"))
    options = parser.parse_args()
    pin_threads()
    study = Study(Protocol(), Ledger(RESULTS / LEDGER), options.out, options.data_root, options.peers)
    if "macs" in options.parts:
        macs.run(study, options.shares or macs.SHARES, options.seeds, options.contestants or macs.CONTESTANTS)


if __name__ == "__main__":
    main()
