"""Pictures of networks with units of layers: marginal costs, bands as wide as what is kept, the tables of a report."""

from __future__ import annotations

import pytest
import torch

from budgetnet.costs import bind
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from budgetnet.pictures.draw.layout import UNIT
from budgetnet.pictures.draw.paint import svg, widths
from budgetnet.pictures.draw.picture import Picture
from budgetnet.pictures.draw.weights import edge_costs
from budgetnet.pictures.report.breakdown import breakdowns, schedule_charts
from tests.network.test_slices import network


@pytest.fixture(scope="module")
def net() -> SuperNetwork:
    return network()


def test_a_unit_costs_what_the_full_network_loses_with_it(net: SuperNetwork) -> None:
    for name in ("macs", "params"):
        meter = bind(name, net)
        costs = edge_costs(meter)
        assert costs is not None
        for i, edge in enumerate(net.graph.edges):
            if edge.bundle is not None:
                without = net.graph.full.gates()
                without[i] = False
                assert costs[i] == meter.full - float(meter.evaluate(without[None])[0])
    assert edge_costs(bind("steps(1)", net)) == [0.0] + [1.0] * 7, "the skip is free, the chain and the gate are not"


def test_the_units_of_a_bundle_are_a_band_as_wide_as_what_is_kept(net: SuperNetwork) -> None:
    kept = Architecture(net.graph, frozenset({"skip", "first.0", "first.2", "second.1", "gate"}))
    picture = Picture(net, kept, cost=bind("macs", net))
    ends = [picture.layout.routes[net.graph.index[f"first.{unit}"]].curve[1].y for unit in range(4)]
    gaps = torch.tensor(ends).diff().tolist()
    assert gaps == pytest.approx([gaps[0]] * 3, rel=1e-3)
    assert [widths(picture)[net.graph.index[f"first.{unit}"]] for unit in range(4)] == [UNIT] * 4
    drawn = svg(picture)
    assert drawn.count("dropped") >= len(net.graph.edges) - len(kept)


def test_a_report_has_a_row_for_each_bundle_and_all_rows_add_up(net: SuperNetwork) -> None:
    kept = Architecture(net.graph, frozenset({"skip", "first.0", "first.2", "second.1", "gate"}))
    meters = {name: bind(name, net) for name in ("macs", "steps(1)")}
    (table,) = breakdowns(kept, meters, [0.5] * len(net.graph.edges))
    assert sum(part.value for part in table.parts) == meters["macs"](kept)
    assert "first, 3 of 6 units" in [part.name for part in table.parts]
    assert [chart.title for chart in schedule_charts(kept, meters)] == ["Schedule: steps(1)"]
