"""What a workload is fed: data sets and their synthetic twins alike, folders of one's own, and what does not fit."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from stash.core.errors import UserError
from stash.lab.zoo import synthesis
from stash.lab.zoo.datasets import make_dataset
from stash.lab.zoo.feed import Synthetic, Tokens, open_feed
from stash.lab.zoo.registry import ON_DISK, workload
from stash.lab.zoo.synthesis import LABELS

SHAPES = {
    "resnet18": [((2, 3, 96, 96), torch.float32), ((2,), torch.int64)],
    "bert_base_qa": [((2, 384), torch.int64), ((2,), torch.int64), ((2,), torch.int64)],
    "m5": [((2, 1, 8000), torch.float32), ((2,), torch.int64)],
    "dlrm": [((2, 13), torch.float32), ((2, 26), torch.int64), ((2,), torch.float32)],
}


@pytest.mark.parametrize("name", SHAPES)
def test_samples_have_the_shapes_that_a_model_takes_in_memory_and_from_files_alike(name, tmp_path):
    item = workload(name)
    feeds = [Synthetic(item, 8, image_size=96)]
    if item.kind in ON_DISK:
        feeds.append(
            open_feed(item, make_dataset(item.kind, tmp_path / "data", 5).path, image_size=96)
        )
    for feed in feeds:
        batch = next(iter(DataLoader(feed, batch_size=2)))
        assert [(tuple(tensor.shape), tensor.dtype) for tensor in batch] == SHAPES[name]


def test_an_image_folder_of_one_s_own_is_read(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.JPG").write_bytes(synthesis.make_jpeg(np.random.default_rng(0)))
        (tmp_path / name / "notes.txt").write_text("not a picture")
    feed = open_feed(workload("resnet18"), tmp_path, image_size=32)
    assert [feed[index][1].item() for index in range(2)] == [0, 1]
    assert len(feed) == 2


def test_more_classes_than_the_model_tells_apart_are_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(LABELS, "images", 1)
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.png").touch()  # told by its name alone
    with pytest.raises(UserError, match="has 2 classes, but resnet18 tells only 1 apart"):
        open_feed(workload("resnet18"), tmp_path)


def test_tokens_come_in_order_and_answers_are_fixed(tmp_path):
    np.arange(25, dtype="<u2").tofile(tmp_path / "a.uint16.bin")
    np.arange(100, 120, dtype="<u2").tofile(tmp_path / "b.uint16.bin")
    feed = Tokens(tmp_path, length=10)
    assert [feed[index][0][0].item() for index in range(len(feed))] == [0, 10, 100, 110]
    assert feed[3][1:] == feed[3][1:]
    assert all(0 <= start <= end < 10 for _, start, end in (feed[index] for index in range(4)))
    assert len({tuple(map(int, feed[index][1:])) for index in range(4)}) > 1
    np.full(10, 40_000, dtype="<u2").tofile(tmp_path / "c.uint16.bin")
    with pytest.raises(
        UserError, match=r"c\.uint16\.bin holds token 40000, but the model knows ids below 30522"
    ):
        Tokens(tmp_path, length=10)[4]
