"""A network in two places: the first part runs on the device, the rest in the cloud, and few bytes travel between them.

A placement file names the nodes on one side. `traffic(placement.json)` then costs the bytes per input that cross: a
node's value crosses once if some edge that is kept leads from it to a node on the other side, and so does the output,
which the device wants back. The search is free to choose which values are worth sending.

The result is checked by cutting it: the trained network is run as two machines would, and what goes over the wire is
counted.

    python examples/device_and_cloud.py [--out FOLDER]
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

import budgetnet
from budgetnet.data import prepare

DEVICE = ("g0b0", "g0b1", "g0b2", "g1b1", "g1b2", "g2b1", "g2b2")  # groups 0 to 2; group 3 is in the cloud
MAXIMUM = 3200  # bytes


class TwoMachines(fx.Interpreter):
    """Runs an extracted network step by step; a value that the other machine needs is sent once, and counted.

    Modules are named after their place: m_g3b1_spine_block leads to node g3b1, m_g3b1_activation is the node's own.
    """

    def __init__(self, network: fx.GraphModule) -> None:
        super().__init__(network)
        self.sent: dict[str, int] = {}
        """Bytes by the step that made them."""

    def machine(self, step: fx.Node) -> str:
        """Where a step runs; a sum runs where the activation does that follows it."""
        if step.op in ("placeholder", "output"):
            return "device"
        if step.op == "call_function":
            return self.machine(next(iter(step.users)))
        place = str(step.target).split("_")[1]
        return "device" if place == "stem" or place in DEVICE else "cloud"

    def run_node(self, n: fx.Node) -> Any:
        """One step, and the bytes of its value if they have to travel."""
        value = super().run_node(n)
        if any(self.machine(user) != self.machine(n) for user in n.users):
            self.sent[n.name] = value.numel() * value.element_size()
        return value


def count_on_the_wire(network: fx.GraphModule, image: Tensor) -> dict[str, int]:
    """The bytes that one input really sends, by the step that made them."""
    machines = TwoMachines(network)
    with torch.no_grad():
        output = machines.run(image)
        assert torch.allclose(output, network(image)), "cutting a network must not change what it computes"
    return machines.sent


def main(out: Path) -> dict[str, Any]:
    """Searches, cuts and counts."""
    placement = out / "placement.json"
    placement.write_text(json.dumps({"device": DEVICE}))
    dataset = budgetnet.data.load("embedded:limit=1280")
    torch.manual_seed(0)  # the first weights of your own network are yours to choose
    net = budgetnet.spaces.resnet_fabric(width=2, channels=2, groups=4, classes=10, input_shape=dataset.input_shape)
    result = budgetnet.search(
        net,
        dataset.train,
        dataset.validation,
        dataset.test,
        budgets=[f"traffic({placement})<={MAXIMUM}B"],
        out=out / "run",
        epochs=2,
        threads=1,
        quiet=True,
    )
    (entry,) = result.certificate.budgets
    image = prepare(dataset.test.inputs[:1])
    sent = count_on_the_wire(result.network, image)
    everything = sum(count_on_the_wire(budgetnet.extract(net, net.graph.full).eval(), image).values())
    print(f"promised: at most {MAXIMUM} bytes per input between device and cloud; the full network sends {everything}")
    print(f"certificate: {entry.measured:.0f} bytes, {'holds' if entry.holds else 'does not hold'}")
    print(f"counted on the wire: {sum(sent.values())} bytes:", ", ".join(f"{n} of {name}" for name, n in sent.items()))
    print(f"test accuracy {result.summary.test_score:.1%} after a very short training")
    return {"certificate": result.certificate, "sent": sent, "full": everything}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for the placement and the run; a temporary one if not given")
    given = parser.parse_args().out
    with tempfile.TemporaryDirectory() as temporary:
        folder = given or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        main(folder)
