"""A finished run as people use it: predict, evaluate, export, load again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, fx

from budgetnet.budgets.budget import BudgetLike, as_budgets, parse_all
from budgetnet.budgets.certificate import Certificate, certify
from budgetnet.data.convert import as_tensor
from budgetnet.data.feeds import Feed, SplitFeed, make_feed
from budgetnet.data.nested import Nested, mapped, rows, select
from budgetnet.errors import UserError
from budgetnet.export import Description, Exported, export_network
from budgetnet.export.formats import FORMATS, Given, format_of
from budgetnet.naming import own_names
from budgetnet.network.graph import Architecture, Graph
from budgetnet.network.inputs import InputSpec
from budgetnet.network.supernet import SuperNetwork
from budgetnet.pictures.outline import FILE as GRAPH_FILE
from budgetnet.pictures.outline import Drawable, Outline
from budgetnet.records.environment import environment
from budgetnet.records.folder import RunFolder
from budgetnet.records.results import DataDescription, Summary
from budgetnet.runs.config import of_run
from budgetnet.runs.drawing import Drawing, drawable
from budgetnet.runs.stored import check_whole, measurable, open_stored, without_own_checksum
from budgetnet.training.evaluation import judge
from budgetnet.training.metrics import METRICS
from budgetnet.training.tasks import Task

PREDICTED = 256
"""Examples that are predicted at a time."""
COMPARED = 64
"""Real inputs on which an exported file is compared with its source."""


@dataclass(frozen=True, eq=False)
class Result:
    """A finished run.

    Attributes:
        network: The trained network, an ordinary module; it takes inputs as they were in training.
        architecture: Which edges of the super network it keeps.
        summary: Budgets, scores and times; a table when printed.
        certificate: The measured budgets.
        data: What the run was trained on.
        task: The loss, the metric and the forward pass.
        description: What an exported file says about itself.
        examples: Some inputs of the validation data, as they are; None for a run that was loaded.
        net: The super network, or what its folder says of it; None for a run of an older version.
    """

    network: fx.GraphModule
    architecture: Architecture
    summary: Summary
    certificate: Certificate | None
    data: DataDescription
    task: Task
    description: Description
    examples: Nested = field(default=None, repr=False)
    net: Drawable | None = field(default=None, repr=False)

    @property
    def met(self) -> bool:
        """Whether every budget is met."""
        return self.summary.met

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes; empty if there are none."""
        return self.data.classes

    @cached_property
    def model(self) -> fx.GraphModule:
        """The trained network as it is delivered: it takes what the data have, and scales images itself."""
        return with_scaling(self.network) if self.description.scaled else self.network

    def preprocess(self, inputs: Any) -> Nested:
        """Raw inputs, as the data have them, as the tensors that `model` takes.

        Args:
            inputs: A batch: a tensor, an array, a list of examples, or a tuple or dict of such.

        Returns:
            Tensors of the type that the network takes, one row per example.
        """
        values = mapped(as_tensor, inputs) if isinstance(inputs, dict | tuple) else as_tensor(_stacked(inputs))
        if not isinstance(values, Tensor):
            return values
        dtype, shape = self.description.dtype, self.description.input_shape
        if values.dim() != len(shape) + 1 or tuple(values.shape[1:]) != shape:
            raise UserError(
                f"the inputs have shape {tuple(values.shape)}; give a batch N×{'×'.join(map(str, shape))}, as the data"
            )
        if values.is_complex() or (values.is_floating_point() and not dtype.is_floating_point):
            raise UserError(f"the inputs are {values.dtype}; the network takes {self.description.input_dtype}")
        return values.to(dtype)

    def predict(self, inputs: Any) -> Tensor:
        """Outputs of the network for raw inputs.

        Args:
            inputs: A batch, as the data have it; see `preprocess`.

        Returns:
            One row per example: logits of classes, or values of a regression.
        """
        values, model = self.preprocess(inputs), self.model.eval()
        device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        found = []
        with torch.no_grad():
            for first in range(0, rows(values), PREDICTED):
                part = mapped(lambda leaf: leaf.to(device), select(values, slice(first, first + PREDICTED)))
                found.append(self.task.outputs(model, part).cpu())
        return torch.cat(found)

    def evaluate(self, data: Any) -> float:
        """The metric of the run on other data.

        Args:
            data: Inputs and targets in any form that `search` takes.

        Returns:
            The score.
        """
        if self.task.metric.name != self.data.metric.name:
            raise UserError(
                f"the metric {self.data.metric.name!r} of this run is a function of yours, which its folder does not "
                "hold; give it: load(run, metric=...)"
            )
        device = str(next((parameter.device for parameter in self.network.parameters()), torch.device("cpu")))
        return judge(self.network, self.task, make_feed(data, PREDICTED, 0, device=device).evaluation()).metric

    def export(self, path: str | Path, *, force: bool = False) -> Exported:
        """Writes the network as a file that needs no budgetnet; it takes what the data have.

        Args:
            path: The file; its suffix says the format: .onnx, .pt2 (a torch program) or .safetensors.
            force: Whether to replace a file that exists.

        Returns:
            The path, the checksum, and the largest difference from the source, on random and on real inputs.
        """
        path = Path(path)
        chosen = format_of(path.name)
        kind = next(name for name, known in FORMATS.items() if known is chosen)
        known = self.certificate.to_json() if self.certificate is not None else {}
        description = without_own_checksum(replace(self.description, certificate=known), path.name)
        return export_network(self.network, path, kind, description, self._examples(), force=force)

    def certify(self, budgets: Sequence[BudgetLike] | str | None = None) -> Certificate:
        """Measures the network as it is now: after further training, or on another machine.

        Args:
            budgets: Texts such as `"latency<=12ms"`; those of the run if not given.

        Returns:
            A certificate that was made afresh; the run's own stays as it was.
        """
        known = self.certificate.budgets if self.certificate is not None else ()
        before: list[BudgetLike] = [(entry.cost, entry.maximum) for entry in known]
        asked = before if budgets is None else as_budgets(budgets)
        if not asked:
            raise UserError('the run had no budget; give one, such as certify("latency<=12ms")')
        net, kept, whole = measurable(self.network, self.description)
        if whole:
            check_whole(asked, "its run")
        own = own_names(*(text for text in asked if isinstance(text, str)))
        example = self.examples if self.examples is not None else self._examples()
        limits = parse_all(asked, net, example=example, own=own)
        return certify(net, kept, limits, network=self.network, description=self.description, environment=environment())

    def _examples(self) -> Given:
        """Inputs as an exported file takes them."""
        spec: InputSpec | None = self.network.meta.get("inputs")
        if spec is not None and len(spec.names) > 1:
            known = mapped(lambda leaf: leaf[:COMPARED], self.examples) if self.examples is not None else None
            return spec.tensors(spec.example(2, "cpu") if known is None else known)
        if isinstance(self.examples, Tensor):
            return cast(Tensor, self.preprocess(self.examples[:COMPARED]))
        shape, dtype = self.description.input_shape, self.description.dtype
        if not dtype.is_floating_point:
            return torch.zeros((2, *shape), dtype=dtype)
        values = torch.rand(max(4, min(COMPARED, 2**20 // math.prod(shape))), *shape)
        return (values * 255 if self.description.scaled else values).to(dtype)

    @property
    def drawing(self) -> Drawing | None:
        """What was kept of the super network, as a picture; None where that is not known."""
        return None if self.net is None else Drawing(self.net, self.architecture)

    def _repr_html_(self) -> str:
        """For notebooks: the summary, the certificate, and a picture of what was kept."""
        parts = [self.summary, self.certificate, self.drawing if drawable() else None]
        return "".join(part._repr_html_() for part in parts if part is not None)


def raw_examples(feed: Feed) -> Nested:
    """Some inputs as the data have them."""
    if isinstance(feed, SplitFeed):
        return feed.split.take(min(COMPARED, len(feed.split))).inputs
    inputs = next(feed.evaluation())[0]
    return ((inputs + 1) * 127.5).round() if getattr(feed, "scaled", False) else inputs


def _stacked(inputs: Any) -> Any:
    """A list of examples as one batch."""
    if (
        isinstance(inputs, Sequence)
        and not isinstance(inputs, str)
        and inputs
        and not isinstance(inputs[0], int | float)
    ):
        return torch.stack([as_tensor(example) for example in inputs])
    return inputs


def with_scaling(network: fx.GraphModule) -> fx.GraphModule:
    """An extracted network that takes pixels from 0 to 255, of any type, and scales them to [−1, 1].

    It has the layers of the given one: whoever trains either of them further trains both.
    """
    graph = fx.Graph()
    graph.output(graph.graph_copy(network.graph, {}))
    scaled = fx.GraphModule(network, graph)
    entry = next(node for node in scaled.graph.nodes if node.op == "placeholder")
    users = list(entry.users)
    with scaled.graph.inserting_after(entry):
        value = scaled.graph.call_method("float", (entry,))
    with scaled.graph.inserting_after(value):
        divided = scaled.graph.call_function(torch.div, (value, 127.5))
    with scaled.graph.inserting_after(divided):
        shifted = scaled.graph.call_function(torch.sub, (divided, 1))
    for user in users:
        user.replace_input_with(entry, shifted)
    scaled.recompile()
    return scaled.train(network.training)


def load(
    run: str | Path,
    net: SuperNetwork | None = None,
    *,
    loss: Any = None,
    metric: Any = None,
    forward: Any = None,
) -> Result:
    """A finished run from its folder, without the code that made it.

    Args:
        run: The folder.
        net: The super network, built as it was: needed only if the network holds modules of your own classes.
        loss: The loss of the run, if it is a function of yours and you want to evaluate further data.
        metric: The metric, if it is a function of yours.
        forward: The forward pass, if it is a function of yours.

    Returns:
        The trained network, its architecture, the summary and the certificate.
    """
    folder = RunFolder(Path(run))
    summary, data = folder.summary(), folder.data()
    stored = open_stored(folder.path, net)
    known = metric if metric is not None else METRICS.get(data.metric.name)
    task = Task.of(loss, known, forward)
    described = Description.of_run(of_run(folder).space, stored.kept.to_json(), data.to_json(), {})
    drawn = _outline(folder, stored.kept.graph) if stored.whole else stored.net
    return Result(stored.network, stored.kept, summary, folder.certificate(), data, task, described, net=drawn)


def _outline(folder: RunFolder, graph: Graph) -> Outline | None:
    """What the folder says of the super network; None if it says nothing, or something about another graph."""
    with suppress(UserError):  # the picture is not what a run is opened for
        outline = Outline.from_json(folder.read_json(GRAPH_FILE), str(folder.path / GRAPH_FILE))
        return outline if outline.graph == graph else None
    return None
