"""A transformer that reads words with a padding mask, shrunk: heads, hidden channels and layers go."""

import argparse

import torch
from torch import Tensor, nn

import budgetnet

LENGTH, WORDS, WIDTH = 12, 20, 32


class Reader(nn.Module):
    """Does the sentence have more words of the first half of the vocabulary than of the second?"""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, words: Tensor, padding: Tensor) -> Tensor:
        x = self.encoder(self.embed(words), src_key_padding_mask=padding)
        shown = (~padding).unsqueeze(-1).to(x.dtype)
        return self.head((x * shown).sum(1) / shown.sum(1))


def sentences(count: int) -> tuple[dict[str, Tensor], Tensor]:
    """Sentences of 3 to 12 words with their padding, and the answers."""
    words = torch.randint(0, WORDS, (count, LENGTH))
    padding = torch.arange(LENGTH)[None] >= torch.randint(3, LENGTH + 1, (count, 1))
    balance = torch.where(words < WORDS // 2, 1, -1).masked_fill(padding, 0).sum(1)
    return {"words": words, "padding": padding}, (balance > 0).long()


parser = argparse.ArgumentParser()
parser.add_argument("--out", default="runs/shrink-transformer")
run = parser.parse_args().out
torch.manual_seed(0)
train, validation, test = sentences(1024), sentences(256), sentences(256)
model = Reader()
optimizer = torch.optim.Adam(model.parameters(), 2e-3)
for step in range(80):  # or load your own weights
    rows = torch.arange(64 * step, 64 * step + 64).remainder(1024)
    loss = nn.functional.cross_entropy(model(*(tensor[rows] for tensor in train[0].values())), train[1][rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
net = budgetnet.from_model(model, {name: tensor[:2] for name, tensor in train[0].items()})
print(net.describe())
result = budgetnet.search(net, train, validation, test, budgets="macs<=50%", epochs=2, out=run, quiet=True)
print(result.certificate.show())
small = result.model.eval()
with torch.no_grad():
    outputs = small(**test[0])
accuracy = float((outputs.argmax(1) == test[1]).double().mean())
print(f"the small network is called as the model was, and is right for {accuracy:.0%} of the test sentences")
