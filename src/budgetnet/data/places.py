"""Where the official files of a data set are on this machine."""

from __future__ import annotations

from pathlib import Path

from budgetnet.data.download import ARCHIVES, download
from budgetnet.errors import UserError


def locate(
    name: str,
    root: Path | None,
    folders: tuple[str, ...],
    files: tuple[str, ...],
    fetch: bool = False,
) -> Path:
    """The folder, one of root/`folders` or the root itself, that holds all of `files` (also as .gz)."""
    if root is None:
        raise UserError(
            f"data set {name} needs a data folder; "
            f"give --data-root DIR or set BUDGETNET_DATA, {_remedy(name, folders)}."
        )
    candidates = [*(root / folder for folder in folders), root]
    found = _complete(candidates, files)
    if found is None and fetch:
        download(name, root)
        found = _complete(candidates, files)
    if found is None:
        raise UserError(_missing(name, candidates, files, folders))
    return found


def _complete(candidates: list[Path], files: tuple[str, ...]) -> Path | None:
    return next((folder for folder in candidates if not _absent(folder, files)), None)


def _absent(folder: Path, files: tuple[str, ...]) -> list[str]:
    return [file for file in files if not ((folder / file).exists() or (folder / f"{file}.gz").exists())]


def _missing(name: str, candidates: list[Path], files: tuple[str, ...], folders: tuple[str, ...]) -> str:
    root = candidates[-1]
    if not root.is_dir():
        return f"data folder {root} does not exist; correct --data-root or BUDGETNET_DATA, {_remedy(name, folders)}."
    partial = next((folder for folder in candidates[:-1] if folder.is_dir()), None)
    what = "no files" if partial is None else f"no {', '.join(_absent(partial, files))}"
    return f"data set {name}: {what} in {partial or candidates[0]}; check --data-root, {_remedy(name, folders)}."


def _remedy(name: str, folders: tuple[str, ...]) -> str:
    place = f"put the official files in {folders[0]} inside it"
    return f"{place}, or let {name}:download=true fetch them" if name in ARCHIVES else place
