"""The restricted unpickler: official files as numpy reads them, and nothing executed from any other."""

import os
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest

from budgetnet.data import unpickle
from budgetnet.data.unpickle import read_pickle


class Run:
    """Pickles as a call of a function: what an attacker would put in a file."""

    def __init__(self, function, *arguments) -> None:
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def test_an_official_file_is_read_as_numpy_itself_reads_it(tmp_path: Path, python2_pickle) -> None:
    data = np.random.default_rng(0).integers(0, 256, (5, 3072), dtype=np.uint8)
    content = python2_pickle({b"data": data, b"labels": [3, 1, 300], b"batch_label": b"x" * 300})
    (tmp_path / "batch").write_bytes(content)
    mine = read_pickle(tmp_path / "batch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's own name for the function in the file is deprecated
        numpys = pickle.loads(content, encoding="bytes")  # noqa: S301
    assert mine.keys() == numpys.keys()
    np.testing.assert_array_equal(mine[b"data"], numpys[b"data"])
    np.testing.assert_array_equal(mine[b"data"], data)
    assert (mine[b"labels"], mine[b"batch_label"]) == (numpys[b"labels"], numpys[b"batch_label"])


def test_the_name_of_numpy_2_is_known(tmp_path: Path, python2_pickle) -> None:
    content = python2_pickle({b"data": np.arange(6, dtype=np.uint8).reshape(2, 3)})
    (tmp_path / "batch").write_bytes(content.replace(b"numpy.core.", b"numpy._core."))
    np.testing.assert_array_equal(read_pickle(tmp_path / "batch")[b"data"], [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_executes_nothing(tmp_path: Path, protocol: int, refuses) -> None:
    marker, file = tmp_path / "executed", tmp_path / "data_batch_1"
    attacks = {
        "system": Run(os.system, f"touch {marker}"),
        "mkdir": Run(os.mkdir, str(marker)),
        "eval": Run(eval, f"open({str(marker)!r}, 'w')"),
        "getattr": Run(getattr, "text", "upper"),
    }
    for name, attack in attacks.items():
        file.write_bytes(pickle.dumps({"data": attack}, protocol=protocol))
        with refuses(file, name):
            read_pickle(file)
        assert not marker.exists()


def test_the_attacks_would_work_on_a_plain_unpickler(tmp_path: Path) -> None:
    """So the test above can fail."""
    marker = tmp_path / "executed"
    pickle.loads(pickle.dumps(Run(os.mkdir, str(marker))))  # noqa: S301
    assert marker.exists()


HOSTILE = {
    "a dotted name": b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.",
    "an unlisted numpy function": b"cnumpy\nload\n.",
    "state set on an allowed class": b"\x80\x02cnumpy\ndtype\nN}U\x05stateK\x01s\x86b.",
    "a persistent id": b"Pname\n.",
    "an extension code": b"\x80\x02\x82\x01.",
    "an array of objects": b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\n)R"
    b"(K\x01K\x01\x85cnumpy\ndtype\nU\x02O8\x85R\x89]K\x01atbs.",
    "an array shorter than its shape": b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\n)R"
    b"(K\x01K\x05\x85cnumpy\ndtype\nU\x02u1\x85R\x89U\x01xtbs.",
    "an array without state": b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\n)Rs.",
    "a huge memo index": b"\x80\x02}r\xff\xff\xff\x7f.",
    "a list": b"\x80\x02].",
    "nothing": b"",
    "noise": bytes(range(256)),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_forged_and_damaged_files_are_refused(tmp_path: Path, content: bytes, refuses) -> None:
    before = {name: vars(getattr(unpickle, name)).copy() for name in ("_Inert", "_Array", "_Dtype")}
    (tmp_path / "meta").write_bytes(content)
    with refuses(tmp_path / "meta", "download it again"):
        read_pickle(tmp_path / "meta")
    assert before == {name: dict(vars(getattr(unpickle, name))) for name in before}


def test_a_truncated_official_file_is_refused_wherever_it_was_cut(tmp_path: Path, python2_pickle, refuses) -> None:
    content = python2_pickle({b"data": np.zeros((1, 30), np.uint8), b"labels": [1]})
    for length in range(len(content)):
        (tmp_path / "batch").write_bytes(content[:length])
        with refuses(tmp_path / "batch"):
            read_pickle(tmp_path / "batch")


def test_a_missing_file_is_named(tmp_path: Path, refuses) -> None:
    with refuses(tmp_path / "no", "No such file"):
        read_pickle(tmp_path / "no")
