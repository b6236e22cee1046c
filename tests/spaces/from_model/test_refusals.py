"""Models and inputs that cannot be converted: each is refused with the place and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import budgetnet
from budgetnet.errors import UserError
from budgetnet.spaces.from_model import from_model
from tests.models import MODELS, table


class Model(nn.Module):
    """An MLP with something in the middle of it."""

    def __init__(self, middle: nn.Module | None = None, end: Callable[[Tensor], Any] = lambda x: x) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(7, 16), nn.Linear(16, 2)
        self.middle, self.end = middle or nn.ReLU(), end

    def forward(self, x: Tensor) -> Any:
        return self.end(self.last(self.middle(self.first(x))))


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += x.mean()
        return torch.relu(x) + self.calls


class Writing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(x)
        y[:, :3] = 0
        return y


class DropPath(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.rand(x.shape[0], 1) > 0.1) if self.training else x


class Noisy(nn.Module):
    """Does something else in evaluation, without random numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) if self.training else torch.relu(x) * 0.5


class Counted(nn.Module):
    """Takes two examples, whatever it is given."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x.view(2, 16))


X = torch.randn(4, 7)
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no module": (lambda: from_model(torch.relu, X), "takes an nn.Module"),  # type: ignore[arg-type]
    "control flow": (lambda: from_model(Model(Branching()), X), r"Branching.forward.*middle.*torch\.where"),
    "several outputs": (
        lambda: from_model(Model(end=lambda x: (x, x)), X),
        "^Model gives tuple, not one tensor.*wrap it",
    ),
    "state between calls": (lambda: from_model(Model(Remembering()), X), r"middle \(Remembering\) keeps state.*calls"),
    "writes into a part": (lambda: from_model(Model(Writing()), X), r"middle \(Writing\) writes in place"),
    "random numbers": (
        lambda: from_model(Model(DropPath()), X),
        r"middle \(DropPath\) draws random numbers.*nn.Dropout",
    ),
    "other in evaluation": (lambda: from_model(Model(Noisy()), X), "in evaluation mode Model computes something else"),
    "fixed batch": (lambda: from_model(Model(Counted()), X), r"Counted.forward \(middle\).*batch size.*-1"),
    "half precision": (
        lambda: from_model(table().half(), X.half()),
        r"0.weight of Sequential is torch.float16.*float\(\)",
    ),
    "another device": (lambda: from_model(table().to("meta"), X), "inputs are on cpu, 0.weight .* is on meta"),
    "lazy": (lambda: from_model(nn.Sequential(nn.LazyLinear(3)), X), "0.weight .*has no shape yet"),
    "inputs of another kind": (lambda: from_model(table(), 3), "a tensor, or a tuple or dict"),  # type: ignore[arg-type]
    "no examples": (lambda: from_model(table(), X[:0]), "at least one example"),
    "unequal batches": (lambda: from_model(table(), (X, X[:2])), "unequal batch sizes"),
    "no tensor": (lambda: from_model(table(), (X, 3)), "x1 is int"),  # type: ignore[arg-type]
    "wrong shape": (
        lambda: from_model(table(), torch.randn(4, 6)),
        r"cannot take the example inputs \(2×6\) in Linear.forward \(0\)",
    ),
    "unknown ignore": (
        lambda: from_model(table(), X, ignore=["nothing"]),
        "'nothing', which is no module of Sequential",
    ),
    "close ignore": (lambda: from_model(Model(), X, ignore=["firs"]), "did you mean first"),
    "ignore is a text": (lambda: from_model(Model(), X, ignore="first"), "a list of names"),
    "one slice": (lambda: from_model(table(), X, slices=1), "slices=1"),
    "round_to": (lambda: from_model(table(), X, round_to=0), "round_to=0"),
    "nothing to choose": (lambda: from_model(nn.Sequential(nn.Linear(7, 2)), X), "nothing in the model can be dropped"),
    "all ignored": (lambda: from_model(Model(), X, ignore=["first"]), "nothing in the model"),
    "other inputs": (lambda: from_model(table(), X)({"a": X}), "takes the inputs x, not a"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_converted_is_refused(case: str, capfd: pytest.CaptureFixture[str]) -> None:
    """In one sentence: torch's exporter prints nothing besides."""
    attempt, sentence = WRONG[case]
    with pytest.raises(UserError, match=sentence) as refused:
        attempt()
    assert "\n" not in str(refused.value)
    assert capfd.readouterr() == ("", "")


