"""The notebook runs from its first cell to its last, and shows what it is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jupytext
import pytest
from nbclient import NotebookClient

from tests.runs.test_drawing import edges

NOTEBOOK = Path(__file__).parent.parent / "examples" / "notebook.py"
SMALL = "from pathlib import Path\nOUT, EPOCHS, IMAGES, WIDTH = Path('run'), 1, 256, 1\n"
"""In the place of the cell of parameters."""


def shown(cells: list[Any], start: str) -> dict[str, str]:
    """What the only cell that begins so shows, by its type."""
    (cell,) = [cell for cell in cells if cell.cell_type == "code" and cell.source.startswith(start)]
    found: dict[str, str] = {}
    for output in cell.outputs:
        found |= output.data if "data" in output else {"stdout": output.text}
    return found


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    notebook = jupytext.read(NOTEBOOK)
    (parameters,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    parameters.source = SMALL
    folder = str(tmp_path_factory.mktemp("notebook"))
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}}).execute()
    return list(notebook.cells)


def test_super_network_and_result_show_themselves_as_tables_and_pictures(cells: list[Any]) -> None:
    table, picture = (shown(cells, start)["text/html"] for start in ("net = ", "budgetnet.draw(net)"))
    assert table.count("<tr><th style") == table.count("<td>branch</td>") == 10, "a row for every edge of the fabric"
    assert sum(edges(picture).values()) == 10
    result = shown(cells, "result = ")["text/html"]
    assert "validation accuracy" in result
    assert result.count("<td>macs&lt;=40%</td>") == 1, "the certificate"
    kept = edges(result)
    assert 1 <= sum(kept.values()) < len(kept) == 10
    steps = shown(cells, "budgetnet.draw(net, result")["text/html"]
    assert edges(steps) == kept
    assert "data-tick=" in steps


def test_the_certificate_was_measured_again(cells: list[Any]) -> None:
    table = shown(cells, "result.certify")["text/html"]
    assert "the certificate holds" in table
    assert table.count(">holds</th>") == 2


def test_the_charts_need_no_network(cells: list[Any]) -> None:
    for start in ("lines = ", "archive = "):
        chart = shown(cells, start)["image/svg+xml"]
        assert "<path" in chart
    assert not any("cdn." in str(cell.get("outputs")) for cell in cells)


def test_predictions_have_names_and_the_served_file_agrees(cells: list[Any]) -> None:
    said = shown(cells, "images = ")["stdout"].splitlines()
    assert len(said) == 9
    assert said[-1].endswith("of the test images are right")
    difference = shown(cells, "exported = ")["text/plain"]
    assert 0 <= float(difference.removeprefix("np.float32(").rstrip(")")) < 1e-5
