"""What a workload is fed: data sets and their synthetic twins alike, folders of one's own, and what does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from stash.core.errors import UserError
from stash.lab.zoo import synthesis
from stash.lab.zoo.datasets import KINDS, make_dataset
from stash.lab.zoo.feed import Synthetic, open_feed
from stash.lab.zoo.registry import workload

READERS = {"images": "resnet18", "text": "bert_base_qa", "audio": "m5", "clicks": "dlrm"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_data_set_and_its_synthetic_twin_have_the_same_shapes(kind: str, tmp_path: Path) -> None:
    expected = {
        "images": [((2, 3, 96, 96), torch.float32), ((2,), torch.int64)],
        "text": [((2, 384), torch.int64), ((2,), torch.int64), ((2,), torch.int64)],
        "audio": [((2, 1, 8000), torch.float32), ((2,), torch.int64)],
        "clicks": [((2, 13), torch.float32), ((2, 26), torch.int64), ((2,), torch.float32)],
    }
    root = make_dataset(kind, tmp_path / "data", 5).path
    item = workload(READERS[kind])
    for feed in (open_feed(item, root, image_size=96), Synthetic(item, 8, image_size=96)):
        batch = next(iter(DataLoader(feed, batch_size=2)))
        assert [(tuple(tensor.shape), tensor.dtype) for tensor in batch] == expected[kind]


def test_an_image_folder_of_one_s_own_is_read(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.JPG").write_bytes(synthesis.jpeg(np.random.default_rng(0)))
        (tmp_path / name / "notes.txt").write_text("not a picture")
    feed = open_feed(workload("resnet18"), tmp_path, image_size=32)
    assert [feed[index][1].item() for index in range(2)] == [0, 1]
    assert len(feed) == 2


def test_more_classes_than_the_model_tells_apart_are_refused(tmp_path: Path) -> None:
    for index in range(36):
        (tmp_path / f"word{index}").mkdir()
        (tmp_path / f"word{index}" / "a.wav").touch()  # told by its name alone
    with pytest.raises(UserError, match="has 36 classes, but m5 tells only 35 apart"):
        open_feed(workload("m5"), tmp_path)
