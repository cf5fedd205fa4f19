"""The zoo's tests compute with one thread: their tensors are not worth more, and the cores are shared."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)
