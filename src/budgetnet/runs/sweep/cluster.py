"""The engine of a Dask cluster: one order per worker slot, each in a process of its own beside the worker.

Between its processes Dask uses pickle; all that is sent is the name of a function of this module and a text. Runs are
in a folder that the workers share, where a run goes on after its worker died. The folder also holds the sweep's pulse:
runs whose sweep has gone, or was started again, save their state and end.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from budgetnet.errors import UserError
from budgetnet.naming.files import read_json, write_file
from budgetnet.naming.values import typed
from budgetnet.runs.sweep.engine import FAILED, REFUSED, Asked, Ending, Order, code_version
from budgetnet.runs.sweep.processes import cores, supervise

CONNECT_SECONDS = 10.0
LOST_WORKERS = 2
"""How often a task that raised is tried again; those of workers that died are tried again by the scheduler."""
PULSE = ".pulse"
PULSE_SECONDS = 1.0
SILENCE_SECONDS = 60.0
"""A pulse that has not changed for so long is that of a sweep that is gone."""
PAUSE = 0.1


class DaskEngine:
    """An existing cluster, checked: workers are there, and each runs this version of budgetnet."""

    def __init__(self, address: str, out: Path) -> None:
        self._client = _connect(address)
        try:
            self.slots, self.threads = _room(self._client, address)
        except BaseException:
            self._client.close()
            raise
        self._pulse, self._session = out.resolve() / PULSE, uuid.uuid4().hex

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pulse.unlink(missing_ok=True)
        self._client.close()

    def carry_out(self, orders: Sequence[Order], should_stop: Asked) -> Iterator[Ending]:
        """Each order's ending, as they come."""
        about = {
            "threads": self.threads,
            "cwd": str(Path.cwd()),
            "pulse": str(self._pulse),
            "session": self._session,
        }
        self._beat(0, False)
        waiting = {
            self._client.submit(work, order.to_json(**about), pure=False, retries=LOST_WORKERS): order
            for order in orders
        }
        begun = time.monotonic()
        while waiting:
            for future in [future for future in waiting if future.done()]:
                yield _ending(waiting.pop(future), future)
            time.sleep(PAUSE)
            self._beat(int((time.monotonic() - begun) / PULSE_SECONDS), should_stop())

    def _beat(self, count: int, stopping: bool) -> None:
        text = json.dumps({"session": self._session, "count": count, "stop": stopping})
        if not self._pulse.exists() or self._pulse.read_text(encoding="utf-8") != text:
            write_file(self._pulse, text.encode())


def _connect(address: str) -> Any:
    try:
        import distributed
    except ImportError:
        raise UserError("the Dask engine needs an extra: pip install 'budgetnet[cluster]'") from None
    try:
        return distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError, ImportError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(
            f"no Dask scheduler answers at {address} ({reason}); start one with `dask scheduler`, or check the address"
        ) from None


def _room(client: Any, address: str) -> tuple[int, int]:
    """Slots of the cluster, and threads for an order: what every worker's machine can give all of its slots."""
    with suppress(TimeoutError):
        client.wait_for_workers(1, timeout=CONNECT_SECONDS)
    workers = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise UserError(f"the Dask scheduler at {address} has no workers; start one with `dask worker {address}`")
    about = {name: _described(text, name) for name, text in client.run(describe, on_error="return").items()}
    hosts: Counter[str] = Counter()
    for worker in workers.values():
        hosts[worker["host"]] += worker["nthreads"]
    shares = [about[name]["cores"] // hosts[worker["host"]] for name, worker in workers.items() if name in about]
    return sum(hosts.values()), max(1, min(shares, default=1))


def _described(text: Any, worker: str) -> dict[str, Any]:
    if not isinstance(text, str):
        raise UserError(
            f"the worker {worker} cannot run budgetnet {code_version()} ({type(text).__name__}: {text}); "
            "install the same version there"
        )
    about: dict[str, Any] = json.loads(text)
    if about["version"] != code_version():
        raise UserError(
            f"the worker {worker} has budgetnet {about['version']}, this sweep is of {code_version()}; "
            "install the same version there and start the worker again"
        )
    return about


def _ending(order: Order, future: Any) -> Ending:
    if future.status == "finished":
        return Ending(**json.loads(future.result()))
    if future.status == "error":
        error = future.exception()
        return Ending(order.name, FAILED, f"its worker failed ({type(error).__name__}: {error}); start the sweep again")
    return Ending(order.name, FAILED, "the Dask scheduler went away; start the sweep again to go on")


def describe() -> str:
    """On a worker: what it runs and what it can give."""
    return json.dumps({"version": code_version(), "cores": cores()})


def work(text: str) -> str:
    """On a worker: carries out an order as long as its sweep is there."""
    order = json.loads(text)
    pulse = Pulse(Path(order["pulse"]), order["session"])
    if pulse.read() is None:
        reason = f"{pulse.path.parent} is not there on the worker; use a folder that all workers share"
        return json.dumps(asdict(Ending(order["name"], REFUSED, reason)))
    return json.dumps(asdict(supervise(text, pulse.silent)))


@dataclass(frozen=True)
class Beat:
    """What a sweep writes about itself every second."""

    session: str
    count: int
    stop: bool


class Pulse:
    """A sweep as its workers see it: a file that changes as long as the sweep is there."""

    def __init__(self, path: Path, session: str) -> None:
        self.path = path
        self.session = session
        self._last: Beat | None = None
        self._changed = time.monotonic()

    def read(self) -> Beat | None:
        """What the file says; None if there is none that can be read."""
        try:
            return typed(read_json(self.path, follow=False), Beat, str(self.path))
        except UserError:
            return None

    def silent(self) -> bool:
        """Whether the sweep asks to stop, was started again, or is gone."""
        found, now = self.read(), time.monotonic()
        if found is None or found.session != self.session or found.stop:
            return True
        if found != self._last:
            self._last, self._changed = found, now
        return now - self._changed > SILENCE_SECONDS
