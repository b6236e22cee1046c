"""Mutated run folders, checkpoints, model files, configurations, architecture files and texts: no traceback, no hang.

`python -m benchmarks.fuzz --cases 50000 --texts 10000` takes about a quarter of an hour on a free core; the tests run
the same cases with smaller numbers. A case is one file of a copied run changed, and one command that reads it.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from benchmarks._cases import Found, limited, quietly, run_case
from benchmarks._common import arguments, pin_threads, write_result
from benchmarks._mutations import bytes_of, text_of, value_of
from budgetnet.budgets.budget import parse
from budgetnet.cli.options import input_shape, whole_numbers
from budgetnet.costs import units
from budgetnet.data import load as load_data
from budgetnet.errors import UserError
from budgetnet.export.files import CHECKSUM, UNSEALED, sha256
from budgetnet.network.supernet import SuperNetwork
from budgetnet.runs.config import Config, duration, from_mapping
from budgetnet.runs.sweep.plan import make_plan
from budgetnet.spaces import build, resnet_fabric
from budgetnet.spaces.named import find_architecture

SPACE, DATA = "resnet-fabric:width=1,channels=2,groups=2", "embedded:size=8,limit=60"
SLOW, SLOW_SHARE = ("certify", "cost", "draw", "export", "report", "search", "sweep"), 0.04
CHECKPOINT = re.compile(r"(\d{8}-)[0-9a-f]{64}(\.checkpoint)")
BUDGETS = (
    "macs<=40.9M",
    "params<=60%",
    "steps(4,dfs)<=20",
    "latency(batch=1,threads=1)<=12ms",
    "size<=500kB",
    "peak_memory<=2MB",
    "file_size<=1MB",
    "package.module:energy<=3J",
    "macs ≤ 1e3",
)
Grammar = tuple[Callable[[str], object], tuple[str, ...]]
TRAP = "open('sprung', 'w')\ndef spring(*arguments, **options):\n    open('sprung', 'w')\n"


def make_run(folder: Path) -> Path:
    """A finished run with its checkpoint, its exports, an image, and a file of settings."""
    run = folder / "run"
    words = ["search", "--space", SPACE, "--data", DATA, "--epochs", "0.05", "--out", str(run), "--quiet"]
    code, said = quietly([*words, "--budget", "macs<=90%"])
    if code:
        raise RuntimeError(said)
    for kind in ("safetensors", "onnx"):
        code, said = quietly(["export", str(run), "--format", kind])
        if code:
            raise RuntimeError(said)
    from PIL import Image

    Image.new("L", (9, 7)).save(run / "image.png")
    (run / "settings.toml").write_text(f'space = "{SPACE}"\ndata = "{DATA}"\nbudgets = ["macs<=50%"]\nepochs = 1\n')
    (run / "report.html").unlink(missing_ok=True)
    (run / "network.pt2").unlink(missing_ok=True)
    return run


def resealed(data: bytes) -> bytes:
    """A model file with a seal that fits, as anybody can make it."""
    place = data.find(CHECKSUM.encode())
    start = next((i for i in range(place + len(CHECKSUM), place + len(CHECKSUM) + 6) if data[i : i + 1].isalnum()), -1)
    if place < 0 or start < 0:
        return data
    blank = data[:start] + UNSEALED.encode() + data[start + 64 :]
    return blank[:start] + sha256(blank).encode() + blank[start + 64 :]


def mutated(name: str, data: bytes, rng: random.Random) -> bytes:
    """A file as it may be after damage, or after somebody wrote into it with care."""
    if rng.random() < 0.3:
        return bytes_of(data, rng)
    if name.endswith(".json"):
        return json.dumps(value_of(json.loads(data), rng)).encode("utf-8", "surrogatepass")
    if name.endswith(".jsonl"):
        lines = data.decode().splitlines() or ["{}"]
        place = rng.randrange(len(lines))
        lines[place] = json.dumps(value_of(json.loads(lines[place]), rng))
        return "\n".join(lines).encode("utf-8", "surrogatepass")
    if name.endswith(".toml"):
        return text_of(data.decode(), rng).encode("utf-8", "surrogatepass")
    if name.endswith((".safetensors", ".checkpoint")):
        return resealed(_header_mutated(data, rng))
    return resealed(bytes_of(data, rng))


def _header_mutated(data: bytes, rng: random.Random) -> bytes:
    """The header of a safetensors file changed: shapes, offsets, and the values inside its texts."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    texts = header.get("__metadata__", {})
    key = rng.choice(sorted(texts)) if texts and rng.random() < 0.8 else None
    if key is None:
        header = value_of(header, rng)
    else:
        try:
            texts[key] = json.dumps(value_of(json.loads(texts[key]), rng))
        except ValueError:
            texts[key] = text_of(texts[key], rng)
    written = json.dumps(header).encode("utf-8", "surrogatepass")
    return len(written).to_bytes(8, "little") + written + data[8 + length :]


