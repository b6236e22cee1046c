"""A folder of photos of unequal size: one sub-folder per class, random crops and flips, a limit on multiply-adds."""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

import budgetnet

out = Path(sys.argv[-1] if "--out" in sys.argv else "runs/photos")
draw = np.random.default_rng(0)
for number in range(120):  # sunsets are red at the bottom, forests green at the top
    name = ("sunset", "forest")[number % 2]
    pixels = draw.integers(0, 160, (*draw.integers(20, 40, 2), 3))
    pixels[10:, :, 0] += 90 * (name == "sunset")
    pixels[:10, :, 1] += 90 * (name == "forest")
    (out / "photos" / name).mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype(np.uint8)).save(out / "photos" / name / f"{number}.png")
data = budgetnet.data.load(f"{out / 'photos'}:size=16,validation=24")
net = budgetnet.spaces.resnet_fabric(width=1, channels=4, classes=2, input_shape=data.input_shape)
sets = {"train": data.train, "validation": data.validation, "augmentation": data.augmentation, "classes": data.classes}
result = budgetnet.search(net, **sets, budgets="macs<=60%", epochs=4, batch_size=24, out=out / "run", quiet=True)
print(result.summary, *result.labels)
print(result.export(out / "model.onnx").path, result.export(out / "model.pt2").path)
