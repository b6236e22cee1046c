"""Networks as files that other programs run: ONNX, `torch.export`, safetensors; each verified before it is kept."""

from budgetnet.export.description import Description
from budgetnet.export.formats import FORMATS
from budgetnet.export.models import Exported, Model, export_network, open_model, predict, save_program, verify

__all__ = [
    "FORMATS",
    "Description",
    "Exported",
    "Model",
    "export_network",
    "open_model",
    "predict",
    "save_program",
    "verify",
]
