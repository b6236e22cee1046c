"""Pictures: read back as XML, and held against the graph, the architecture and the costs."""

from __future__ import annotations

import io
import itertools
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import nn

from budgetnet.costs import bind
from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.pictures.draw import LAYOUTS, Picture, layout, save, stylesheet, svg
from budgetnet.pictures.draw.geometry import Point, arrow, bow, flow
from budgetnet.pictures.draw.layout import RADIUS, Layout
from budgetnet.pictures.draw.theme import RAMP, ramp
from budgetnet.spaces import SPACES, build
from tests.random_graphs import examples, generator, graphs

SVG = "{http://www.w3.org/2000/svg}"
SPACE_TEXTS = [
    "resnet-fabric:width=1,channels=2",
    "resnet-fabric:width=3,channels=2",
    "resnet-fabric:width=4,channels=2,groups=2",
    "resnet-fabric:width=18,channels=2",
    "neural-fabric:width=1,scales=3,filters=2",
    "neural-fabric:width=4,scales=4,filters=2,task=segmentation",
    "neural-fabric:width=8,scales=6,filters=2",
]


def network(graph: Graph) -> SuperNetwork:
    return SuperNetwork(graph, {edge.name: nn.Identity() for edge in graph.edges}, input_shape=(3,))


def elements(text: str, kind: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(text)
    return [element for element in root.iter(f"{SVG}g") if kind in element.get("class", "").split()]


def curve_points(path: str) -> list[tuple[float, float]]:
    numbers = [float(number) for number in re.findall(r"-?[\d.]+(?:e-?\d+)?", path)]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def random_architecture(net: SuperNetwork, share: float, seed: int = 0) -> Architecture:
    for attempt in range(1000):
        gates = torch.rand(len(net.graph.edges), generator=generator(seed + attempt)) < share
        if net.graph.live(gates[None]).any():
            return net.graph.architecture(gates)
    raise AssertionError("nothing connects")


def check_layout(net: SuperNetwork, place: Layout) -> None:
    """Nothing overlaps, nothing is cut, every edge joins its two nodes."""
    assert set(place.nodes) == set(net.graph.nodes)
    for a, b in itertools.combinations(place.nodes.values(), 2):
        apart_x = abs(a.at.x - b.at.x) - a.half_width - b.half_width
        apart_y = abs(a.at.y - b.at.y) - 2 * RADIUS
        assert max(apart_x, apart_y) > 3, (a, b)
    for node in place.nodes.values():
        assert node.half_width < node.at.x < place.width - node.half_width
        assert RADIUS < node.at.y < place.height - RADIUS
    for edge, route in zip(net.graph.edges, place.routes, strict=True):
        for end, name in ((route.curve[0], edge.source), (route.curve[-1], edge.target)):
            node = place.nodes[name]
            off_x = max(abs(end.x - node.at.x) - node.half_width, 0)
            off_y = max(abs(end.y - node.at.y) - RADIUS, 0)
            assert math.hypot(off_x, off_y) < 4, (edge, end, node)
        for point in route.curve:
            assert 0 < point.x < place.width
            assert 0 < point.y < place.height
    assert len({route.curve for route in place.routes}) == len(place.routes), "parallel edges lie side by side"


@pytest.mark.parametrize("text", SPACE_TEXTS)
def test_spaces_have_their_natural_layout(text: str) -> None:
    net = build(text, (3, 32, 32), 10)
    place = layout(net)
    check_layout(net, place)
    assert place.captions, "a natural layout names its rows"
    labels = [caption.text for caption in place.captions]
    assert "×".join(map(str, net.shapes.nodes[-1])) in labels


def test_every_built_in_space_has_one() -> None:
    assert set(LAYOUTS) == set(SPACES)


def test_resnet_rows_mirror_each_other() -> None:
    """s edges are upright: the mirrored blocks of neighbouring groups face each other."""
    net = build("resnet-fabric:width=5,channels=2", (3, 16, 16))
    at = layout(net).positions
    straight = [edge for edge in net.graph.edges if ".s." in edge.name]
    assert straight
    assert all(at[edge.source].x == at[edge.target].x for edge in straight)
    rows = [{round(at[node].y) for node in net.graph.nodes if node.startswith(f"g{group}")} for group in range(3)]
    assert [len(row) for row in rows] == [1, 1, 1]
    assert sorted(map(min, rows)) == list(map(min, rows))


def test_fabric_grid_orders_columns_and_scales() -> None:
    net = build("neural-fabric:width=3,scales=4,filters=2", (3, 32, 32))
    place = layout(net)
    for edge, route in zip(net.graph.edges, place.routes, strict=True):
        a, b = place.positions[edge.source], place.positions[edge.target]
        assert route.kind == ("same" if a.y == b.y else "down" if b.y > a.y else "up")
        assert b.x >= a.x


@given(graphs(max_nodes=9, max_edges=24))
@examples(60)
def test_any_graph_by_layers(graph: Graph) -> None:
    net = network(graph)
    place = layout(net)
    check_layout(net, place)
    assert all(place.positions[edge.source].x < place.positions[edge.target].x for edge in graph.edges)


def test_a_foreign_graph_with_a_known_name_falls_back_to_layers() -> None:
    graph = Graph([Edge("e", "first", "second")])
    net = SuperNetwork(graph, {"e": nn.Identity()}, input_shape=(3,), name="resnet-fabric:width=3")
    check_layout(net, layout(net))


@pytest.mark.parametrize("text", SPACE_TEXTS[1:4])
def test_kept_dropped_and_dashed(text: str) -> None:
    net = build(text, (3, 16, 16))
    architecture = random_architecture(net, 0.6)
    live = {edge.name for edge in architecture.live()}
    drawn = elements(svg(Picture(net, architecture)), "edge")
    assert sorted(element.get("data-name", "") for element in drawn) == sorted(net.graph.index)
    for element in drawn:
        name, classes = element.get("data-name", ""), element.get("class", "").split()
        assert ("dropped" in classes) == (name not in live)
        dashed = name in live and name.endswith(".skip") and name.replace(".skip", ".block") not in live
        assert ("alone" in classes) == dashed
    assert any("alone" in element.get("class", "") for element in drawn)
    dead = {
        element.findtext(f"{SVG}title", "").split()[0] for element in elements(svg(Picture(net, architecture)), "dead")
    }
    ends = {node for edge in architecture.live() for node in (edge.source, edge.target)}
    assert dead == set(net.graph.nodes) - ends


def test_probability_is_opacity_and_cost_is_width() -> None:
    net = build("neural-fabric:width=3,scales=3,filters=4", (3, 16, 16))
    meter = bind("macs", net)
    probabilities = torch.rand(len(net.graph.edges), generator=generator(1)).tolist()
    drawn = elements(svg(Picture(net, None, probabilities, meter)), "edge")
    by_index = {int(element.get("data-index", "")): element for element in drawn}
    costs = [meter.cost.edges[i].item() for i in range(len(probabilities))]  # type: ignore[attr-defined]
    opacities = [float(by_index[i].get("opacity", "")) for i in range(len(costs))]
    widths = [
        float(line.get("stroke-width", ""))
        for i in range(len(costs))
        if (line := by_index[i].find(f"{SVG}path[2]")) is not None
    ]
    for values, drawn_values in ((probabilities, opacities), (costs, widths)):
        order = sorted(range(len(values)), key=values.__getitem__)
        assert [drawn_values[i] for i in order] == sorted(drawn_values)
        assert min(drawn_values) < max(drawn_values)
    for i, element in by_index.items():
        title = element.findtext(f"{SVG}title", "")
        assert net.graph.edges[i].name in title
        assert element.get("data-cost", "?") in title
        assert f"probability: {probabilities[i]:.3g}" in title
        assert ("dropped" in element.get("class", "")) or probabilities[i] > 0.5


@pytest.mark.parametrize("machines", [1, 4])
def test_ticks_are_colours(machines: int) -> None:
    net = build("neural-fabric:width=3,scales=3,filters=2", (3, 8, 8))
    meter = bind(f"steps({machines})", net)
    text = svg(Picture(net, net.graph.full, None, meter))
    starts = meter.cost.schedules(net.graph.full.gates()[None])[0].starts  # type: ignore[attr-defined]
    colours = {}
    for element in elements(text, "edge"):
        line = element.find(f"{SVG}path[2]")
        assert line is not None
        colours[int(element.get("data-index", ""))] = line.get("style")
    for a, b in itertools.combinations(colours, 2):
        assert (colours[a] == colours[b]) == (starts[a] == starts[b])
    assert f"tick 1 to {meter(net.graph.full):g}" in text


@given(st.floats(0, 1))
@examples(50)
def test_ramp_is_a_colour_between_its_ends(share: float) -> None:
    assert re.fullmatch("#[0-9a-f]{6}", ramp(share))
    assert ramp(0) == RAMP[0]
    assert ramp(1) == RAMP[-1]


def test_names_are_text_whatever_they_contain() -> None:
    evil = '<script>alert("1")</script>\'&'
    graph = Graph([Edge(evil, f"{evil} a", f"{evil} b"), Edge(f"{evil}2", f"{evil} a", f"{evil} b")])
    text = svg(Picture(network(graph), title=evil))
    assert "<script" not in text
    drawn = elements(text, "edge")
    assert {element.get("data-name") for element in drawn} == {evil, f"{evil}2"}
    assert ElementTree.fromstring(text).findtext(f"{SVG}text") == evil


def test_light_and_dark() -> None:
    light, dark = stylesheet("light"), stylesheet("dark")
    assert light != dark
    assert "@media" not in light + dark
    assert "prefers-color-scheme: dark" in stylesheet("auto")
    with pytest.raises(UserError, match="blue"):
        stylesheet("blue")


def pixels(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    assert image.format == "PNG"
    return image.convert("RGB")


def test_png_shows_the_picture(tmp_path: Path) -> None:
    net = build("resnet-fabric:width=3,channels=2", (3, 16, 16))
    picture = Picture(net, net.architecture("resnet-20"), None, bind("macs", net), "A title")
    light = pixels(save(picture, tmp_path / "light.png").read_bytes())
    dark = pixels(save(picture, tmp_path / "dark.png", "dark").read_bytes())
    assert light.getpixel((1, 1)) == (255, 255, 255)
    assert max(dark.getpixel((1, 1))) < 40  # type: ignore[arg-type]
    colours = light.getcolors(1 << 24)
    assert colours is not None
    assert len(colours) > 50, "not blank"
    blue = sum(count for count, (r, _, b) in colours if b > r + 60)  # type: ignore[misc]
    assert blue > 2000, "kept blocks are drawn strong"


def test_files_by_their_name(tmp_path: Path) -> None:
    net = build("neural-fabric:width=2,scales=2,filters=2", (3, 8, 8))
    picture = Picture(net)
    ElementTree.parse(save(picture, tmp_path / "deep" / "a.svg"))
    page = save(picture, tmp_path / "a.html").read_text()
    assert page.startswith("<!doctype html>")
    assert not re.findall(r"(?:src|href)=", page)
    with pytest.raises(UserError, match=r"\.svg"):
        save(picture, tmp_path / "a.pdf")


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    picture = Picture(build("neural-fabric:width=2,scales=2,filters=2", (3, 8, 8)))
    out = tmp_path / "a.svg"
    out.write_text("precious")
    with pytest.raises(UserError, match="--force"):
        save(picture, out)
    assert out.read_text() == "precious"
    save(picture, out, force=True)
    assert "<svg" in out.read_text()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        save(picture, tmp_path / "file" / "a.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svg", "file"], "no half-written file stays"


def test_probabilities_of_another_graph_are_refused() -> None:
    net = build("neural-fabric:width=2,scales=2,filters=2", (3, 8, 8))
    with pytest.raises(UserError, match="3 probabilities"):
        Picture(net, None, [0.1, 0.2, 0.3])


@given(*[st.floats(-500, 500)] * 4, st.floats(-30, 30))
@examples(100)
def test_arrows_end_where_their_curve_does(x: float, y: float, u: float, v: float, bend: float) -> None:
    start, end = Point(x, y), Point(u, v)
    if math.dist(start, end) < 80:
        return
    for curve in (bow(start, end, bend, 12), flow([start, end])):
        shaft, head = arrow(curve, 8)
        assert shaft[0] == curve[0]
        tip = curve_points(head)[0]
        assert math.dist(tip, curve[-1]) < 0.2
        assert math.dist(shaft[-1], curve[-1]) < 40
    assert abs(math.dist(bow(start, end, bend, 12)[0], start) - 12) < 1e-6