class Named(nn.Module):
    """Gives a dict, as many libraries do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = table()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.net(x), "other": x}


def test_what_is_understood() -> None:
    """A dict with logits, a batch of one, evaluation mode, integer inputs: no refusal."""
    model = Named().eval()
    net = from_model(model, {"x": X[:1]}, name="mine")
    assert net.name == "mine"
    assert not net.training
    assert not model.training
    assert torch.allclose(net({"x": X}), model(X)["logits"], atol=1e-6)


class Tied(nn.Module):
    """The output layer has the embedding's weights, and both blocks are one."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.block = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
        self.other = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
        self.out = nn.Linear(8, 11, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        y = self.embed(x)
        y = y + self.block(y)
        y = y + self.other(y)
        return self.out(y + self.block(y))


def test_tied_weights_stay_tied() -> None:
    model = Tied()
    net = from_model(model, torch.randint(0, 11, (2, 3)))
    chosen = {edge.name.partition("[")[0] for edge in net.graph.edges if not edge.fixed}
    assert chosen == {"other.0", "other.branch"}
    assert sum(p.numel() for p in net.parameters()) == sum(p.numel() for p in model.parameters())
    small = budgetnet.extract(net, net.graph.full)
    assert sum(p.numel() for p in small.parameters()) == sum(p.numel() for p in model.parameters())
    x = torch.randint(0, 11, (4, 3))
    assert torch.allclose(small(x), model(x), atol=1e-6)


def test_search_points_to_from_model() -> None:
    with pytest.raises(UserError, match=r"is not a super network.*from_model"):
        budgetnet.search(table(), [], [], budgets=["macs<=50%"])  # type: ignore[arg-type]


def test_units_follow_slices_and_round_to() -> None:
    units = {8: 8, 3: 3}
    for slices, count in units.items():
        net = from_model(nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 2)), X, slices=slices)
        assert len(net.graph.bundles["0"]) == count
    net = from_model(nn.Sequential(nn.Linear(7, 40), nn.ReLU(), nn.Linear(40, 2)), X, round_to=16)
    region = net.edge_modules[0]
    assert [size % 16 for size in region.axes[0].sizes[:-1]] == [0]


def test_describe_names_what_was_found() -> None:
    text = str(from_model(Model(), X, slices=4).describe())
    assert "first" in text
    assert "bundle" in text
    assert "100 % of the multiply-adds can be dropped or narrowed" in text


def test_describe_shows_what_goes_with_a_branch() -> None:
    """The rows of branches have the work of everything that is dead without them, though it is in other rows."""
    net = from_model(MODELS["resnet"][0](), MODELS["resnet"][1](2))
    found = net.describe()
    branches = [row for row in found.rows if row.kind == "branch"]
    assert len(branches) == 3
    for row in branches:
        without = torch.tensor([edge.name != row.place for edge in net.graph.edges])
        small = budgetnet.extract(net, net.graph.architecture(without))
        assert row.goes is not None
        assert row.goes[1] == found.params - sum(p.numel() for p in small.parameters())
        assert 0 < row.goes[0] < found.macs


def test_weights_are_trained_unless_said_otherwise_and_images_lie_channels_last() -> None:
    assert from_model(table(), X).trained
    assert not from_model(table(), X, trained=False).trained
    formats = {name: from_model(MODELS[name][0](), MODELS[name][1](2)).memory_format for name in ("resnet", "vit")}
    assert formats == {"resnet": torch.channels_last, "vit": torch.contiguous_format}
