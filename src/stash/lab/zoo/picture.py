"""Random JPEG pictures that cost as much to store and decode as photographs of ImageNet.

Knows how large such files are and how to hit a size; nothing about folders, data sets or training.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

MEAN_BYTES = 110_000
"""Mean of ImageNet's training set (about 140 GB in 1.28 million files)."""
SPREAD = 0.5
"""Standard deviation of the logarithm of a file's size."""
SMALLEST, LARGEST = 20_000, 450_000
LONG_SIDE, SHORT_SIDE = 500, 375
"""Pixels of a picture of mean size, the usual Flickr format."""
TOLERANCE = 0.05
_STRONGEST = 90.0
_TRIES = 8


def jpeg(random: np.random.Generator) -> bytes:
    """One RGB JPEG: log-normal size (mean 110 kB), about 500 x 375 pixels, portrait one time in four.

    A smooth random field plays the scene; texture of several scales is added until the file, at a
    quality typical for its bytes per pixel, is within 5 % of the size drawn.
    """
    mu = math.log(MEAN_BYTES) - SPREAD**2 / 2  # So that the mean, not the median, is MEAN_BYTES.
    target = float(np.clip(random.lognormal(mu, SPREAD), SMALLEST, LARGEST))
    width, height = _shape(random, target)
    scene = _field(random, width, height, 8, 96.0) + 128.0
    texture = _field(random, width, height, 32, 1.0) + _field(random, width, height, 128, 0.7)
    grain = random.integers(-128, 128, (height, width, 1), dtype=np.int8)
    texture += grain.astype(np.float32) / 128
    quality = _quality(target / (width * height))

    def encode(strength: float) -> bytes:
        pixels = np.clip(scene + strength * texture, 0, 255).astype(np.uint8)
        out = BytesIO()
        Image.fromarray(pixels).save(out, "JPEG", quality=quality)
        return out.getvalue()

    return _fit(encode, target)


def _shape(random: np.random.Generator, target: float) -> tuple[int, int]:
    """Width and height; larger files tend to be larger pictures."""
    scale = (target / MEAN_BYTES) ** 0.3 * random.uniform(0.9, 1.1)
    long_side, short_side = round(LONG_SIDE * scale), round(SHORT_SIDE * scale)
    return (short_side, long_side) if random.random() < 0.25 else (long_side, short_side)


def _quality(bytes_per_pixel: float) -> int:
    """A JPEG quality that leaves room to reach these bytes per pixel by texture alone."""
    for limit, quality in ((0.25, 80), (0.5, 88), (0.7, 92)):
        if bytes_per_pixel < limit:
            return quality
    return 96


def _field(random: np.random.Generator, width: int, height: int, cells: int, strength: float) -> NDArray[np.float32]:
    """Colour noise of ``cells`` patches along the width, interpolated; within +- ``strength``."""
    grid = random.integers(0, 256, (max(2, cells * height // width), cells, 3), dtype=np.uint8)
    pixels = Image.fromarray(grid).resize((width, height), Image.Resampling.BICUBIC)
    field: NDArray[np.float32] = (np.asarray(pixels, dtype=np.float32) - 128) * np.float32(strength / 128)
    return field


def _fit(encode: Callable[[float], bytes], target: float) -> bytes:
    """The first encoding within tolerance of ``target`` bytes, else the closest tried.

    Size grows with the texture's strength and flattens: false position between a weaker and a
    stronger try, in logarithms of strength, converges in a few encodings.
    """
    low, high = (math.log(0.5), 0.0), (math.log(_STRONGEST), math.inf)
    strength, best = 12.0, b""
    for _ in range(_TRIES):
        data = encode(strength)
        if not best or abs(len(data) - target) < abs(len(best) - target):
            best = data
        if abs(len(data) / target - 1) <= TOLERANCE:
            break
        point = (math.log(strength), len(data))
        low, high = (low, point) if len(data) > target else (point, high)
        if math.isinf(high[1]) or low[1] == 0:
            share = 0.5
        else:
            share = min(0.9, max(0.1, (target - low[1]) / (high[1] - low[1])))
        strength = math.exp(low[0] + share * (high[0] - low[0]))
    return best
