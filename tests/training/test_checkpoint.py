"""Checkpoints survive what happens to disks and processes: torn files, flipped bytes, no room, kill -9."""

import math
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from budgetnet.errors import UserError
from budgetnet.training import checkpoint
from tests.random_graphs import examples
from tests.small_runs import forked

STATES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def equal(one: Any, other: Any) -> bool:
    """Equal values of equal types, bit for bit in tensors."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and bool(torch.equal(one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


@examples(60)
@given(STATES.filter(lambda state: state is not None))  # None stands for a checkpoint that is corrupt
def test_nested_values_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, state: Any) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    checkpoint.save(folder, 0, state)
    loaded, corrupt = checkpoint.load_latest(folder)
    assert equal(loaded, state)
    assert corrupt == []


def test_tensors_of_every_kind_come_back(tmp_path: Path) -> None:
    shared = torch.arange(6.0)
    state = {
        "floats": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
        "transposed": torch.arange(6).view(2, 3).T,
        "bools": torch.tensor([True, False]),
        "scalar": torch.tensor(3),
        "empty": torch.zeros(0, 2),
        "double": torch.tensor([math.inf, -0.0], dtype=torch.float64),
        "shared": [shared, shared[2:]],
        "random": torch.get_rng_state(),
        3: (torch.ones(1),),
    }
    checkpoint.save(tmp_path, 0, state)
    loaded, _ = checkpoint.load_latest(tmp_path)
    assert equal(loaded, state)


def test_a_network_and_its_optimizer_come_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    net(torch.randn(8, 3)).sum().backward()
    optimizer.step()
    state = {"net": dict(net.state_dict()), "optimizer": optimizer.state_dict()}
    checkpoint.save(tmp_path, 7, state)
    loaded, _ = checkpoint.load_latest(tmp_path)
    assert equal(loaded, {"net": dict(net.state_dict()), "optimizer": optimizer.state_dict()})
    optimizer.load_state_dict(loaded["optimizer"])


def test_what_a_checkpoint_cannot_hold_is_refused_and_nothing_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a checkpoint holds no function"):
        checkpoint.save(tmp_path, 0, {"code": lambda: 0})
    assert list(tmp_path.iterdir()) == []


def test_an_empty_or_missing_folder_has_no_state(tmp_path: Path) -> None:
    assert checkpoint.load_latest(tmp_path / "none") == (None, [])
    (tmp_path / "00000000-abc.checkpoint").write_bytes(b"not one of ours")
    assert checkpoint.load_latest(tmp_path) == (None, [])


def test_only_the_newest_two_are_kept(tmp_path: Path) -> None:
    paths = [checkpoint.save(tmp_path, number, {"number": number}) for number in range(5)]
    assert sorted(tmp_path.iterdir()) == paths[-2:]


def test_what_a_killed_process_left_is_cleared(tmp_path: Path) -> None:
    (tmp_path / ".writing-abc").write_bytes(b"half a checkpoint")
    path = checkpoint.save(tmp_path, 0, 1)
    assert list(tmp_path.iterdir()) == [path]


Damage = Callable[[bytes], bytes]
DAMAGES: dict[str, Damage] = {
    "emptied": lambda content: b"",
    "cut in the header": lambda content: content[:5],
    "cut in half": lambda content: content[: len(content) // 2],
    "cut by one byte": lambda content: content[:-1],
    "longer": lambda content: content + b"\0",
    "zeroed block": lambda content: content[:40] + bytes(64) + content[104:],
}
for _place in (0, 9, 200, -1):
    DAMAGES[f"bit flipped at {_place}"] = lambda content, place=_place: (  # type: ignore[misc]
        (flipped := bytearray(content)).__setitem__(place, content[place] ^ 4) or bytes(flipped)
    )


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path, damage: str) -> None:
    states = [{"weights": torch.full((50,), float(number)), "step": number} for number in range(3)]
    paths = [checkpoint.save(tmp_path, number, state) for number, state in enumerate(states)]
    paths[-1].write_bytes(DAMAGES[damage](paths[-1].read_bytes()))
    loaded, corrupt = checkpoint.load_latest(tmp_path)
    assert equal(loaded, states[-2])
    assert corrupt == [paths[-1]]


def test_a_run_goes_on_after_damage_and_its_new_checkpoints_count(tmp_path: Path) -> None:
    for number in range(5):
        checkpoint.save(tmp_path, number, {"number": number})
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-3])
    assert checkpoint.load_latest(tmp_path)[0] is None
    for number in range(2):
        checkpoint.save(tmp_path, number, {"number": number, "again": True})
        assert checkpoint.load_latest(tmp_path)[0] == {"number": number, "again": True}


def test_a_checkpoint_is_never_half_visible(tmp_path: Path) -> None:
    """A process killed at any moment of saving leaves only whole checkpoints, and at least one."""

    def save_for_ever() -> None:
        for number in range(1, 10_000):
            checkpoint.save(tmp_path, number, {"weights": torch.full((20_000,), float(number)), "number": number})

    checkpoint.save(tmp_path, 0, {"weights": torch.zeros(20_000), "number": 0})
    generator = torch.Generator().manual_seed(0)
    for _ in range(8):
        child = forked(save_for_ever)
        time.sleep(float(torch.rand((), generator=generator)) * 0.15)
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        state, corrupt = checkpoint.load_latest(tmp_path)
        assert corrupt == []
        assert bool((state["weights"] == state["number"]).all())


def limited(size: int, work: Callable[[], None]) -> str:
    """What `work` says, in a process of its own that cannot write files beyond a size, as on a full disk."""
    read, write = os.pipe()

    def attempt() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        try:
            work()
            said = "done"
        except BaseException as error:  # the parent judges it
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode())

    child = forked(attempt)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


def test_no_room_is_said_and_the_last_checkpoint_is_whole(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 0, {"number": 0})
    before = sorted(path.name for path in tmp_path.iterdir())
    said = limited(20_000, lambda: checkpoint.save(tmp_path, 1, {"weights": torch.zeros(20_000)}) and None)
    assert said.startswith("UserError: ")
    assert "cannot be written" in said
    assert "\n" not in said
    assert sorted(path.name for path in tmp_path.iterdir()) == before, "no litter"
    assert checkpoint.load_latest(tmp_path) == ({"number": 0}, [])


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot be written"):
        checkpoint.save(tmp_path / "file" / "checkpoints", 0, 1)


def test_a_writer_saves_what_the_state_was(tmp_path: Path) -> None:
    weights, sums = torch.zeros(1000), {"loss": 1.0}
    with checkpoint.Writer(tmp_path) as writer:
        for number in range(5):
            writer.save(number, {"weights": weights, "sums": sums, "number": number})
            weights += 1
            sums["loss"] += 1
            loaded, corrupt = checkpoint.load_latest(tmp_path)
            assert corrupt == []
            assert loaded is None or loaded["number"] in (number - 1, number), "one at a time is on its way"
        writer.wait()
        assert checkpoint.load_latest(tmp_path)[0]["number"] == 4
    loaded, _ = checkpoint.load_latest(tmp_path)
    assert equal(loaded, {"weights": torch.full((1000,), 4.0), "sums": {"loss": 5.0}, "number": 4})


def test_the_end_of_a_writer_waits_also_after_a_fault(tmp_path: Path) -> None:
    def interrupted() -> None:
        with checkpoint.Writer(tmp_path) as writer:
            writer.save(0, {"weights": torch.ones(300_000)})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert bool(checkpoint.load_latest(tmp_path)[0]["weights"].all())


@pytest.mark.parametrize("last", [True, False])
def test_what_a_writer_met_is_said_at_the_next_save_or_the_end(tmp_path: Path, last: bool) -> None:
    (tmp_path / "file").write_text("in the way")

    def saves() -> None:
        with checkpoint.Writer(tmp_path / "file" / "checkpoints") as writer:
            writer.save(0, 1)
            if not last:
                writer.save(1, 1)
                pytest.fail("the second save did not say that the first one failed")

    with pytest.raises(UserError, match="cannot be written"):
        saves()


def test_a_value_that_cannot_be_kept_is_refused_at_once(tmp_path: Path) -> None:
    with checkpoint.Writer(tmp_path) as writer, pytest.raises(TypeError, match="holds no set"):
        writer.save(0, {"odd": {1}})
