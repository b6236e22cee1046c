"""A step reads nothing from its device and makes nothing elsewhere; precision and compilation change no interface.

The meta device stands for an accelerator: its tensors have no values, so that reading one (`item`, `cpu`, `tolist`,
`bool`) raises an error. A device that answers its own `read` and `later` then counts how often a training reads.
"""

import copy
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import budgetnet
from budgetnet.data.augment import Augmentation
from budgetnet.errors import UserError
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.records import Kept
from budgetnet.spaces import resnet_fabric
from budgetnet.strategies.runner import Runner
from budgetnet.training.device import Device, Later
from budgetnet.training.fits import Course
from budgetnet.training.tasks import Task
from budgetnet.training.trainer import Trainer
from tests.small_runs import make_runner, mlp, short, vectors

IMAGES, SIZE, CLASSES = 160, 8, 3
STEPS = 50


@dataclasses.dataclass(frozen=True)
class Pretend(Device):
    """The meta device, whose values are made up when they are read."""

    name: str = "meta"
    reads: list[int] = dataclasses.field(default_factory=list)
    sent: list[torch.Size] = dataclasses.field(default_factory=list)

    def read(self, values: Any) -> list[float]:
        assert all(value.device.type == "meta" for value in values)
        self.reads.append(len(values))
        return [0.5] * len(values)

    def later(self, value: Tensor) -> Later:
        assert value.device.type == "meta"
        self.sent.append(value.shape)
        return Later(torch.linspace(1, 2, len(value)))


def images(device: Device, net: SuperNetwork) -> Any:
    pixels = torch.randint(0, 256, (IMAGES, 3, SIZE, SIZE), dtype=torch.uint8)
    source = pixels, torch.randint(CLASSES, (IMAGES,))
    return device.feed(source, 4, 0, Augmentation(1, flip=True), net.memory_format)


def fabric(device: Device) -> SuperNetwork:
    return device.place(resnet_fabric(width=2, channels=2, classes=CLASSES, input_shape=(3, SIZE, SIZE)))


def searching(device: Pretend, net: SuperNetwork, feed: Any, sink: Kept) -> tuple[Runner, Course]:
    """The search phase for 50 steps in epochs of 40, with records every other step and without validation."""
    runner = make_runner(["macs<=60%"], net, short(batch_size=4, groups=2))
    net.to("meta")
    runner.trainer = Trainer(Task(), feed, feed, runner.trainer.optimizer, device, sink)
    phase = next(phase for phase in runner.phases if phase.name == "search")
    course = phase.course(runner.state, runner.trainer)  # type: ignore[attr-defined]
    return runner, dataclasses.replace(course, steps=STEPS, look=dict)


@pytest.mark.parametrize("architectures", [0, 1])
def test_a_search_reads_once_a_record_and_nothing_between(architectures: int) -> None:
    device, sink = Pretend(architectures=architectures), Kept()
    runner, course = searching(device, mlp(2), device.feed(vectors(160), 4, 0), sink)
    state = runner.state
    state.fit = runner.trainer.begin(state.net)
    before = state.searching.distribution.logits.detach().clone()
    runner.trainer.fit(course, state.fit, state)
    records = [record for record in sink.records if record.kind in ("step", "epoch")]
    assert len(records) >= STEPS // 2
    assert len(device.reads) <= len(records)
    assert sum(device.reads) >= 2 * STEPS, "the losses and metrics of all steps were read"
    assert len(device.sent) == STEPS
    assert set(device.sent) == {torch.Size([2])}, "what Γ needs: a loss for each group"
    assert not torch.equal(state.searching.distribution.logits, before), "Γ has learned"
    assert len(state.searching.waiting) == device.lag == 1, "from all steps but the last"


