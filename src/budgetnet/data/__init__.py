"""Data sets in memory, their batches and their augmentation, for classification and segmentation."""

from budgetnet.data.augment import Augmentation
from budgetnet.data.batching import batches, prepare
from budgetnet.data.catalogue import DATASETS, Source, load
from budgetnet.data.convert import as_split
from budgetnet.data.download import download
from budgetnet.data.options import Option, Options
from budgetnet.data.split import IGNORE, DataSet, Split, check_labels

__all__ = [
    "DATASETS",
    "IGNORE",
    "Augmentation",
    "DataSet",
    "Option",
    "Options",
    "Source",
    "Split",
    "as_split",
    "batches",
    "check_labels",
    "download",
    "load",
    "prepare",
]
