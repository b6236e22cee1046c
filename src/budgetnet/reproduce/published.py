"""The numbers of the paper's tables, row by row, as they are printed there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

M, G = 1e6, 1e9


@dataclass(frozen=True)
class PublishedRow:
    """One row: the model, its cost as printed, and accuracies in percent."""

    model: str
    printed: str
    accuracy: float
    original: float | None = None
    """Of the article that the model is from, where the paper has trained it anew."""
    note: str = ""

    @property
    def cost(self) -> float:
        """The printed cost as a number, in the unit of the table."""
        return float(self.printed.replace(",", "").lstrip("≈ "))


@dataclass(frozen=True)
class PublishedTable:
    """A table of the paper: where it is, what it limits (as a budget names it), and its rows from top to bottom."""

    where: str
    cost: str
    heading: str
    """Of the column of costs."""
    unit: float
    """What one of the printed unit is in the cost's own."""
    rows: tuple[PublishedRow, ...]


RESNETS = {110: (94.09, 93.57), 56: (93.61, 93.03), 44: (93.21, 92.83), 32: (92.91, 92.49), 20: (92.19, 91.25)}
"""On CIFAR-10: trained by the authors, and in the original article. The same in every table."""
RESNETS_100 = {110: 71.85, 56: 70.57, 44: 70.28, 32: 69.28, 20: 67.14}
FABRICS = {8: (94.83, 90.58), 4: (93.75, 87.91), 2: (92.54, 86.21), 1: (89.91, None)}
"""Convolutional neural fabrics of so many columns on CIFAR-10, likewise."""


def _resnets(costs: Iterable[str]) -> tuple[PublishedRow, ...]:
    known = zip(RESNETS.items(), costs, strict=True)
    return tuple(PublishedRow(f"ResNet-{depth}", cost, *scores) for (depth, scores), cost in known)


def _resnets_100(costs: Iterable[str]) -> tuple[PublishedRow, ...]:
    known = zip(RESNETS_100.items(), costs, strict=True)
    return tuple(PublishedRow(f"ResNet-{depth}", cost, score) for (depth, score), cost in known)


def _fabrics(costs: Iterable[str]) -> tuple[PublishedRow, ...]:
    known = zip(FABRICS.items(), costs, strict=True)
    return tuple(PublishedRow(f"CNF W={width}", cost, *scores) for (width, scores), cost in known)


def _models(model: str, points: Iterable[tuple[str, float]]) -> tuple[PublishedRow, ...]:
    return tuple(PublishedRow(model, cost, accuracy) for cost, accuracy in points)


def _noted(rows: Iterable[PublishedRow], model: str, note: str) -> tuple[PublishedRow, ...]:
    return tuple(
        PublishedRow(row.model, row.printed, row.accuracy, row.original, note) if row.model == model else row
        for row in rows
    )


CIFAR10_MACS = PublishedTable(
    "table 1, accuracy/speed trade-off on CIFAR-10",
    "macs(accounting=paper)",
    "FLOPs (millions)",
    M,
    (
        *_noted(_resnets(["253.70", "126.01", "97.64", "69.27", "40.90"]), "ResNet-110", "253.67, rounded"),
        PublishedRow("LCCL (ResNet-110)", "166", 93.44),
        PublishedRow("LCCL (ResNet-44)", "65", 92.71),
        PublishedRow("LCCL (ResNet-32)", "49", 92.56),
        PublishedRow("LCCL (ResNet-20)", "26", 91.68),
        *_models(
            "MSDNet",
            [
                *(("≈ 255", 94.1), ("≈ 225", 94.0), ("≈ 205", 94.0), ("≈ 180", 94.0), ("≈ 145", 93.8)),
                *(("≈ 119", 93.7), ("≈ 97", 93.3), ("≈ 80", 92.8), ("≈ 45", 91.8), ("≈ 25", 90.0)),
            ],
        ),
        *_models(
            "B-ResNet",
            [
                *(("407.51", 94.29), ("258.20", 94.15), ("152.60", 94.01), ("120.20", 93.71)),
                *(("56.47", 92.92), ("42.69", 92.48), ("39.25", 92.39)),
            ],
        ),
        *_fabrics(["2,219.00", "1,010.00", "406.00", "54.00"]),
        *_models(
            "B-CNF",
            [("2,150.00", 94.92), ("1,407.00", 94.85), ("1,144.00", 94.69), ("103.00", 93.14), ("85.00", 92.17)],
        ),
    ),
)

CIFAR100_MACS = PublishedTable(
    "table 2, accuracy/speed trade-off on CIFAR-100",
    "macs(accounting=paper)",
    "FLOPs (millions)",
    M,
    (
        *_resnets_100(["253.7", "126", "97.64", "69.27", "40.9"]),
        *_models(
            "MSDNet",
            [("215", 76.0), ("180", 75.0), ("150", 74.0), ("109", 72.5), ("80", 71.0), ("45", 67.5), ("15", 62.5)],
        ),
        *_models(
            "B-ResNet",
            [
                *(("349.5", 73.28), ("115.09", 71.46), ("69.84", 70.27)),
                *(("64.96", 70.12), ("46.29", 69.02), ("39.22", 68.45)),
            ],
        ),
    ),
)

