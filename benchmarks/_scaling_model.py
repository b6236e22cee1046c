"""What one training step of a super network takes on so many GPUs, on paper; docs/scaling.md explains the terms."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Work:
    """What is trained.

    Args:
        name: For the table.
        parameters: Weights, all of which are averaged in every step.
        macs: Multiply-adds of the full network for one example.
        kept: The share of them that samples keep on average.
        edges: Gates of an architecture.
        kernels: Kernels of a forward and backward pass and the optimizer.
        efficiency: The share of the GPU's peak that its kernels reach.
        tensors: Parameter tensors.
    """

    name: str
    parameters: float
    macs: float
    kept: float
    edges: int
    kernels: int
    efficiency: float
    tensors: int


@dataclass(frozen=True)
class Cluster:
    """What it is trained on: nodes of eight GPUs. Seconds, bytes a second, operations a second."""

    peak: float = 312e12
    """Of one GPU in bf16 (A100)."""
    launch: float = 6e-6
    """Between two kernels of a busy host."""
    node: int = 8
    inside: float = 200e9
    """Bytes a second that a ring all-reduce inside a node sustains (NVLink)."""
    between: float = 80e9
    """Bytes a second between nodes (four links of 200 Gbit/s, 80 % of them)."""
    hop: float = 15e-6
    """Of one message of the GPUs' network."""
    host_hop: float = 60e-6
    """Of one message between hosts by gloo over TCP."""
    policy: float = 8e-4
    policy_gate: float = 5.4e-8
    """The host's time for Γ's step, and for each gate of each group in it (one core of the machine of the results)."""


def exchange(size: float, ranks: int, cluster: Cluster) -> float:
    """Seconds of an all-reduce of so many bytes: a ring inside nodes, then one between them."""
    if ranks == 1:
        return 0.0
    near, far = min(ranks, cluster.node), math.ceil(ranks / cluster.node)
    inside = 2 * (near - 1) / near * size / cluster.inside + 2 * (near - 1) * cluster.hop
    between = 2 * (far - 1) / far * size / cluster.between + 2 * math.log2(max(far, 1)) * cluster.hop
    return inside + between


def step(work: Work, ranks: int, share: int, groups: int, cluster: Cluster) -> dict[str, Any]:
    """Seconds of a step by part, where every rank has a share of so many examples and all share so many groups."""
    operations = 3 * 2 * work.macs * work.kept * share
    compute = max(operations / (cluster.peak * work.efficiency), work.kernels * cluster.launch)
    gradients = exchange(4 * work.parameters, ranks, cluster)
    messages = 3 if ranks > 1 else 0  # which parameters were used, gates and losses, whether to stop or save
    agreement = messages * 2 * math.log2(ranks) * cluster.host_hop if ranks > 1 else 0.0
    policy = cluster.policy + cluster.policy_gate * max(groups, ranks) * work.edges
    total = compute + gradients + agreement + policy
    return {
        "work": work.name,
        "ranks": ranks,
        "compute": compute,
        "gradients": gradients,
        "agreement": agreement,
        "policy": policy,
        "step": total,
        "examples_per_second": share * ranks / total,
        "efficiency": compute / total,
    }


def table(works: list[Work], share: int, groups: int, cluster: Cluster) -> dict[str, Any]:
    """The table of docs/scaling.md, with everything that it assumes."""
    rows = [step(work, ranks, share, groups, cluster) for work in works for ranks in (1, 8, 64, 512)]
    return {"share": share, "groups": groups, "assumed": [asdict(cluster), *map(asdict, works)], "rows": rows}
