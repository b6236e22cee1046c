"""One description for each table or figure of the paper: its published rows, and the runs that make ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from budgetnet.errors import UserError
from budgetnet.reproduce import published
from budgetnet.reproduce.published import PublishedTable
from budgetnet.reproduce.settings import Setting, setting
from budgetnet.runs.sweep import Plan, make_plan

FULL_RESNETS = (20, 32, 44, 56, 110)
SMALL_RESNETS = (8, 14, 20, 26)
"""Reduced budgets are shares of the cost of ResNet-20."""
COLUMNS, SMALL_COLUMNS = (1, 2, 4, 8), (1, 2, 4)
STEPS_PENALTY = "1"
"""The λ of reduced searches under steps, of which there are many."""
RESNET_SHARES = {"macs": (30, 60, 100), "params": (30, 60, 100), "steps": (50, 75, 100)}
"""Reduced budgets in percent of ResNet-20's cost."""
FABRIC_SHARES: Mapping[str, tuple[float, ...]] = {"macs": (4.5, 10, 25), "params": (10, 25), "steps": (40, 60)}
"""Reduced budgets in percent of the whole fabric's cost; on four machines a path alone takes 35 % of its steps."""


@dataclass(frozen=True)
class Method:
    """The runs of one model: settings of a sweep, of which the name goes in front of the runs' names."""

    model: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of the paper, by a short name."""

    name: str
    about: str
    data: str
    tables: tuple[PublishedTable, ...]
    resnets: bool = False
    fabrics: bool = False

    @property
    def costs(self) -> tuple[str, ...]:
        """What is limited, a column of costs each."""
        return tuple(table.cost for table in self.tables)

    def setting(self, scale: str) -> Setting:
        """What is trained at a scale; `full` is the paper's."""
        return setting(self.data, scale)

    def methods(self, scale: str) -> list[Method]:
        """Baselines, then searches."""
        chosen, full = self.setting(scale), scale == "full"
        found: list[Method] = []
        if self.resnets:
            found += self._baselines(chosen, [f"ResNet-{depth}" for depth in (FULL_RESNETS if full else SMALL_RESNETS)])
            found += _paper_resnets(chosen, self.costs) if full else _small_resnets(chosen, self.costs)
        if self.fabrics:
            found += self._baselines(chosen, [f"CNF W={width}" for width in (COLUMNS if full else SMALL_COLUMNS)])
            found += self._paper_fabrics(chosen) if full else _small_fabrics(chosen, self.costs)
        return found

    def _baselines(self, chosen: Setting, models: list[str]) -> list[Method]:
        return [baseline(chosen, model, costs_on(self.data)) for model in models]

    def _paper_fabrics(self, chosen: Setting) -> Iterator[Method]:
        """C is the cost of the fabrics of 2, 4 and 8 columns.

        That of one column is out of reach: a path through eight costs more. The cheapest published B-CNF stands for it.
        """
        for table in self.tables:
            least = min(row.cost for row in table.rows if row.model == "B-CNF") * table.unit
            yield search(chosen, "B-CNF", chosen.fabric(8), [f"{table.cost}<={least:.0f}"], "cheapest")
            for width in COLUMNS[1:]:
                limit = chosen.cost(f"CNF W={width}", table.cost)
                yield search(chosen, "B-CNF", chosen.fabric(8), [f"{table.cost}<={limit:.0f}"], f"W={width}")


@dataclass(frozen=True)
class Segmentation(Reproduction):
    """The whole fabric, and searches under 80 and 60 % of its multiply-adds: the 28.49 and 21.37 of 35.614 G."""

    def methods(self, scale: str) -> list[Method]:
        """The fabric that is searched is the only baseline."""
        chosen = self.setting(scale)
        limits = [f"{cost}<={share}%" for cost in self.costs for share in (80, 60)]
        whole = baseline(chosen, f"CNF W={chosen.columns}", costs_on(self.data))
        return [whole, search(chosen, "B-CNF", chosen.fabric(chosen.columns), limits)]


@dataclass(frozen=True)
class Dynamics(Reproduction):
    """Two runs whose loss and entropy are drawn over the epochs. The budget, which the paper leaves out, is CNF W=2."""

    def methods(self, scale: str) -> list[Method]:
        """A fabric and a search on it."""
        chosen, cost = replace(self.setting(scale), penalties=None), "macs(accounting=paper)"
        limit = chosen.cost("CNF W=2", cost)
        found = search(chosen, "B-CNF", chosen.fabric(8), [f"{cost}<={limit:.0f}"], seeds=(0,))
        return [baseline(chosen, "CNF W=8", costs_on(self.data)), found]


def costs_on(data: str) -> tuple[str, ...]:
    """All costs that tables of a data set have, so that a fixed network is trained once for all of them."""
    tables = [table for entry in REPRODUCTIONS.values() if entry.data == data for table in entry.tables]
    return tuple(dict.fromkeys(table.cost for table in tables))


