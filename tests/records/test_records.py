"""Records: JSON lines both ways, torn files, and a sink that goes on where a checkpoint says."""

import math
from pathlib import Path

import pytest

from budgetnet.records.records import TIME_FIELDS, Fan, JsonLines, Kept, Record, read
from tests.training.test_checkpoint import limited


def record(step: int, kind: str = "step", **values: object) -> Record:
    return Record(kind, "search", step // 4, step, step / 10, {"loss": 1 / (step + 1), **values})


def test_a_record_is_one_line_and_comes_back() -> None:
    one = record(3, probabilities=[0.5, 0.25], name="a\nb")
    assert "\n" not in one.to_json()
    assert Record.from_json(one.to_json()) == one
    assert "time" in TIME_FIELDS


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_is_left_out(value: float) -> None:
    assert Record.from_json(record(1, cost=value, name="x").to_json()) == record(1, name="x")


def test_lines_are_appended_and_read(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path / "new" / "records.jsonl")
    records = [record(step) for step in range(6)]
    for one in records:
        sink.write(one)
    sink.close()
    assert read(tmp_path / "new" / "records.jsonl") == (records, True)


def test_what_is_not_a_step_can_be_read_at_once(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path / "records.jsonl")
    sink.write(record(0))
    sink.write(record(1, "epoch"))
    assert len(read(tmp_path / "records.jsonl")[0]) == 2
    sink.close()


def test_a_resumed_run_goes_on_from_the_position_of_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    sink = JsonLines(path)
    sink.write(record(0))
    position = sink.position
    assert position == path.stat().st_size
    sink.write(record(1))
    sink.write(record(2, "epoch"))
    sink.close()
    sink = JsonLines(path, position)
    sink.write(record(9))
    sink.close()
    assert [one.step for one in read(path)[0]] == [0, 9]


@pytest.mark.parametrize("tail", ['{"kind": "st', "3\n", "[]\n", '{"kind": "step"}\n', "\xff\n", "null\n", '"text"\n'])
def test_a_torn_or_strange_line_ends_the_reading(tmp_path: Path, tail: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(record(0).to_json().encode() + b"\n" + tail.encode("latin-1"))
    assert read(path) == ([record(0)], False)


def test_no_file_has_no_records(tmp_path: Path) -> None:
    assert read(tmp_path / "none.jsonl") == ([], False)


def test_a_fan_passes_on_to_all_and_closes_all(tmp_path: Path) -> None:
    one, other = Kept(), JsonLines(tmp_path / "records.jsonl")
    with Fan([one, other]) as fan:
        fan.write(record(5))
    assert one.records == read(tmp_path / "records.jsonl")[0] == [record(5)]
    with pytest.raises(ValueError, match="closed"):
        other.write(record(6, "epoch"))


def test_a_full_disk_is_said_in_a_sentence(tmp_path: Path) -> None:
    def work() -> None:
        sink = JsonLines(tmp_path / "records.jsonl")
        for step in range(1000):
            sink.write(record(step, "epoch"))

    said = limited(2000, work)
    assert said.startswith("UserError: ")
    assert "cannot be written" in said
    records, whole = read(tmp_path / "records.jsonl")
    assert not whole
    assert [one.step for one in records] == list(range(len(records)))
