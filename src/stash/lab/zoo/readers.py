"""Reads generated (and like-shaped) data sets the way ordinary training code does: one sample at a time.

Knows how token files, WAV folders and click logs become tensors; ``images`` reads pictures. Files are
opened per sample, as most published data sets classes do. Does not check that a folder fits a workload:
``feed`` does that before training starts.
"""

from __future__ import annotations

import math
import os
import random
import wave
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset

from stash.core.errors import UserError
from stash.lab.zoo.synthesis import DENSE, FIELDS, RECORD_BYTES

Sample = tuple[Tensor, ...]


def labelled_files(root: Path, suffixes: Sequence[str]) -> tuple[list[str], list[tuple[Path, int]]]:
    """Class names and (file, label) pairs of a folder with one sub-folder per class, both sorted."""
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    files = [
        (root / name / file, label)
        for label, name in enumerate(classes)
        for file in sorted(os.listdir(root / name))
        if file.lower().endswith(tuple(suffixes)) and not file.startswith(".")
    ]
    return classes, files


class Tokens(Dataset[Sample]):
    """Consecutive stretches of ``*.bin`` token files, memory-mapped: ids (length,) int64.

    Files are uint16, or uint32 if named ``*.uint32.bin``. With ``answers``, two more 0-d int64 tensors
    mark where an answer starts and ends, a fixed function of the index. A file is mapped per sample (a
    map kept for long holds every page it touched), as in nanoGPT's ``get_batch``.
    """

    def __init__(self, root: Path, length: int, vocabulary: int, answers: bool) -> None:
        self.files = sorted(root.glob("*.bin"))
        self.length, self.vocabulary, self.answers = length, vocabulary, answers
        counts = [path.stat().st_size // _token_type(path).itemsize // length for path in self.files]
        self.ends = list(accumulate(counts))

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, index: int) -> Sample:
        file, offset = _locate(self.ends, index)
        path = self.files[file]
        stored = np.memmap(path, dtype=_token_type(path), mode="r")
        ids = torch.from_numpy(stored[offset * self.length : (offset + 1) * self.length].astype(np.int64))
        if (largest := int(ids.max())) >= self.vocabulary:
            raise UserError(f"{path} holds token {largest}, but the model knows ids below {self.vocabulary}")
        if not self.answers:
            return (ids,)
        start, end = sorted(random.Random(index).choices(range(self.length), k=2))
        return ids, torch.tensor(start), torch.tensor(end)


class Speech(Dataset[Sample]):
    """A folder of WAV files per word: wave (1, 8000) float32 at 8 kHz in [-1, 1], label 0-d int64.

    Mono 16-bit files at 8 or 16 kHz; shorter ones are padded with silence and longer ones cut to 1 s.
    """

    rate = 8000

    def __init__(self, root: Path) -> None:
        self.classes, self.files = labelled_files(root, (".wav",))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Sample:
        path, label = self.files[index]
        rate, signal = _read_wav(path)
        if rate == 2 * self.rate:
            taps = _half_band()
            signal = functional.conv1d(signal[None, None], taps, stride=2, padding=taps.shape[2] // 2)[0, 0]
        signal = functional.pad(signal[: self.rate], (0, max(0, self.rate - len(signal))))
        return signal.unsqueeze(0), torch.tensor(label)


class Clicks(Dataset[Sample]):
    """Criteo-like ``*.bin`` records: counters (13,) float32, categories (26,) int64, clicked 0-d float32.

    Counters become log(1 + n), as in DLRM's own reader. One ``pread`` per record.
    """

    def __init__(self, root: Path) -> None:
        self.files = sorted(root.glob("*.bin"))
        self.ends = list(accumulate(path.stat().st_size // RECORD_BYTES for path in self.files))

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, index: int) -> Sample:
        file, offset = _locate(self.ends, index)
        handle = os.open(self.files[file], os.O_RDONLY)
        try:
            data = os.pread(handle, RECORD_BYTES, offset * RECORD_BYTES)
        finally:
            os.close(handle)
        if len(data) < RECORD_BYTES:
            raise UserError(f"{self.files[file]} became shorter while it was read; make the data set again")
        record = np.frombuffer(data, dtype="<i4", count=FIELDS)
        dense = np.log1p(np.maximum(record[1 : 1 + DENSE], 0)).astype(np.float32)
        categories = record[1 + DENSE :].astype(np.int64)
        clicked = torch.tensor(float(record[0]))
        return torch.from_numpy(dense), torch.from_numpy(categories), clicked


def _locate(ends: list[int], index: int) -> tuple[int, int]:
    """File and position inside it of the sample ``index``; raises IndexError past the end."""
    if not 0 <= index < ends[-1]:
        raise IndexError(index)
    file = bisect_right(ends, index)
    return file, index - (ends[file - 1] if file else 0)


def _token_type(path: Path) -> np.dtype[np.unsignedinteger]:
    return np.dtype("<u4" if path.name.endswith(".uint32.bin") else "<u2")


def _read_wav(path: Path) -> tuple[int, Tensor]:
    """Sampling rate in Hz and samples (frames,) float32; raises UserError naming the file."""
    try:
        with wave.open(str(path), "rb") as file:
            shape = (file.getnchannels(), file.getsampwidth(), file.getframerate())
            data = file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise UserError(f"the sound {path} cannot be decoded: {error or 'it ends too early'}") from error
    if shape[:2] != (1, 2) or shape[2] not in (Speech.rate, 2 * Speech.rate):
        raise UserError(
            f"the sound {path} has {shape[0]} channel(s) of {8 * shape[1]} bits at {shape[2]} Hz; "
            "convert it to mono, 16 bits, 8000 or 16000 Hz"
        )
    return shape[2], torch.from_numpy(np.frombuffer(data, dtype="<i2").astype(np.float32) / 32768)


@cache
def _half_band() -> Tensor:
    """Low-pass taps (1, 1, 25) for halving a rate: a Hann-windowed sinc cut at a quarter of the rate."""
    time = torch.arange(-12, 13, dtype=torch.float32)
    window = torch.cos(math.pi * time / 26) ** 2
    taps = 0.5 * torch.sinc(time / 2) * window
    return (taps / taps.sum()).view(1, 1, -1)
