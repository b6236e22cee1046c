"""Make the environment of the tools that `benchmarks.trained` compares with: `python tools/make_peers.py FOLDER`.

They get a virtual environment of their own, with the torch of constraints.txt. A package that cannot be installed is
said, and left out: the benchmark then says which tool is missing.
"""

import subprocess
import sys
import venv
from pathlib import Path

CONSTRAINTS = Path(__file__).parent.parent / "constraints.txt"
BASE = ["torch==2.13.0", "numpy", "safetensors"]
TOOLS = {
    "Torch-Pruning": ["torch-pruning==1.6.1"],
    "ModelOpt": ["nvidia-modelopt==0.47.0", "requests", "huggingface_hub", "torchprofile==0.0.4"],
}
"""What each tool needs; ModelOpt's own requirements do not bring the last three."""


def install(python: Path, packages: list[str]) -> bool:
    """Installs packages into the environment of an interpreter; whether that worked."""
    command = [str(python), "-m", "pip", "install", "-q", "-c", str(CONSTRAINTS), *packages]
    return subprocess.run(command, check=False).returncode == 0


def main(folder: Path) -> int:
    """Makes the environment; the number of tools that are missing from it."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    if not install(python, BASE):
        sys.exit("torch cannot be installed: there is nothing to compare with")
    missing = [tool for tool, packages in TOOLS.items() if not install(python, packages)]
    for tool in missing:
        print(f"{tool} cannot be installed here and is left out", file=sys.stderr)
    print(f"python -m benchmarks.trained --peers {python}")
    return len(missing)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
