"""Generated content is distributed as the real thing is."""

import numpy as np
import pytest

from stash.lab.zoo import synthesis
from stash.lab.zoo.datasets import make_dataset


def test_images_are_as_large_as_those_of_imagenet():
    sizes = [len(synthesis.make_jpeg(np.random.default_rng(index))) for index in range(80)]
    assert np.mean(sizes) == pytest.approx(110_000, rel=0.2)
    assert np.std(np.log(sizes)) == pytest.approx(synthesis.SPREAD, rel=0.2)


def test_words_follow_zipf_s_law(tmp_path):
    make_dataset("text", tmp_path / "text", 200)
    ids = np.fromfile(tmp_path / "text" / "tokens-00000.uint16.bin", dtype="<u2")
    assert ids.max() < 30_522
    assert np.mean(ids < 10) > 0.15
