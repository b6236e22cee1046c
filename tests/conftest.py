"""Tests run on one thread: a forked child has no others, and sums in another order differ in their last bits."""

import torch

torch.set_num_threads(1)
