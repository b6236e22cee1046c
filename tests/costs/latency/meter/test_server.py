"""A real meter in a process of its own, and everything that must not harm it."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from budgetnet.costs.latency import runtimes, timing
from tests.meters import TOKEN, Meter, meter, request

SECRET = "word-that-must-not-be-logged"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meter]:
    limits = (
        "--max-megabytes",
        "2",
        "--max-seconds",
        "5",
        "--max-request-seconds",
        "2",
        "--max-memory-megabytes",
        "768",
    )
    with meter(tmp_path_factory.mktemp("meter"), *limits) as found:
        yield found
        # nothing that any of these tests sent has ended it, made it large, or left its words in the log
        assert found.process.poll() is None
        assert found.ask("GET", f"/{SECRET}", headers={"Authorization": SECRET})[0] == 401
        assert found.peak_bytes() < 200e6
        log = found.log.read_text()
        assert SECRET not in log
        assert TOKEN not in log
        assert "refused (401)" in log


@pytest.fixture(scope="module")
def reference() -> bytes:
    return runtimes.reference_file()


def model(nodes: list[onnx.NodeProto], initializers: list[onnx.TensorProto] = [], domain: str = "") -> bytes:  # noqa: B006
    """A model from x, any × 4, to y."""
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    graph = helper.make_graph(nodes, SECRET, [entry], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    graph.initializer.extend(initializers)
    opsets = [helper.make_opsetid("", 18), *([helper.make_opsetid(domain, 1)] if domain else [])]
    made: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return bytes(made.SerializeToString())


PLAIN = model([helper.make_node("Relu", ["x"], ["y"])])


def endless() -> bytes:
    """Multiplies its input by itself, without end."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Tanh", ["state"], ["next"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
        ],
    )
    constants = [
        numpy_helper.from_array(np.array(2**62), "turns"),
        numpy_helper.from_array(np.array(True), "true"),
    ]
    return model([helper.make_node("Loop", ["turns", "true", "x"], ["y"], body=body)], constants)


def large() -> bytes:
    """Makes a tensor of 4 GB from its input."""
    shape = [numpy_helper.from_array(np.array([1 << 28, 4]), "shape"), numpy_helper.from_array(np.array(0), "first")]
    nodes = [
        helper.make_node("Gather", ["x", "first"], ["row"], axis=0),
        helper.make_node("Expand", ["row", "shape"], ["wide"]),
        helper.make_node("Exp", ["wide"], ["y"]),
    ]
    return model(nodes, shape)


def external() -> bytes:
    tensor = numpy_helper.from_array(np.ones(4, np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", f"../../{SECRET}"
    return model([helper.make_node("Add", ["x", "w"], ["y"])], [tensor])


def test_a_network_is_measured_as_on_this_machine(running: Meter, reference: bytes) -> None:
    status, value = running.measure(reference, reference, seconds=0.3)
    assert status == 200
    series = timing.Series(*(np.array(value[name]) for name in ("network", "reference", "disturbed", "processor")))
    assert len(series) >= timing.PAIRS[0]
    # the reference against itself
    assert float(timing.ratio(series)) == pytest.approx(1, rel=0.25)
    assert float(timing.ratio(series.at(slice(None)))) > 0
    assert value["machine"]["cores"] >= 1
    assert set(value["machine"]["versions"]) == {"python", "numpy", "onnxruntime"}
    four = running.measure(reference, reference, seconds=0.3, batch=8)[1]
    larger = timing.Series(*(np.array(four[name]) for name in ("network", "reference", "disturbed", "processor")))
    assert float(timing.ratio(larger)) > 2.5, "eight images take longer than one"


def test_memory_of_a_larger_network_is_larger_by_its_weights(running: Meter, reference: bytes) -> None:
    found = []
    for side in (500, 1500):
        weights = (
            numpy_helper.from_array(np.ones((4, 1), np.float32), "w"),
            numpy_helper.from_array(np.zeros((side, 100), np.float32), "v"),
        )
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("ReduceSum", ["v"], ["b"], keepdims=0),
            helper.make_node("Mul", ["a", "b"], ["c"]),
            helper.make_node("Expand", ["c", "n"], ["d"]),
            helper.make_node("Exp", ["d"], ["e"]),
            helper.make_node("ReduceSum", ["e"], ["y"], keepdims=0),
        ]
        wide = numpy_helper.from_array(np.array([1, side * 4000]), "n")
        status, value = running.measure(model(nodes, [*weights, wide]), reference, what="memory")
        assert status == 200
        found.append(value["memory"])
    # two tensors of side × 4000 floats are held at once
    assert found[1] - found[0] == pytest.approx(2 * 4 * 1000 * 4000, rel=0.1)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": f"Bearer {SECRET}"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": "Bearer ü".encode().decode("latin-1")},
    ],
    ids=["none", "wrong", "scheme", "longer", "letters"],
)
def test_without_its_token_nothing_is_told(running: Meter, headers: dict[str, str]) -> None:
    for method, path, body in (("GET", "/machine", b""), ("POST", "/measure", PLAIN), ("GET", f"/{SECRET}", b"")):
        status, value, _ = running.ask(method, path, body, headers)
        assert status == 401
        assert set(value) == {"refused"}