def commands(name: str, run: Path, out: Path) -> list[list[str]]:
    """The commands that read a file."""
    folder, image = str(run), str(run / "image.png")
    if name.startswith("model."):
        return [["predict", str(run / name), image], ["certify", str(run / name), "--budget", "macs<=1G"]]
    if name == "image.png":
        return [["predict", str(run / "model.safetensors"), image]]
    if name == "settings.toml":
        words = ["--out", str(out / "new"), "--quiet"]
        return [
            ["settings", str(run / name)],
            ["search", "--config", str(run / name), "--dry-run", *words],
            ["sweep", str(run / name), "--dry-run", *words],
        ]
    if name.endswith(".checkpoint"):
        return [["restore", folder], ["search", "--resume", "--out", folder, "--quiet", "--max-time", "1s"]]
    every = [["show", folder], ["runs", str(run.parent)], ["show", folder, "--json"], ["certify", folder]]
    if name in ("structure.json", "architecture.json", "weights.safetensors", "data.json", "config.json"):
        every.append(["load", folder])
    every.append(["report", folder, "-o", str(out / "a.html"), "--force"])
    every.append(["export", folder, "--format", "safetensors", "-o", str(out / "a.safetensors"), "--force"])
    every.append(["draw", folder, "-o", str(out / "a.svg"), "--force"])
    if name == "architecture.json":
        every.append(["cost", SPACE, "--architecture", str(run / name)])
    if name == "config.json":
        every.append(["search", "--resume", "--out", folder, "--quiet"])
    return every


def folders(made: Path, cases: int, seed: int, work: Path) -> Found:
    """Cases of mutated files; each leaves nothing behind outside its own folders."""
    rng, found = random.Random(seed), Found()
    run, out = work / "runs" / "run", work / "out"
    run.parent.mkdir(parents=True)
    shutil.copytree(made, run)
    out.mkdir()
    (work / "trap.py").write_text(TRAP)
    names = sorted(str(path.relative_to(made)) for path in made.rglob("*") if path.is_file() and path.name != ".lock")
    originals = {name: (made / name).read_bytes() for name in names}
    before = _seen(work)
    with contextlib.chdir(work):
        for number in range(cases):
            if number and number % 1000 == 0:
                print(f"{number} of {cases} files, {len(found.faults)} faults", file=sys.__stderr__, flush=True)
            name = rng.choice(names)
            changed = mutated(name, originals[name], rng)
            target = run / (_renamed(name, changed) if rng.random() < 0.7 else name)
            target.parent.mkdir(exist_ok=True)
            (run / name).unlink()
            target.write_bytes(changed)
            if name.endswith(".checkpoint"):
                (run / "summary.json").unlink()
            words = _chosen(commands(name, run, out), rng)
            run_case(words, found, f"{name}: {' '.join(words[:2])}")
            if _seen(work) != before:
                found.faults.append(f"{name}: {words} changed a file outside the run")
                before = _seen(work)
            if words[0] in ("search", "sweep"):
                shutil.rmtree(run)
                shutil.copytree(made, run)
                shutil.rmtree(out / "new", ignore_errors=True)
            else:
                target.unlink()
                for whole in {name, "summary.json"}:
                    (run / whole).write_bytes(originals[whole])
    return found


