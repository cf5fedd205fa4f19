"""The content of generated files: from a random generator to the bytes of one file of each kind.

Knows formats and realistic distributions. Does not know names, folders or what was written before, so
the same generator always gives the same bytes (with the same numpy and Pillow).
"""

from __future__ import annotations

import io
import math
import wave

import numpy as np
from numpy.typing import NDArray

from stash.lab.zoo import picture
from stash.lab.zoo.formats import CARDINALITIES, DENSE, FIELDS, SAMPLE_RATE, TOKENS_PER_SAMPLE, VOCABULARY


def image(random: np.random.Generator, samples: int) -> bytes:
    """One JPEG; ``samples`` is always 1."""
    return picture.jpeg(random)


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