def test_requests_that_are_none(running: Meter, reference: bytes) -> None:
    good = request(PLAIN, reference)
    fields = json.loads(good.partition(b"\n")[0])
    with_path = json.dumps({**fields, "path": f"/etc/{SECRET}"}).encode() + b"\n" + reference + PLAIN
    for method, path, body, headers, code in (
        ("GET", f"/../../etc/{SECRET}", b"", {}, 404),
        ("POST", f"/{SECRET}", good, {}, 404),
        ("PUT", "/measure", good, {}, 501),
        ("POST", "/measure", b"", {"Content-Length": SECRET}, 411),
        ("POST", "/measure", b"", {"Content-Length": "-5"}, 411),
        ("POST", "/measure", b"", {"Content-Length": str(3 << 20)}, 413),
        ("POST", "/measure", b"", {"Content-Length": "9" * 5000}, 411),
        ("POST", "/measure", b"", {"Transfer-Encoding": "chunked"}, 411),
        ("POST", "/measure", SECRET.encode() + b"\n" + good, {}, 422),
        ("POST", "/measure", b"[" * 4000 + b"\n", {}, 422),
        ("POST", "/measure", with_path, {}, 422),
        ("POST", "/measure", request(b"", reference), {}, 422),
        ("POST", "/measure", good[:-3], {}, 422),
        ("GET", "/machine", b"", {"X-Path": f"/etc/{SECRET}", "X-Original-URL": f"file:///{SECRET}"}, 200),
    ):
        before = len(running.log.read_text())
        status, value, _ = running.ask(method, path, body, {**running.headers, **headers})
        assert status == code, (path, headers, value)
        assert SECRET not in json.dumps(value)
        logged = running.log.read_text()[before:]
        assert (f"refused ({code})" if code != 200 else "described the machine") in logged
    assert running.ask("POST", "/measure", b"\0" * (3 << 20))[0] == 413, "a body that is really too large"


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"batch": 0}, "batch"),
        ({"batch": 10**9}, "batch"),
        ({"threads": -1}, "threads"),
        ({"seconds": math.inf}, "seconds"),
        ({"seconds": math.nan}, "seconds"),
        ({"rounds": 10**6}, "rounds"),
        ({"rounds": True}, "kind"),
        ({"what": SECRET}, "nothing else"),
        ({"provider": SECRET}, "provider"),
        ({"reference": 10**12}, "shorter"),
        ({"reference": -1}, "reference"),
    ],
)
def test_values_that_a_request_must_not_have(
    running: Meter, reference: bytes, changed: dict[str, object], word: str
) -> None:
    status, value, _ = running.ask("POST", "/measure", request(PLAIN, reference, **changed))
    assert status == 422
    assert word in value["refused"]
    assert SECRET not in value["refused"]


