"""A whole search in a training loop of your own: budgetnet proposes architectures, the loop below does the rest."""

import itertools

import torch
from torch import nn
from torch.nn import functional as F

import budgetnet

torch.manual_seed(0)
LAYERS, WIDTH, GROUPS, BATCH = 4, 24, 8, 64


def moons(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two half-moons, one in the other."""
    label = torch.arange(count) % 2
    angle = torch.pi * torch.rand(count)
    x = torch.stack([angle.cos() + label, angle.sin() * (1 - 2 * label) + label / 2], 1)
    return x + 0.1 * torch.randn(count, 2), label


pairs = list(itertools.combinations(range(LAYERS + 1), 2))
net = budgetnet.SuperNetwork(
    budgetnet.Graph(budgetnet.Edge(f"{a}-{b}", f"layer{a}", f"layer{b}") for a, b in pairs),
    {f"{a}-{b}": nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)) for a, b in pairs},
    input_shape=(2,),
    stem=nn.Linear(2, WIDTH),
    head=nn.Linear(WIDTH, 2),
    activation=nn.ReLU(),
)
(x, y), (held_x, held_y) = moons(2048), moons(512)
STEPS = 6 * len(x) // BATCH

# The search: every batch is cut into groups, each with an architecture of its own.
searcher = budgetnet.Searcher(net, {"macs": "40%"}, steps=STEPS)
optimizer = torch.optim.AdamW(net.parameters(), 3e-3)
for step in range(STEPS):
    rows = torch.randint(len(x), (BATCH,))
    draw = searcher.ask(GROUPS)
    losses = F.cross_entropy(net(x[rows], draw.gates), y[rows], reduction="none").view(GROUPS, -1).mean(1)
    optimizer.zero_grad()
    losses.mean().backward()
    optimizer.step()
    seen = searcher.tell(draw, losses.detach())
    if step % 48 == 0:
        print(f"step {step:3}: loss {losses.detach().mean():.3f}, mean cost {seen['cost/macs']:.0f} multiply-adds")


def validation_loss(architecture: budgetnet.Architecture) -> float:
    """Of an architecture with the shared weights."""
    with torch.no_grad():
        return float(F.cross_entropy(net.eval()(held_x, architecture), held_y))


# The result: the best architecture within the budget as a module of its own, trained on and certified.
best = searcher.candidates(1, score=validation_loss)[0]
model = searcher.extract(best)
optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
for _ in range(STEPS):
    rows = torch.randint(len(x), (BATCH,))
    optimizer.zero_grad()
    F.cross_entropy(model.train()(x[rows]), y[rows]).backward()
    optimizer.step()
accuracy = float((model.eval()(held_x).argmax(1) == held_y).float().mean())
certificate = searcher.certify(model)
print("kept:", *(edge.name for edge in best), f"- accuracy {accuracy:.1%}")
print("the budget holds" if certificate.holds else "THE BUDGET DOES NOT HOLD")
