"""How to use a finished run: three pieces of code that work on its files."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from budgetnet.pictures.outline import Input, Outline
from budgetnet.records.folder import RunFiles
from budgetnet.records.results import DataDescription
from budgetnet.spaces import SPACES

MODEL = "model.onnx"


@dataclass(frozen=True)
class Block:
    """A title, what it is for, and the code."""

    title: str
    about: str
    code: str
    language: str


def usage(run: RunFiles, outline: Outline | None) -> list[Block]:
    """The three blocks; none for a run that is not finished."""
    if run.summary is None or run.data is None or not run.data.input_shape:
        return []
    folder, quoted = str(run.path), shlex.quote(str(run.path))
    several = outline.inputs if outline else ()
    return [
        Block(
            "From Python",
            "The network is an ordinary torch module; it takes inputs as your data have them.",
            _python(folder, run.data, several),
            "python",
        ),
        Block(
            "With ONNX Runtime",
            "The file is run and compared with its source before it is kept; it needs neither torch nor budgetnet.",
            f"budgetnet export {quoted} -o {MODEL}\npython - <<'END'\n{_onnx(run.data, several)}\nEND",
            "shell",
        ),
        Block(
            "Measured again",
            "On the machine where you type it; the exit code is 0 if every budget holds.",
            f"budgetnet certify {quoted}{_options(run)}{_budget(run)}",
            "shell",
        ),
    ]


def _python(folder: str, data: DataDescription, several: Sequence[Input]) -> str:
    lines = ["import budgetnet", "import torch", "", f"result = budgetnet.load({folder!r})"]
    if several:
        lines += ["inputs = {  # yours, in a batch of one", *(f"    {_torch(one)}" for one in several), "}"]
        lines.append("outputs = result.predict(inputs)")
    else:
        shape, pixels = ", ".join(map(str, (1, *data.input_shape))), data.scaling != "none"
        made = f"torch.zeros({shape}, dtype=torch.{data.input_dtype})"
        if data.input_dtype.startswith("float"):
            made = f"torch.rand({shape}){' * 255' if pixels else ''}"
        lines.append(f"{'images' if pixels else 'inputs'} = {made}  # yours, in a batch of one")
        lines.append(f"outputs = result.predict({'images' if pixels else 'inputs'})")
    known = data.classes and data.task == "classification"
    return "\n".join([*lines, "print(result.labels[int(outputs[0].argmax())])" if known else "print(outputs)"])


def _torch(one: Input) -> str:
    return f"{one.name!r}: torch.zeros({', '.join(map(str, (1, *one.shape)))}, dtype=torch.{one.dtype}),"


def _onnx(data: DataDescription, several: Sequence[Input]) -> str:
    lines = ["import numpy as np", "import onnxruntime", "", f'session = onnxruntime.InferenceSession("{MODEL}")']
    if several:
        values = [f"    {one.name!r}: np.zeros({(1, *one.shape)}, {one.dtype!r})," for one in several]
        lines += ["inputs = {", *values, "}"]
    else:
        lines.append("name = session.get_inputs()[0].name")
        lines.append(f"inputs = {{name: np.zeros({(1, *data.input_shape)}, {data.input_dtype!r})}}")
    return "\n".join([*lines, "print(session.run(None, inputs)[0])"])


def _options(run: RunFiles) -> str:
    """Code of the user's own, which no file may name, has to be named again."""
    space = str(run.settings.get("space", ""))
    own = bool(space) and space != "own" and space.partition(":")[0] not in SPACES
    return f" --space {shlex.quote(space)}" if own else ""


def _budget(run: RunFiles) -> str:
    """A baseline has no budget of its own to be measured against."""
    assert run.summary is not None
    return "" if run.summary.budgets else f" --budget 'macs<={run.summary.macs}'"
