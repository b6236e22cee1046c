"""Half of a trained transformer that reads words and their padding: heads, hidden channels and layers go."""

import argparse

import torch
from torch import Tensor, nn

import budgetnet


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.embed, self.head = nn.Embedding(20, 32), nn.Linear(32, 2)

    def forward(self, words: Tensor, padding: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(words), src_key_padding_mask=padding)[:, 0])


(parser := argparse.ArgumentParser()).add_argument("--out", default="runs/shrink-transformer")
run = parser.parse_args().out
torch.manual_seed(0)
words, padding = torch.randint(0, 20, (1536, 12)), torch.arange(12) >= torch.randint(3, 13, (1536, 1))
answers = (torch.where(words < 10, 1, -1).masked_fill(padding, 0).sum(1) > 0).long()  # more small words than large?
parts = zip(*(tensor.split([1024, 256, 256]) for tensor in (words, padding, answers)), strict=True)
train, validation, test = (({"words": w, "padding": p}, y) for w, p, y in parts)
model = Reader()
optimizer = torch.optim.Adam(model.parameters(), 2e-3)
for rows in torch.arange(5 * 1024).remainder(1024).split(64):  # or load your own weights
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(words[rows], padding[rows]), answers[rows]).backward()
    optimizer.step()
net = budgetnet.from_model(model, {"words": words[:2], "padding": padding[:2]})
print(net.describe())
result = budgetnet.search(net, train, validation, test, budgets="macs<=50%", epochs=2, out=run, quiet=True)
print(result.certificate.show(), result.export(f"{run}/model.onnx").path, sep="\n")
print(f"right for {(result.model.eval()(**test[0]).argmax(1) == test[1]).double().mean():.0%} of the test sentences")