def _renamed(name: str, data: bytes) -> str:
    """A checkpoint is named by its content, which a hostile hand can compute, too."""
    return CHECKPOINT.sub(rf"\g<1>{sha256(data)}\g<2>", name)


def _chosen(every: list[list[str]], rng: random.Random) -> list[str]:
    """Mostly a quick command; one that builds or measures networks takes ten times as long."""
    quick = [words for words in every if words[0] not in SLOW]
    return rng.choice(every if rng.random() < SLOW_SHARE or not quick else quick)


def _seen(work: Path) -> list[tuple[str, int]]:
    return sorted((path.name, path.stat().st_size) for path in work.iterdir() if path.is_file())


def grammars() -> dict[str, Grammar]:
    """The texts that people write, the functions that read them, and examples to begin from."""
    net = resnet_fabric(1, 2, 2, input_shape=(1, 8, 8))
    known: dict[str, Grammar] = {
        "budget": (lambda text: _budget(text, net), BUDGETS),
        "space": (
            lambda text: build(text, (1, 8, 8), 10),
            (SPACE, "neural-fabric:width=2,scales=2", "a.b:c"),
        ),
        "data": (load_data, (DATA, "embedded:size=8", "folder:path=nowhere", "cifar10:limit=5")),
        "recipe": (lambda text: Config(recipe=text).make_recipe("classification"), ("fast", "paper", "fast:lr=0.1")),
        "duration": (duration, ("30m", "1h30m", "90s", "1.5h")),
        "shape": (input_shape, ("3x32x32", "8", "1×8×8")),
        "machines": (lambda text: whole_numbers(text, "--machines"), ("1,2,4", "16")),
        "unit": (lambda text: units.parse(text, "s"), ("12ms", "1.5 s", "3e-3")),
        "architecture": (lambda text: find_architecture(net, text), ("full", "resnet-6", "found.json")),
        "penalties": (_plan, ("0.1:10:5", "1:2:²", "0.1:10:999999999", "inf", "1", "nan")),
        "settings": (lambda text: from_mapping(dict.fromkeys(("epochs", "seed", "device"), text), "x"), ("3", "cpu")),
    }
    return known


def _budget(text: str, net: SuperNetwork) -> object:
    """A budget; a share of a latency would be measured, which takes longer than all other texts together."""
    return None if "latency" in text and "%" in text else parse(text, net)


def _plan(text: str) -> object:
    return make_plan({"penalties": [text], "budgets": ["macs<=3"], "recipes": ["paper"]}, "x")


def texts(count: int, seed: int) -> Found:
    """Mutated texts of every grammar: accepted, or refused in one sentence."""
    rng, found, known = random.Random(seed), Found(), grammars()
    for _ in range(count):
        name = rng.choice(sorted(known))
        read, examples = known[name]
        text = text_of(rng.choice(examples), rng)
        found.cases += 1
        start = time.perf_counter()
        try:
            with limited():
                read(text)
            found.codes["accepted"] += 1
        except UserError:
            found.codes["refused"] += 1
        except BaseException as error:  # anything else is a fault
            where = traceback.extract_tb(error.__traceback__)[-1]
            found.faults.append(
                f"{name} {text[:80]!r}: {type(error).__name__}: {error!s:.100} ({where.filename[-30:]}:{where.lineno})"
            )
        found.slowest = max(found.slowest, time.perf_counter() - start)
    return found


def main() -> int:
    """All cases; exit code 1 if one of them shows a fault."""
    sys.argv = [word for word in sys.argv if word != "--where"] + ["--where"] * ("--where" in sys.argv)
    options = arguments(__doc__, cases=50_000, texts=10_000, seed=0)
    pin_threads(1)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        on_files = folders(make_run(work / "made"), options.cases, options.seed, work / "work")
    on_texts = texts(options.texts, options.seed)
    faults = len(on_files.faults) + len(on_texts.faults)
    report = {"passed": not faults, "seeds": [options.seed], "files": on_files.report(), "texts": on_texts.report()}
    write_result("fuzz", report)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