@pytest.mark.parametrize(
    ("network", "word"),
    [
        (external(), "external data"),
        (model([helper.make_node("Mine", ["x"], ["y"], domain=SECRET)], domain=SECRET), "custom"),
        (b"\x00garbage" * 100, "not an ONNX file|cut off"),
        (PLAIN[:-4], "cut off"),
        (model([helper.make_node("NoSuchOperator", ["x"], ["y"])]), "cannot load"),
        (endless(), "longer than"),
        (large(), "memory|could not be run"),
    ],
    ids=["external", "custom", "garbage", "cut", "unknown", "endless", "large"],
)
def test_networks_that_are_refused(running: Meter, reference: bytes, network: bytes, word: str) -> None:
    before = len(running.log.read_text())
    status, value = running.measure(network, reference)
    assert status == 422, value
    assert f"refused (422): {value['refused']}" in running.log.read_text()[before:]
    assert any(part in value["refused"] for part in word.split("|")), value
    assert SECRET not in value["refused"]
    assert running.measure(reference, reference)[0] == 200, "and the next one is measured"


def test_a_slow_body_and_slow_headers_are_cut_off(running: Meter, reference: bytes) -> None:
    head = f"POST /measure HTTP/1.0\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 9000\r\n"
    for sent in (head.encode() + b"\r\n", head.encode()):
        before = len(running.log.read_text())
        with running.connect() as connection:
            connection.sendall(sent)
            begin = time.monotonic()
            ended = False
            while not ended and time.monotonic() - begin < 20:
                try:
                    connection.sendall(b"x")
                    connection.settimeout(0.2)
                    ended = connection.recv(1000) == b""
                except TimeoutError:
                    continue
                except OSError:
                    ended = True
            assert ended
            assert 1 < time.monotonic() - begin < 10
            assert "cut off, it took too long" in running.log.read_text()[before:]
    assert running.measure(reference, reference)[0] == 200


def test_two_hundred_connections_at_once(running: Meter, reference: bytes) -> None:
    waiting: list[socket.socket] = [running.connect() for _ in range(200)]
    try:
        time.sleep(0.5)
        refused = 0
        for connection in waiting:
            connection.settimeout(0.01)
            try:
                refused += b"503" in connection.recv(100)
            except (TimeoutError, ConnectionResetError):
                continue
        assert refused > 100
        assert "turned away, too many connections" in running.log.read_text()
        assert running.process.poll() is None
    finally:
        for connection in waiting:
            connection.close()
    time.sleep(0.5)
    assert running.measure(reference, reference)[0] == 200


def test_one_measurement_at_a_time_and_a_client_that_leaves_frees_the_meter(running: Meter, reference: bytes) -> None:
    body = request(endless(), reference)
    with running.connect() as first:
        head = f"POST /measure HTTP/1.0\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n"
        first.sendall(head.encode() + body)
        time.sleep(0.5)
        status, value, headers = running.ask("POST", "/measure", request(reference, reference))
        assert status == 503
        assert int(headers["Retry-After"]) >= 1
        assert "somebody else" in value["refused"]
    begin = time.monotonic()
    while running.measure(reference, reference)[0] == 503:
        time.sleep(0.1)
        assert time.monotonic() - begin < 4, "the measurement of somebody who left goes on"


def test_lines_that_are_not_http(running: Meter) -> None:
    for sent in (b"\x16\x03\x01" + b"\0" * 200, SECRET.encode() * 9000 + b"\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\n"):
        with running.connect() as connection:
            connection.sendall(sent)
            with contextlib.suppress(OSError):  # the meter may have closed the connection already
                connection.shutdown(socket.SHUT_WR)
            try:
                answer = connection.recv(10_000)
            except ConnectionResetError:
                answer = b""
            assert SECRET.encode() not in answer
    many = {f"X-{number}": SECRET for number in range(200)}
    assert running.ask("GET", "/machine", headers={**running.headers, **many})[0] == 431
    assert running.ask("GET", "/machine")[0] == 200


def test_requests_at_the_same_time_from_many_threads(running: Meter, reference: bytes) -> None:
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(running.measure(reference, reference)[0])) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {200, 503}


def test_the_meter_leaves_no_file_behind(running: Meter) -> None:
    folder = Path(running.log).parent
    assert {path.name for path in folder.iterdir()} == {"meter.pyz", "torch.py", "log.txt"}