def baseline(chosen: Setting, model: str, costs: tuple[str, ...]) -> Method:
    """One fixed network, measured on every cost that is given."""
    network = chosen.network(model)
    assert network is not None
    space, architecture = network
    run = {"name": model, "space": space, "architectures": [architecture], "seeds": [0], "measured": costs}
    return Method(model, {**_common(chosen), **run})


def search(
    chosen: Setting, model: str, space: str, budgets: list[str], name: str = "", seeds: tuple[int, ...] | None = None
) -> Method:
    """A search for each budget, with each λ of the setting and with each seed."""
    more = {"penalties": chosen.penalties} if chosen.penalties else {}
    tried = seeds or (0,)
    label = f"{model}-{name}" if name else model
    return Method(
        model, {**_common(chosen), **more, "name": label, "space": space, "budgets": budgets, "seeds": list(tried)}
    )


def _paper_resnets(chosen: Setting, costs: tuple[str, ...]) -> Iterator[Method]:
    """C is the cost of each ResNet, in the fabric that contains it."""
    for cost in costs:
        for depth in FULL_RESNETS:
            limit = chosen.cost(f"ResNet-{depth}", cost)
            yield search(
                chosen, "B-ResNet", chosen.resnets((depth - 2) // 6), [f"{cost}<={limit:.0f}"], f"ResNet-{depth}"
            )


def _small_resnets(chosen: Setting, costs: tuple[str, ...]) -> Iterator[Method]:
    for cost in costs:
        whole = chosen.cost("ResNet-20", cost)
        limits = [f"{cost}<={whole * share / 100:.0f}" for share in RESNET_SHARES[_kind(cost)]]
        yield search(_few(chosen, cost), "B-ResNet", chosen.resnets(3), limits)


def _small_fabrics(chosen: Setting, costs: tuple[str, ...]) -> Iterator[Method]:
    for cost in costs:
        limits = [f"{cost}<={share}%" for share in FABRIC_SHARES[_kind(cost)]]
        yield search(_few(chosen, cost), "B-CNF", chosen.fabric(chosen.columns), limits)


def _few(chosen: Setting, cost: str) -> Setting:
    return replace(chosen, penalties=STEPS_PENALTY) if _kind(cost) == "steps" else chosen


def _kind(cost: str) -> str:
    return cost.partition("(")[0]


def _common(chosen: Setting) -> dict[str, Any]:
    values: dict[str, Any] = {"data": chosen.data, "recipes": [chosen.recipe], "epochs": chosen.epochs}
    values |= {"batch_size": chosen.batch_size, "groups": chosen.groups}
    return {name: value for name, value in values.items() if value is not None}


REPRODUCTIONS: Mapping[str, Reproduction] = {
    entry.name: entry
    for entry in (
        Reproduction(
            "cifar10-macs",
            "table 1, figure 2 and found networks of figure 3: CIFAR-10 accuracy against multiply-adds",
            "cifar10",
            (published.CIFAR10_MACS,),
            resnets=True,
            fabrics=True,
        ),
        Reproduction(
            "cifar100-macs",
            "table 2: CIFAR-100 accuracy against multiply-adds",
            "cifar100",
            (published.CIFAR100_MACS,),
            resnets=True,
        ),
        Reproduction(
            "cifar10-params",
            "table 3 and the found network of figure 3: CIFAR-10 accuracy against parameters",
            "cifar10",
            (published.CIFAR10_PARAMS,),
            resnets=True,
            fabrics=True,
        ),
        Reproduction(
            "cifar10-steps",
            "figure 5 and three tables of the supplement: CIFAR-10 accuracy against steps on 1, 2 and 4 machines",
            "cifar10",
            published.CIFAR10_STEPS,
            resnets=True,
            fabrics=True,
        ),
        Reproduction(
            "cifar100-steps",
            "two tables of the supplement: CIFAR-100 accuracy against steps on 1 and 2 machines",
            "cifar100",
            published.CIFAR100_STEPS,
            resnets=True,
        ),
        Segmentation(
            "part-labels",
            "table 4 and the found network of the supplement: Part Labels, accuracy against multiply-adds",
            "part-labels",
            (published.PART_LABELS,),
        ),
        Dynamics(
            "dynamics", "figure 4: loss and entropy during the training of CNF and B-CNF on CIFAR-10", "cifar10", ()
        ),
    )
}


def find(name: str) -> Reproduction:
    """By its name."""
    if name not in REPRODUCTIONS:
        raise UserError(f"there is no table {name!r}; use {', '.join(REPRODUCTIONS)}")
    return REPRODUCTIONS[name]


def plan_of(methods: list[Method], where: str, **everywhere: Any) -> tuple[Plan, dict[str, str]]:
    """Every run, and the model that each is of. `everywhere` are settings for all of them, such as data_root."""
    plan: Plan = {}
    models: dict[str, str] = {}
    given = {name: value for name, value in everywhere.items() if value is not None}
    for method in methods:
        settings = {**method.settings, **given}
        measured = settings.pop("measured", None)
        for name, config in make_plan(settings, where).items():
            assert name not in plan, name
            limits = config.budgets if measured is None else tuple(f"{cost}<=100%" for cost in measured)
            plan[name], models[name] = replace(config, budgets=limits), method.model
    return plan, models
