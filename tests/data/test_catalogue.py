"""Names, options and the data folder, as a user writes them."""

from pathlib import Path

import pytest

from budgetnet.data import DATASETS, load
from budgetnet.data.options import OPTIONS, Options, divide, parse_options


@pytest.fixture(autouse=True)
def no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUDGETNET_DATA", raising=False)


@pytest.mark.parametrize("name", DATASETS)
def test_every_data_set_describes_itself_and_accepts_the_common_options(name: str) -> None:
    source = DATASETS[name]
    assert source.help
    assert {"size", "limit", "validation"} <= set(source.accepts)
    assert list(source.options) == list(source.accepts)
    assert all(option.help and option.expects for option in source.options.values())


def test_every_option_is_a_field_and_the_other_way_round() -> None:
    assert set(OPTIONS) == set(Options.__dataclass_fields__)


def test_options_are_parsed() -> None:
    text = "size=16,limit=30000,crop=0,flip=False,download=true,path=/a,b/c=d,grey=true"
    expected = Options(size=16, limit=30000, crop=0, flip=False, download=True, path=Path("/a,b/c=d"), grey=True)
    assert parse_options("x", text, tuple(OPTIONS)) == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("sizes=16", ["'sizes'", "size, limit"]),
        ("path=/x", ["'path'"]),
        ("size", ["'size'", "key=value"]),
        ("size=16,size=8", ["'size'", "twice"]),
        ("size=big", ["size=big", "whole number"]),
        ("size=", ["size=", "whole number"]),
        ("size=0", ["size=0", "at least 1"]),
        ("size=1.5", ["size=1.5", "whole number"]),
        ("limit=0", ["limit=0", "at least 1"]),
        ("limit=-5", ["limit=-5", "at least 1"]),
        ("validation=0", ["validation=0"]),
        ("crop=-1", ["crop=-1", "at least 0"]),
        ("flip=maybe", ["flip=maybe", "true or false"]),
        ("validation=7000", ["validation=7000", "7000 training images"]),
        ("validation=9999999", ["validation=9999999"]),
    ],
)
def test_bad_options_are_refused(options: str, words: list[str], refuses) -> None:
    with refuses(*words):
        load(f"embedded:{options}")


@pytest.mark.parametrize("spec", ["imagenet", "", "CIFAR10", "embedded size=3"])
def test_an_unknown_name_lists_the_known_ones(spec: str, refuses) -> None:
    with refuses(repr(spec), *DATASETS):
        load(spec)


def test_divide() -> None:
    assert divide(50000, 5000, None) == (45000, 45000)
    assert divide(50000, 5000, 30000) == (30000, 45000)
    assert divide(50000, 5000, 99999) == (45000, 45000)


OFFICIAL = {
    "cifar10": "cifar-10-batches-py",
    "cifar100": "cifar-100-python",
    "fashion-mnist": "fashion-mnist",
    "lfw-parts": "lfw-parts",
}


@pytest.mark.parametrize(("name", "folder"), OFFICIAL.items())
def test_missing_data_says_where_it_looked_and_what_to_do(name: str, folder: str, tmp_path: Path, refuses) -> None:
    download = [] if name == "lfw-parts" else [f"{name}:download=true"]
    with refuses("--data-root", "BUDGETNET_DATA", folder, *download):
        load(name)
    with refuses(tmp_path / "no", "does not exist", folder, *download):
        load(name, tmp_path / "no")
    with refuses(tmp_path / folder, "no files", *download):
        load(name, tmp_path)


def test_a_missing_file_is_named(cifar10, refuses) -> None:
    root, _, _ = cifar10
    (root / "cifar-10-batches-py" / "data_batch_4").unlink()
    with refuses(root / "cifar-10-batches-py", "data_batch_4"):
        load("cifar10", root)


def test_a_root_from_the_environment_that_does_not_exist(tmp_path: Path, monkeypatch, refuses) -> None:
    monkeypatch.setenv("BUDGETNET_DATA", str(tmp_path / "gone"))
    with refuses(tmp_path / "gone"):
        load("cifar10")
