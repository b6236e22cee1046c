"""What a meter refuses to load: ONNX files that name other files, or operators that are not ONNX's own.

The file is walked as protocol buffers say, with the standard library alone: the device may not have the package onnx.
"""

from __future__ import annotations

from collections.abc import Iterator

OPERATORS = (b"", b"ai.onnx")
"""The domains whose operators are part of ONNX itself; none of these reads a file."""
DEPTH = 32
"""How deep messages may lie in each other: a sub-graph is three deeper than the graph that it is in."""


class Refused(Exception):  # noqa: N818 (it is an answer, not a failure)
    """A request that the meter does not serve, as a sentence that holds nothing of the request."""


# For each kind of message the fields that hold messages to be walked, by their numbers in onnx.proto.
_MESSAGES: dict[str, dict[int, str]] = {
    "model": {7: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
_TRAINING, _FUNCTIONS, _GRAPH, _DOMAIN = 20, 25, 7, 7
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14


def screen(model: bytes) -> None:
    """Refuses a model with external data, with functions of its own, or with operators that are not ONNX's.

    Args:
        model: the bytes of an ONNX file, from anybody.

    Raises:
        Refused: with a sentence that says why.
    """
    if not any(number == _GRAPH for number, _ in _fields(memoryview(model))):
        raise Refused("this is not an ONNX file")
    stack = [("model", memoryview(model), 0)]
    while stack:
        kind, data, depth = stack.pop()
        if depth > DEPTH:
            raise Refused("the sub-graphs of this ONNX file lie too deep in each other")
        for number, value in _fields(data):
            _check(kind, number, value)
            inner = _MESSAGES[kind].get(number)
            if inner is not None:
                stack.append((inner, _nested(value), depth + 1))


def _check(kind: str, number: int, value: memoryview | int) -> None:
    if kind == "tensor" and (number == _EXTERNAL_DATA or (number == _DATA_LOCATION and value != 0)):
        raise Refused("the meter takes no ONNX file with external data; put all tensors into the file")
    if kind == "model" and number in (_FUNCTIONS, _TRAINING):
        raise Refused("the meter takes no ONNX file with functions of its own or with training information")
    if kind == "node" and number == _DOMAIN and bytes(_nested(value)) not in OPERATORS:
        raise Refused("the meter takes only the operators of ONNX itself, no custom ones")


def _nested(value: memoryview | int) -> memoryview:
    if isinstance(value, int):
        raise Refused("this is not an ONNX file")
    return value


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Number and content of each field of a message; content of a fixed width is given as 0, since none is checked."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        if key >= 1 << 32:  # a reader that keeps 32 bits of it would see another field
            raise Refused("this is not an ONNX file")
        wire = key & 7
        value: memoryview | int = 0
        if wire == 0:
            value, place = _varint(data, place)
        elif wire == 2:
            length, place = _varint(data, place)
            value, place = data[place : place + length], place + length
        elif wire in (1, 5):
            place += 8 if wire == 1 else 4
        else:
            raise Refused("this is not an ONNX file")
        if place > len(data):
            raise Refused("this ONNX file is cut off")
        yield key >> 3, value


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(data) and shift < 70:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
    raise Refused("this is not an ONNX file")
