"""The values that options take, known without importing torch; a test compares them with what the package accepts."""

DEVICES = ("auto", "cpu", "cuda", "mps", "xpu")
TRAINING_PRECISIONS = ("fp32", "bf16")
OPTIMIZERS = ("sgd", "adamw")
SCHEDULES = ("one-cycle", "cosine", "constant")
ENGINES = ("local", "dask")
SCALES = ("reduced", "full")
FORMATS = ("onnx", "torch", "safetensors")
PRECISIONS = ("fp32", "int8")
THEMES = ("auto", "light", "dark")
ACCOUNTINGS = ("true", "paper")
ALLOCATIONS = ("critical-path", "dfs")
TRACKERS = ("tensorboard",)
SHELLS = ("bash", "zsh", "fish")

AXES = ("budgets", "recipes", "seeds", "penalties", "architectures")
"""Options of a sweep that take several values."""
