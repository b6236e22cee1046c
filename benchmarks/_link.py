"""A network namespace behind a link that delays and loses packets, as `tc netem` does where the kernel has it.

The link is a pair of TUN devices, one here and one in the namespace; a thread carries every IP packet from one to the
other, later or never. So TCP meets real loss: it repeats packets, backs off and slows down. It needs root.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import random
import selectors
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
"""From linux/if_tun.h."""
_LONGEST = 65536
"""Bytes of the longest IP packet."""


@dataclass(frozen=True)
class Conditions:
    """Of a link, in each direction.

    Attributes:
        delay: Seconds that a packet takes.
        loss: The share of packets that are lost.
    """

    delay: float = 0.0
    loss: float = 0.0


class Link:
    """Two TUN devices and the thread between them.

    Args:
        names: The names of the devices, here and there.
        seed: Of the choice which packets are lost.
    """

    def __init__(self, names: tuple[str, str], seed: int = 0) -> None:
        self.conditions = Conditions()
        self.packets = self.lost = 0
        self._ends = [_open(name) for name in names]
        self._random = random.Random(seed)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; the devices go with their files."""
        self._stopped.set()
        self._thread.join()
        for end in self._ends:
            os.close(end)

    def _carry(self) -> None:
        under_way: list[tuple[float, int, int, bytes]] = []
        with selectors.DefaultSelector() as selector:
            for index, end in enumerate(self._ends):
                selector.register(end, selectors.EVENT_READ, self._ends[1 - index])
            while not self._stopped.is_set():
                wait = under_way[0][0] - time.monotonic() if under_way else 0.2
                for key, _ in selector.select(max(0.0, min(wait, 0.2))):
                    self._take(key.fd, key.data, under_way)
                while under_way and under_way[0][0] <= time.monotonic():
                    _, _, target, packet = heapq.heappop(under_way)
                    with contextlib.suppress(OSError):  # the device is down, or its queue is full
                        os.write(target, packet)

    def _take(self, source: int, target: int, under_way: list[Any]) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                packet = os.read(source, _LONGEST)
                self.packets += 1
                if self._random.random() < self.conditions.loss:
                    self.lost += 1
                    continue
                heapq.heappush(under_way, (time.monotonic() + self.conditions.delay, self.packets, target, packet))


def _open(name: str) -> int:
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return end


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextlib.contextmanager
def other_machine(namespace: str, here: str, there: str) -> Iterator[Link]:
    """A network namespace with an address of its own behind a link.

    Args:
        namespace: Its name, for `ip netns exec`.
        here: The address of this end.
        there: The address of the other end.
    """
    _ip("netns", "add", namespace)
    try:
        devices = (f"{namespace[:10]}-a", f"{namespace[:10]}-b")
        link = Link(devices)
        try:
            _ip("link", "set", devices[1], "netns", namespace)
            for words, device, address in (((), devices[0], here), (("-n", namespace), devices[1], there)):
                _ip(*words, "addr", "add", f"{address}/24", "dev", device)
                _ip(*words, "link", "set", device, "up")
            yield link
        finally:
            link.close()
    finally:
        _ip("netns", "del", namespace)
