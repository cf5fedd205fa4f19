"""The content of generated files: formats, random samples, JPEG pictures that cost what photographs cost."""

from __future__ import annotations

import io
import math
import wave
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from stash.core.imports import require_package
from stash.lab.zoo.registry import LABELS

# Random JPEG pictures that cost as much to store and decode as photographs of ImageNet.

MEAN_BYTES = 110_000
"""Mean of ImageNet's training set (about 140 GB in 1.28 million files)."""
SPREAD = 0.5
"""Standard deviation of the logarithm of a file's size."""
SMALLEST, LARGEST = 20_000, 450_000
BYTES_PER_PIXEL, QUALITY = 0.577, 90
"""Of ImageNet's files (110 kB at 500 x 375 pixels); ``TEXTURE`` gives as many at this quality, within 3 %."""
TEXTURE = 40.0


def jpeg(random: np.random.Generator) -> bytes:
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
    grain = random.integers(-128, 128, (height, width, 1), dtype=np.int8).astype(np.float32) * (TEXTURE / 128)
    scene = 128.0 + _field(random, width, height, 8, 96.0) + grain
    scene += _field(random, width, height, width // 16, TEXTURE)
    out = BytesIO()
    pictures.fromarray(np.clip(scene, 0, 255).astype(np.uint8)).save(out, "JPEG", quality=QUALITY)
    return out.getvalue()


def _field(random: np.random.Generator, width: int, height: int, cells: int, strength: float) -> NDArray[np.float32]:
    """Colour noise of ``cells`` patches along the width, interpolated; within +- ``strength``."""
    grid = random.integers(0, 256, (max(2, cells * height // width), cells, 3), dtype=np.uint8)
    pictures = require_package("PIL.Image", "making pictures", "pillow")
    pixels = pictures.fromarray(grid).resize((width, height), pictures.Resampling.BICUBIC)
    field: NDArray[np.float32] = (np.asarray(pixels, dtype=np.float32) - 128) * np.float32(strength / 128)
    return field


# How samples lie in files: what generators, readers and models agree on.

IMAGE_CLASSES = 100
"""Folders that generated pictures are spread over."""

VOCABULARY = 30_522
"""Of BERT, uncased pieces."""
TOKENS_PER_SAMPLE = 1024

SAMPLE_RATE = 16_000
"""Hertz, 16 bits, mono, as in Speech Commands."""
WORDS = LABELS["audio"]

DENSE = 13
"""Integer counters per record."""
CARDINALITIES = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
"""Distinct values of the 26 categories of the Kaggle Display Advertising data (facebookresearch/dlrm)."""
FIELDS = 1 + DENSE + len(CARDINALITIES)
"""int32 fields of a record: label, counters, categories."""
RECORD_BYTES = 4 * FIELDS


# One file of each kind: the same generator always gives the same bytes (with the same numpy and Pillow).


def image(random: np.random.Generator, samples: int) -> bytes:
    """One JPEG; ``samples`` is always 1."""
    return jpeg(random)


def tokens(random: np.random.Generator, samples: int) -> bytes:
    """``samples`` x 1024 little-endian uint16 token ids, frequencies falling as 1/rank (Zipf)."""
    ranks = _zipf(random, np.full(samples * TOKENS_PER_SAMPLE, float(VOCABULARY)))
    return ranks.astype("<u2").tobytes()


def speech(random: np.random.Generator, samples: int) -> bytes:
    """One spoken-word-like WAV file: a gliding tone with overtones and noise, 1 s (one in ten shorter)."""
    seconds = 1.0 if random.random() < 0.9 else random.uniform(0.5, 1.0)
    time = np.arange(int(SAMPLE_RATE * seconds), dtype=np.float32) / SAMPLE_RATE
    pitch = random.uniform(80, 250)
    phase = 2 * math.pi * pitch * (time + random.uniform(-0.2, 0.2) * time**2)
    voice = sum(np.sin(k * phase) / k for k in range(1, 9))
    word = np.exp(-(((time - seconds / 2) / random.uniform(0.1, 0.25)) ** 2))
    signal = 0.25 * voice * word + 0.01 * random.standard_normal(len(time), dtype=np.float32)
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes((np.clip(signal, -1, 1) * 32767).astype("<i2").tobytes())
    return out.getvalue()


def clicks(random: np.random.Generator, samples: int) -> bytes:
    """``samples`` Criteo-like records of 40 little-endian int32: label, 13 counters, 26 category ids.

    One record in four is a click, as in Criteo's data; counters are skewed, categories follow Zipf.
    """
    records = np.empty((samples, FIELDS), dtype="<i4")
    records[:, 0] = random.random(samples) < 0.25
    records[:, 1 : 1 + DENSE] = np.expm1(random.exponential(1.5, (samples, DENSE)).clip(max=15))
    sizes = np.broadcast_to(np.asarray(CARDINALITIES, dtype=np.float64), (samples, len(CARDINALITIES)))
    records[:, 1 + DENSE :] = _zipf(random, sizes)
    return records.tobytes()


def _zipf(random: np.random.Generator, sizes: NDArray[np.float64]) -> NDArray[np.int64]:
    """Ids below ``sizes`` with log-uniform ranks, the continuous form of Zipf's law with exponent 1."""
    ranks = np.exp(random.random(sizes.shape) * np.log(sizes)) - 1
    ids: NDArray[np.int64] = np.minimum(ranks, sizes - 1).astype(np.int64)
    return ids
