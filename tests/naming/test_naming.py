"""Names that users write: built-in ones with options, and `package.module:name`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from budgetnet.errors import UserError
from budgetnet.naming import convert, keyword_arguments, load_object, own_names, split_name, written_options


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that exists only in the current folder."""
    name = "users_own_module"
    (tmp_path / f"{name}.py").write_text("def thing(net):\n    return 42\n\nnumber = 3\n")
    (tmp_path / "users_broken_module.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fabric", ("fabric", "")),
        ("fabric:", ("fabric", "")),
        ("fabric:width=3", ("fabric", "width=3")),
        ("fabric:width=3,task=a:b", ("fabric", "width=3,task=a:b")),
        ("fabrik:width=3", ("fabrik", "width=3")),
        ("my.module:build", ("my.module:build", "")),
        ("my.module:build:width=3", ("my.module:build", "width=3")),
        ("my.module:build:path=c:d", ("my.module:build", "path=c:d")),
    ],
)
def test_a_name_is_parted_from_its_options(text: str, expected: tuple[str, str]) -> None:
    assert split_name(text, {"fabric": 1}) == expected


def test_a_users_object_is_found_in_the_current_folder_and_the_path_is_put_back(user_module: str) -> None:
    before = list(sys.path)
    assert load_object(f"{user_module}:thing", "a cost", [], own_names(f"{user_module}:thing"))(None) == 42
    assert sys.path == before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("thing", ["'thing' is not a cost", "macs, steps", "package.module:name"]),
        ("no_such_module_anywhere:thing", ["no_such_module_anywhere", "cannot be imported"]),
        ("users_broken_module:thing", ["a_module_that_is_not_there", "cannot be imported"]),
        (":thing", ["':thing'", "cannot be imported"]),
        (".relative:thing", ["'.relative:thing'", "cannot be imported"]),
        ("users_own_module:nothing", ["'users_own_module'", "'nothing'"]),
        ("users_own_module:number", ["int", "must be callable"]),
    ],
)
def test_an_object_that_cannot_be_loaded_is_refused(user_module: str, name: str, words: list[str]) -> None:
    before = list(sys.path)
    with pytest.raises(UserError) as error:
        load_object(name, "a cost", ["macs", "steps"], own=[name])
    assert all(word in str(error.value) for word in words)
    assert sys.path == before


def build(width: int = 3, rate: float = 0.5, deep: bool = False, task: str = "a", classes: int = 2) -> None:
    """A builder with every kind of option."""


def test_options_are_converted_to_the_declared_types() -> None:
    found = keyword_arguments(build, "width=4, rate=1e-2,deep=yes,task=x y", "the space s")
    assert found == {"width": 4, "rate": 0.01, "deep": True, "task": "x y"}
    assert keyword_arguments(build, "", "the space s") == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("wide=4", ["the space s", "'wide=4'", "width, rate, deep, task"]),
        ("width", ["'width'", "name=value"]),
        ("classes=3", ["'classes=3'"]),
        ("width=wide", ["width of the space s", "a whole number", "'wide'"]),
        ("width=2.5", ["a whole number", "'2.5'"]),
        ("rate=fast", ["a number", "'fast'"]),
        ("deep=maybe", ["true or false", "'maybe'"]),
    ],
)
def test_an_option_that_does_not_exist_or_fit_is_refused(text: str, words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        keyword_arguments(build, text, "the space s", reserved=("classes",))
    assert all(word in str(error.value) for word in words)


def test_what_has_no_declared_type_has_that_of_its_default() -> None:
    def own(width=8, rate=0.5, deep=False, kind="wide", limit=None):  # type: ignore[no-untyped-def]
        return width, rate, deep, kind, limit

    text = "width=4,rate=2,deep=yes,kind=3,limit=5"
    assert own(**keyword_arguments(own, text, "the space s")) == (4, 2.0, True, "3", "5")
    with pytest.raises(UserError, match="width of the space s is a whole number, not 'wide'"):
        keyword_arguments(own, "width=wide", "the space s")


def test_text_stays_text() -> None:
    assert convert("12", str, "x") == "12"
    assert convert("12", int, "x") == 12
    assert convert("FALSE", bool, "x") is False


def test_one_parser_takes_all_options_apart() -> None:
    assert list(written_options("a=1, b = x y ,")) == [("a=1", "a", "1"), ("b = x y", "b", "x y")]
    assert list(written_options("4,kind=dfs,7", ["machines", "kind"])) == [
        ("4", "machines", "4"),
        ("kind=dfs", "kind", "dfs"),
        ("7", None, "7"),
    ]
    assert list(written_options("path=a,b, c,size=3", commas=True)) == [
        ("path=a,b, c", "path", "a,b, c"),
        ("size=3", "size", "3"),
    ]
    assert list(written_options("")) == []
