"""One configuration, from Python, TOML and JSON; what is refused and how."""

import math
from pathlib import Path
from typing import Any

import pytest

from budgetnet.errors import UserError
from budgetnet.runs.config import Config, duration, from_mapping, from_toml
from budgetnet.strategies.sampling import PER_EXAMPLE


def test_it_survives_json_and_back() -> None:
    config = Config(budgets=("macs<=1M", "steps(2)<=9"), epochs=2.5, groups=4, max_time=90.0, data_root="there")
    values = {key: list(v) if isinstance(v, tuple) else v for key, v in config.to_dict().items()}
    assert from_mapping(values, "file") == config


def test_toml_is_another_face_of_it(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        'space = "neural-fabric"\nbudgets = ["macs<=1M"]\nepochs = 3\nmax-time = "1h30m"\nbatch_size = 16\n'
    )
    config = from_mapping(from_toml(path), str(path))
    assert (config.space, config.budgets, config.epochs, config.max_time, config.batch_size) == (
        "neural-fabric",
        ("macs<=1M",),
        3.0,
        5400.0,
        16,
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800), ("1h30m", 5400), ("90s", 90), ("90", 90), ("1.5h", 5400), ("1m30s", 90)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "30 minutes", "m", "-5m", "5m1h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is not a duration"):
        duration(text)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"colour": "red"}, "'colour' is not a setting"),
        ({"epochs": "many"}, "epochs is a text, not a number; correct it"),
        ({"epochs": True}, "epochs is true or false, not a number"),
        ({"groups": 2.5}, "groups is a number, not a whole number"),
        ({"groups": 0}, "groups 0"),
        ({"groups": 1}, "no policy gradient"),
        ({"batch_size": 1}, "no policy gradient"),
        ({"batch-size": -3}, "batch-size -3"),
        ({"threads": 0}, "threads 0"),
        ({"max_time": 0.0}, "max-time 0.0"),
        ({"max_time": math.inf}, "max_time is inf, not a finite number"),
        ({"max_time": "soon"}, "not a duration"),
        ({"penalty": -1.0}, "penalty -1.0"),
        ({"penalty": math.nan}, "penalty is nan"),
        ({"penalty": math.inf}, "penalty is inf"),
        ({"threads": 1_000_000}, "1000000 threads are too many"),
        ({"seed": -1}, "seed -1"),
        ({"seed": 2**70}, "seed"),
        ({"device": "abacus"}, "'abacus'"),
        ({"budgets": []}, "no budget"),
        ({"budgets": [3]}, "budgets[0] is a whole number, not a text"),
        ({"space": ["a"]}, "space is a list, not a text"),
        ({"recipe": {"lr": 1}}, "recipe is an object with fields, not a text"),
    ],
)
def test_bad_values_are_refused_by_name(values: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as error:
        from_mapping(values, "run.toml")
    assert said in str(error.value)


@pytest.mark.parametrize("content", [b"epochs = ", b"\xff\xfe\x00", b"a = 1\na = 2"])
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.toml").write_bytes(content)
    with pytest.raises(UserError, match=r"is not (TOML|UTF-8 text)"):
        from_toml(tmp_path / "run.toml")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        from_toml(tmp_path / "none.toml")
    with pytest.raises(UserError, match="cannot be read"):
        from_toml(tmp_path)


def test_the_recipe_takes_what_the_configuration_changes() -> None:
    recipe = Config(data="cifar10", epochs=4, groups=5, batch_size=10, penalty=3.0).make_recipe("classification")
    assert (recipe.finish_epochs, recipe.groups, recipe.batch_size, recipe.penalty) == (4, 5, 10, 3.0)
    assert Config(recipe="paper").make_recipe("classification").groups == PER_EXAMPLE
    assert Config(recipe="paper", batch_size=8).make_recipe("classification").groups == PER_EXAMPLE
    assert Config(batch_size=4).make_recipe("classification").groups == 4
    fixed = Config(architecture="full", budgets=(), epochs=4).make_recipe("classification")
    assert (fixed.warmup_epochs, fixed.search_epochs, fixed.finish_epochs) == (0, 0, 4)
    with pytest.raises(UserError, match="no recipe 'best'"):
        Config(recipe="best").make_recipe("classification")