class Created(TorchDispatchMode):
    """Operations that gave a tensor on the CPU; `detach` gives no new one."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, tuple | list) else (out,):
            if isinstance(value, Tensor) and value.device.type == "cpu" and func is not torch.ops.aten.detach.default:
                self.found.append(str(func))
        return out


def test_a_step_makes_no_tensor_on_the_cpu() -> None:
    device, net = Pretend(), fabric(Device())
    runner, _ = searching(device, net, images(device, net), Kept())
    trainer = runner.trainer
    gates = net.graph.full.gates()[None].repeat(4, 1)
    gates[::2, 0] = False  # rows that are no neighbours: edges read theirs by index
    batch = next(trainer.train.training(0))
    assert batch[0].device.type == batch[1].device.type == "meta"
    optimizer = trainer.optimizer(net)

    def step() -> None:
        losses = trainer.task.group_losses(trainer.outputs(net, batch[0], gates), batch[1], 4)
        losses.mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    step()  # makes the plan, which stays on the device
    with Created() as created:
        step()
    assert created.found == []


def test_batches_of_data_on_a_device_are_made_there() -> None:
    device = Pretend()
    feed = images(device, fabric(Device()))
    assert feed.split.inputs.device.type == "meta"
    with Created() as created:
        next(feed.training(0))
    drawn = {"aten.randint", "aten.rand", "aten.randperm", "aten.lt", "aten.bitwise_and"}
    heavy = [name for name in created.found if name.rpartition(".")[0] not in drawn]
    assert all("select" in name or "alias" in name or "clone" in name for name in heavy), heavy


def test_losses_that_come_late_teach_the_same_from_the_distribution_they_were_drawn_from() -> None:
    """Γ after three late updates, by hand: each gradient at the Γ of its draw, applied one update later."""
    runner = make_runner()
    policy = runner.state.searching
    policy.multipliers = []
    policy.budgets = ()
    distribution, rate = policy.distribution, policy.settings.rate
    gates = [distribution.sample(4, torch.Generator().manual_seed(i), connected=True) for i in range(3)]
    losses = [torch.tensor([1.0, 2.0, 4.0, 3.0]).roll(i) for i in range(3)]
    expected = [distribution.logits.detach().clone()]
    pending: list[Tensor] = []
    for draw, loss in zip(gates, losses, strict=True):
        logits = expected[-1].clone().requires_grad_()
        advantage = (loss - loss.mean()).double() * 4 / 3
        advantage = advantage / (advantage.std() + 1e-8)
        (distribution.log_prob(draw.gates, logits) * advantage.float()).sum().backward()  # type: ignore[no-untyped-call]
        assert logits.grad is not None
        pending.append(logits.grad)
        if len(pending) > 1:
            expected.append(expected[-1] - rate * pending.pop(0))
        policy.update(draw, loss, device=Pretend())
    torch.testing.assert_close(distribution.logits.detach(), expected[-1])
    saved = copy.deepcopy(policy.state_dict())
    policy.catch_up()
    torch.testing.assert_close(distribution.logits.detach(), expected[-1] - rate * pending[0])
    after = distribution.logits.detach().clone()
    policy.load_state_dict(saved)
    policy.catch_up()
    assert torch.equal(distribution.logits, after), "what had not arrived is a part of a checkpoint"


def test_bf16_ends_certified_with_an_fp32_network(tmp_path: Path) -> None:
    seen: set[torch.dtype] = set()

    class Watched(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            out = super().forward(x)
            seen.add(out.dtype)
            return out

    net = mlp()
    net.head = Watched(net.head.in_features, net.head.out_features)  # type: ignore[arg-type]
    result = budgetnet.search(
        net,
        vectors(160),
        vectors(64, 1),
        budgets="macs<=60%",
        recipe=short(),
        out=tmp_path / "run",
        precision="bf16",
        device="cpu",
        quiet=True,
    )
    assert torch.bfloat16 in seen
    assert result.certificate is not None
    assert result.certificate.holds
    assert {value.dtype for value in result.model.state_dict().values()} <= {torch.float32, torch.int64}
    assert result.summary.validation_score > 0.8
    assert {value.dtype for value in net.state_dict().values()} <= {torch.float32, torch.int64}


def test_fixed_networks_are_compiled_once_and_super_networks_never(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[nn.Module] = []

    def compile_(module: nn.Module, **options: Any) -> nn.Module:
        assert options == {"dynamic": False}
        compiled.append(module)
        return module

    monkeypatch.setattr(torch, "compile", compile_)
    runner = make_runner(recipe=short(racers=1), device=Device(compiled=True))
    outcome = runner.run()
    assert compiled == [outcome.model]


@contextmanager
def refusal(*words: str) -> Iterator[None]:
    with pytest.raises(UserError) as caught:
        yield
    assert all(word in str(caught.value) for word in words), caught.value


def test_devices_and_precisions_that_do_not_exist_are_refused_in_one_sentence() -> None:
    assert Device.chosen("cpu") == Device()
    assert Device.chosen("auto").name == ("cpu" if not torch.accelerator.is_available() else Device.chosen("auto").name)
    for name in ("tpu", "cuda:", "cuda:x", "cpu;", "auto:1"):
        with refusal(f"no device {name!r}", "cuda:1"):
            Device.chosen(name)
    with refusal("no precision 'int4'", "bf16"):
        Device.chosen("cpu", "int4")
    if not torch.accelerator.is_available():
        with refusal("no CUDA device here", "--device cpu"):
            Device.chosen("cuda:1")
