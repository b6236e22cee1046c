# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A network that fits a budget
#
# From images to a certified network of at most 40 % of the multiply-adds, in a few minutes on two cores.
# Open this file in Jupyter with `jupytext`, or make a notebook of it: `jupytext --to ipynb examples/notebook.py`.

# %%
import json
from pathlib import Path

import altair as alt
import numpy as np
import onnxruntime
from PIL import Image

import budgetnet

_ = alt.renderers.enable("svg")  # charts as pictures, without a network

# %% tags=["parameters"]
OUT = Path("runs/notebook")
EPOCHS = 8
IMAGES = 6000
WIDTH = 3

# %% [markdown]
# ## Data
#
# 9,000 images of clothes are inside the package. Your own are tensors, a `Dataset`, a `DataLoader`, or a folder of
# photos.

# %%
data = budgetnet.data.load(f"embedded:size=14,limit={IMAGES}")
pixels = data.train.inputs[:20, 0].numpy()
Image.fromarray(np.hstack(pixels)).resize((20 * 42, 42), Image.Resampling.NEAREST)

# %% [markdown]
# ## The super network
#
# A graph of layers that contains many networks; here, a fabric around ResNet-20. Its table says what each edge costs.
# With `budgetnet.from_model(model, inputs)` it would be a model of yours.

# %%
net = budgetnet.spaces.resnet_fabric(width=WIDTH, channels=8, classes=10, input_shape=data.input_shape)
net

# %%
budgetnet.draw(net)

# %% [markdown]
# ## The search
#
# A budget that cannot be met would be refused here, before any training.

# %%
result = budgetnet.search(
    net,
    data.train,
    data.validation,
    data.test,
    budgets=["macs<=40%", "file_size<=400kB"],
    classes=data.classes,
    augmentation=data.augmentation,
    epochs=EPOCHS,
    out=OUT,
    quiet=True,
)
result

# %% [markdown]
# The same on four cores: edges of one colour start together, and `steps(4)` counts the colours.

# %%
budgetnet.draw(net, result.architecture, cost="steps(4)")

# %% [markdown]
# ## The certificate
#
# Every budget was measured on the network that is handed over. `certify` measures again, here and now.

# %%
result.certify()

# %% [markdown]
# ## How it was learned
#
# Every step of the run is a line of `records.jsonl`.

# %%
lines = [json.loads(line) for line in (OUT / "records.jsonl").read_text(encoding="utf-8").splitlines()]
steps = [
    {"number": i, "phase": line["phase"], "loss": line["loss"]}
    for i, line in enumerate(lines)
    if line["kind"] == "step"
]
loss = alt.Chart(alt.Data(values=steps), title="Training loss", width=560, height=200).mark_line()
loss.encode(x=alt.X("number:Q", title="record"), y=alt.Y("loss:Q"), color=alt.Color("phase:N", sort=None))

# %% [markdown]
# The candidates that were compared with shared weights before the race; those over a budget are never chosen.

# %%
archive = [json.loads(line) for line in (OUT / "archive.jsonl").read_text(encoding="utf-8").splitlines()]
points = [{"macs": one["costs"]["macs"] / 1e6, **one} for one in archive]
candidates = alt.Chart(alt.Data(values=points), title="Candidates", width=560, height=200).mark_circle()
candidates.encode(
    x=alt.X("macs:Q", title="million multiply-adds", scale=alt.Scale(zero=False)),
    y=alt.Y("validation_loss:Q", title="validation loss, shared weights", scale=alt.Scale(zero=False)),
    color=alt.Color("feasible:N", title="within all"),
)

# %% [markdown]
# ## Prediction
#
# `predict` takes images as they are, pixels from 0 to 255.

# %%
images = data.test.inputs[:8]
for logits, target in zip(result.predict(images), data.test.targets, strict=False):
    print(f"{result.labels[int(logits.argmax())]:12} is really {result.labels[int(target)]}")
print(f"{result.evaluate(data.test):.1%} of the test images are right")

# %% [markdown]
# ## Serving
#
# The file was run and compared with its source before it was kept. It needs neither torch nor budgetnet.

# %%
exported = result.export(OUT / "model.onnx", force=True)
session = onnxruntime.InferenceSession(str(exported.path))
[scores] = session.run(None, {session.get_inputs()[0].name: images.numpy().astype(np.float32)})
np.abs(scores - result.predict(images).numpy()).max()
