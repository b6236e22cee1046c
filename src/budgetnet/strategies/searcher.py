"""The search for people with a training loop of their own: ask for architectures, tell how they did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from budgetnet.budgets.budget import Budget, BudgetLike, as_budgets, parse_all
from budgetnet.budgets.certificate import Certificate, certify
from budgetnet.budgets.feasibility import check, profile
from budgetnet.data.nested import Nested
from budgetnet.data.seeds import generator_of
from budgetnet.errors import UserError
from budgetnet.network.distribution import Draw
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.environment import environment
from budgetnet.strategies.candidates import Candidates, Samples
from budgetnet.strategies.policy import Policy, PolicySettings, default_rate
from budgetnet.strategies.start import budgeted_start

ARCHITECTURE = "budgetnet.architecture"
"""Where an extracted network says which architecture it is."""


class Searcher:
    """Γ, the multipliers and the budgets of a search whose weights are trained elsewhere.

    In a step: `draw = searcher.ask(8)`; run the super network under `draw.gates`; compute the mean loss of each group;
    take a step of your optimizer; `searcher.tell(draw, losses)`. Afterwards `candidates` are architectures within the
    budgets, `extract` makes an ordinary module of one, which you train on, and `certify` measures it.

    Args:
        net: The super network.
        budgets: One budget or several, such as `"macs<=40%"` or `{"macs": "40%"}`.
        steps: How many times you will call `tell`, about: Γ's learning rate follows from it.
        seed: What the samples follow from.
        rate: Γ's learning rate, if not the default for so many steps.
        penalty: λ at the beginning; it follows the observed violation.
        example: A batch of inputs, for costs that depend on them.

    Raises:
        UserError: If a budget cannot be met, with the smallest reachable cost.
    """

    def __init__(
        self,
        net: SuperNetwork,
        budgets: str | Sequence[BudgetLike] | Mapping[str, Any],
        *,
        steps: int = 1000,
        seed: int = 0,
        rate: float | None = None,
        penalty: float = 1.0,
        example: Nested = None,
    ) -> None:
        if not isinstance(net, SuperNetwork):
            raise UserError(f"{type(net).__name__} is not a super network; make one with budgetnet.SuperNetwork")
        self.net = net
        self.seed = seed
        self.example = example
        self.budgets: Sequence[Budget] = parse_all(as_budgets(budgets), net, example=example)
        if not self.budgets:
            raise UserError('no budget was given; write at least one, such as "macs<=60%"')
        self.fallback = check(profile(self.budgets, seed), seed)
        self.start = budgeted_start(self.budgets, net.graph, self.fallback)
        settings = PolicySettings(default_rate(steps) if rate is None else rate, penalty)
        self.policy = Policy(self.start.distribution(net.graph), self.budgets, settings)
        self.asked = 0

    def ask(self, groups: int = 8) -> Draw:
        """Architectures for the next batch, one for each group of neighbouring examples.

        Args:
            groups: How many; two or more, and at most as many as the batch has examples.

        Returns:
            What `tell` needs. Its `gates` (groups × edges) are the second argument of the super network.
        """
        if groups < 2:
            raise UserError(f"{groups} architecture per batch has no policy gradient; ask for 2 groups or more")
        self.asked += 1
        source = generator_of("ask", self.seed, self.asked)
        return self.policy.distribution.sample(groups, source, stratified=True, connected=True)

    def tell(self, draw: Draw, losses: Tensor | Sequence[float], batch: Nested = None) -> dict[str, float]:
        """Learns from the losses of the architectures that were drawn.

        Args:
            draw: What `ask` returned.
            losses: The mean loss of each group, in the order of the gates.
            batch: The inputs, if a cost depends on them.

        Returns:
            Mean costs, the share of violations and λ of each budget.
        """
        values = torch.as_tensor(losses, dtype=torch.float64).detach().cpu()
        if values.shape != (len(draw.gates),):
            raise UserError(
                f"{len(draw.gates)} architectures were drawn but {tuple(values.shape)} losses were told; "
                "give the mean loss of each group"
            )
        if not bool(values.isfinite().all()):
            raise UserError("a loss is not finite; lower the learning rate, or look at the data")
        return self.policy.update(draw, values, self.example if batch is None else batch)

    def candidates(
        self, count: int = 1, score: Callable[[Architecture], float] | None = None, evaluations: int = 24
    ) -> list[Architecture]:
        """Architectures within the budgets.

        Args:
            count: How many at most.
            score: Validation loss of an architecture, lower is better: it then ranks them. Without it Γ's mode comes
                first, then samples of Γ.
            evaluations: How often `score` may be called.

        Returns:
            The candidates, the best first; each uses up the budgets as far as it can.
        """
        graph = self.net.graph
        proposals = Candidates(
            graph,
            self.budgets,
            self.policy.distribution,
            lambda purpose: generator_of(purpose, self.seed, self.asked),
            lambda: [] if self.example is None else [self.example],
        )
        found = Samples().rank(proposals, self.fallback.gates(), lambda gates: 0.0, evaluations if score else 4 * count)
        ranked = [graph.architecture(gates).live() for gates in found]
        if score is not None:
            ranked.sort(key=score)
        return [*dict.fromkeys([*ranked, self.fallback.live()])][:count]

    def extract(self, architecture: Architecture) -> fx.GraphModule:
        """An architecture as an ordinary module with a copy of the weights that it has in the super network.

        Args:
            architecture: One of `candidates`, or any other of the super network.

        Returns:
            The module, which remembers its architecture for `certify`.
        """
        model = extract(self.net, architecture)
        model.meta[ARCHITECTURE] = architecture.to_json()
        return model

    def certify(self, network: Architecture | fx.GraphModule) -> Certificate:
        """Measures an architecture, or a module that `extract` made, against every budget.

        Args:
            network: What is to be measured; a module is measured as it is, with its weights.

        Returns:
            The certificate; `holds` says whether every budget is met.
        """
        if isinstance(network, Architecture):
            architecture, model = network, None
        else:
            text = getattr(network, "meta", {}).get(ARCHITECTURE)
            if text is None:
                raise UserError(
                    f"{type(network).__name__} does not say which architecture it is; certify what extract() made"
                )
            architecture, model = Architecture.from_json(self.net.graph, text), network
        batches = () if self.example is None else (self.example,)
        return certify(self.net, architecture, self.budgets, environment=environment(), network=model, batches=batches)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint of yours; nested values with tensors."""
        return {"asked": self.asked, "policy": self.policy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a checkpoint of yours.

        Args:
            state: What `state_dict` gave.
        """
        self.asked = state["asked"]
        self.policy.load_state_dict(state["policy"])
