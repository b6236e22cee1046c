"""The runs of the comparison, each an entry of a file beside the results, saved as it comes.

A run is known by everything that it follows from: the data, the network, the seed, the limit, who made it and how it
was trained. What is in the ledger is not run again, on whatever machine; a change of the code does not make a new
entry, but every entry has its commit.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._common import commit, machine
from budgetnet.naming.files import write_file

Entry = dict[str, Any]


def key_of(known: Mapping[str, Any]) -> str:
    """The key of a run, from what it follows from."""
    text = json.dumps(known, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Ledger:
    """The entries of a file, by their keys."""

    path: Path

    def entries(self) -> dict[str, Entry]:
        """All of them; none if there is no file yet."""
        found: dict[str, Entry] = {}
        if self.path.exists():
            found = json.loads(self.path.read_text(encoding="utf-8"))
        return found

    def find(self, known: Mapping[str, Any]) -> Entry | None:
        """The entry of a run, if it is there."""
        return self.entries().get(key_of(known))

    def run(self, known: Mapping[str, Any], make: Callable[[], Mapping[str, Any]]) -> Entry:
        """The entry of a run; it is made if it is not there."""
        found = self.find(known)
        if found is None:
            begun = time.monotonic()
            found = {**known, **make(), "wall_seconds": round(time.monotonic() - begun, 1)}
            found |= {"commit": commit(), "processor": machine()["processor"]}
            self._write(key_of(known), found)
            print(_line(found), flush=True)
        return found

    def _write(self, key: str, entry: Entry) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.entries() | {key: entry}, indent=1, ensure_ascii=False)
        write_file(self.path, (text + "\n").encode())


def _line(entry: Entry) -> str:
    """What is worth reading while the program runs."""
    names = ("part", "limit", "seed", "contestant", "draw", "teacher", "lr", "validation", "test", "share")
    said = [
        f"{name} {entry[name]:.4g}" if isinstance(entry[name], float) else f"{name} {entry[name]}"
        for name in names
        if entry.get(name) is not None
    ]
    return f"{time.strftime('%H:%M:%S', time.gmtime())}  {', '.join(said)}, {entry['wall_seconds']:.0f} s"
