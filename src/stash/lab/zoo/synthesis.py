"""The content of generated files: formats, random samples, JPEG pictures that cost what photographs cost."""

from __future__ import annotations

import math
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from stash.core.imports import require_package

# Random JPEG pictures that cost as much to store and decode as photographs of ImageNet.

MEAN_BYTES = 110_000
"""Mean of ImageNet's training set (about 140 GB in 1.28 million files)."""
SPREAD = 0.5
"""Standard deviation of the logarithm of a file's size."""
SMALLEST, LARGEST = 20_000, 450_000
BYTES_PER_PIXEL, QUALITY = 0.577, 90
"""Of ImageNet's files (110 kB at 500 x 375 pixels); ``TEXTURE`` gives as many at this quality, within 3 %."""
TEXTURE = 40.0


def make_jpeg(random: np.random.Generator) -> bytes:
    """One RGB JPEG: log-normal size (mean 110 kB), 4 x 3 of as many pixels as that takes, portrait one time in four.

    A smooth random field plays the scene, finer colour noise and grain its texture.
    """
    mu = math.log(MEAN_BYTES) - SPREAD**2 / 2  # So that the mean, not the median, is MEAN_BYTES.
    size = float(np.clip(random.lognormal(mu, SPREAD), SMALLEST, LARGEST))
    width = round(math.sqrt(size / BYTES_PER_PIXEL * 4 / 3))
    height = round(width * 3 / 4)
    if random.random() < 0.25:
        width, height = height, width
    pictures = require_package("PIL.Image", "making pictures", "pillow")
    grain = random.integers(-128, 128, (height, width, 1), dtype=np.int8).astype(np.float32) * (
        TEXTURE / 128
    )
    scene = 128.0 + _field(random, width, height, 8, 96.0) + grain
    scene += _field(random, width, height, width // 16, TEXTURE)
    out = BytesIO()
    pictures.fromarray(np.clip(scene, 0, 255).astype(np.uint8)).save(out, "JPEG", quality=QUALITY)
    return out.getvalue()


def _field(
    random: np.random.Generator, width: int, height: int, cells: int, strength: float
) -> NDArray[np.float32]:
    """Colour noise of ``cells`` patches along the width, interpolated; within +- ``strength``."""
    grid = random.integers(0, 256, (max(2, cells * height // width), cells, 3), dtype=np.uint8)
    pictures = require_package("PIL.Image", "making pictures", "pillow")
    pixels = pictures.fromarray(grid).resize((width, height), pictures.Resampling.BICUBIC)
    field: NDArray[np.float32] = (np.asarray(pixels, dtype=np.float32) - 128) * np.float32(
        strength / 128
    )
    return field


# How samples lie in files: what generators, readers and models agree on.

IMAGE_CLASSES = 100
"""Folders that generated pictures are spread over."""

LABELS = {"images": 1000, "audio": 35}
"""By kind of data, as many as models of it distinguish: of ImageNet, of Speech Commands v2 (arXiv 1804.03209)."""
VOCABULARY = 30_522
"""Of BERT, uncased pieces."""
TOKENS_PER_SAMPLE = 1024


def token_sample(random: np.random.Generator, samples: int) -> bytes:
    """``samples`` x 1024 little-endian uint16 token ids, frequencies falling as 1/rank (Zipf)."""
    # ranks are log-uniform, the continuous form of the law with exponent 1
    size = float(VOCABULARY)
    ranks = np.exp(random.random(samples * TOKENS_PER_SAMPLE) * math.log(size)) - 1
    return bytes(np.minimum(ranks, size - 1).astype("<u2").tobytes())