CIFAR10_PARAMS = PublishedTable(
    "table 3, accuracy/memory trade-off on CIFAR-10",
    "params",
    "# params (millions)",
    M,
    (
        *_resnets(["1.73", "0.86", "0.66", "0.47", "0.27"]),
        *_models(
            "B-ResNet",
            [
                *(("4.38", 94.35), ("2.27", 94.2), ("1.29", 93.85), ("0.48", 93.42)),
                *(("0.34", 92.72), ("0.3", 92.52), ("0.29", 92.17)),
            ],
        ),
        *_fabrics(["18.04", "8.58", "3.85", "0.74"]),
        *_models(
            "B-CNF",
            [("7.56", 94.88), ("4.98", 94.58), ("4.28", 94.55), ("3.67", 94.42), ("2.65", 94.00), ("1.19", 93.53)],
        ),
    ),
)

PART_LABELS = PublishedTable(
    "table 4, accuracy/speed trade-off on Part Labels",
    "macs(accounting=paper)",
    "FLOPs (billions)",
    G,
    (
        PublishedRow("CNF W=8", "35.614", 95.06, 95.39),  # the original has a row of its own there
        PublishedRow("B-CNF", "28.49", 95.21),
        PublishedRow("B-CNF", "21.37", 95.43),
    ),
)

SEQUENTIAL = "# of sequential operations"

CIFAR10_STEPS = (
    PublishedTable(
        "supplementary material, distributed computation cost on CIFAR-10 with n=1",
        "steps(1,dfs)",
        SEQUENTIAL,
        1.0,
        (
            *_resnets(["112.00", "58.00", "46.00", "34.00", "22.00"]),
            *_models(
                "B-ResNet",
                [("184.00", 94.42), ("110.00", 94.12), ("94.00", 94.01), ("22.00", 93.06), ("20.00", 92.29)],
            ),
            *_fabrics(["171.00", "83.00", "39.00", "12.00"]),
            *_models(
                "B-CNF",
                [
                    *(("98.00", 95.02), ("50.00", 94.62), ("45.00", 94.55), ("39.00", 94.35)),
                    *(("33.00", 93.00), ("26.00", 92.91), ("18.00", 92.87)),
                ],
            ),
        ),
    ),
    PublishedTable(
        "supplementary material, distributed computation cost on CIFAR-10 with n=2",
        "steps(2,dfs)",
        SEQUENTIAL,
        1.0,
        (
            *_resnets(["110.00", "56.00", "44.00", "32.00", "20.00"]),
            *_models(
                "B-ResNet",
                [("179.00", 94.36), ("112.00", 94.42), ("56.00", 94.31), ("20.00", 93.20), ("18.00", 92.81)],
            ),
            *_fabrics(["90.00", "47.00", "26.00", "12.00"]),
            *_models(
                "B-CNF",
                [
                    *(("47.00", 94.67), ("30.00", 94.68), ("28.00", 94.58)),
                    *(("24.00", 94.41), ("20.00", 94.35), ("18.00", 92.86)),
                ],
            ),
        ),
    ),
    PublishedTable(
        "supplementary material, distributed computation cost on CIFAR-10 with n=4",
        "steps(4,dfs)",
        SEQUENTIAL,
        1.0,
        (
            *_resnets(["110.00", "56.00", "44.00", "32.00", "20.00"]),
            *_models(
                "B-ResNet",
                [("110.00", 94.36), ("58.00", 94.01), ("20.00", 93.24), ("18.00", 92.93), ("16.00", 92.75)],
            ),
            *_fabrics(["53.00", "31.00", "19.00", "12.00"]),
            *_models("B-CNF", [("31.00", 94.96), ("25.00", 94.72), ("21.00", 94.36), ("18.00", 93.86)]),
        ),
    ),
)
"""The last four rows of n=4 are printed as B-ResNet, under the heading of the budgeted CNF: they are B-CNF."""

CIFAR100_STEPS = (
    PublishedTable(
        "supplementary material, distributed computation cost on CIFAR-100 with n=1",
        "steps(1,dfs)",
        SEQUENTIAL,
        1.0,
        (
            *_resnets_100(["112.00", "58.00", "46.00", "34.00", "22.00"]),
            *_models(
                "B-ResNet",
                [
                    *(("320.00", 74.35), ("184.00", 73.85), ("110.00", 72.88)),
                    *(("67.00", 72.02), ("32.00", 69.60), ("20.00", 68.48)),
                ],
            ),
        ),
    ),
    PublishedTable(
        "supplementary material, distributed computation cost on CIFAR-100 with n=2",
        "steps(2,dfs)",
        SEQUENTIAL,
        1.0,
        (
            *_noted(_resnets_100(["110.00", "56.00", "44.00", "34.00", "20.00"]), "ResNet-32", "32, as on CIFAR-10"),
            *_models(
                "B-ResNet",
                [("179.00", 74.35), ("112.00", 73.85), ("49.00", 71.84), ("29.00", 69.94), ("22.00", 69.09)],
            ),
        ),
    ),
)
