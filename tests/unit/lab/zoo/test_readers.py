"""Token files, sounds and click logs as tensors."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from stash.core.errors import UserError
from stash.lab.zoo.datasets import make_dataset
from stash.lab.zoo.feed import Speech, Tokens, open_feed
from stash.lab.zoo.registry import workload


def test_clicks_are_read_across_files(tmp_path: Path) -> None:
    root = make_dataset("clicks", tmp_path / "data", 50_002).path
    feed = open_feed(workload("dlrm"), root)
    stored = np.fromfile(root / "clicks-00001.bin", dtype="<i4").reshape(-1, 40)
    dense, categories, clicked = feed[50_001]
    assert clicked == stored[1, 0]
    assert categories.tolist() == stored[1, 14:].tolist()
    assert dense == pytest.approx(np.log1p(stored[1, 1:14]), rel=1e-6)
    with pytest.raises(IndexError):
        feed[50_002]


def test_tokens_come_in_order_and_answers_are_fixed(tmp_path: Path) -> None:
    np.arange(25, dtype="<u2").tofile(tmp_path / "a.uint16.bin")
    np.arange(100, 120, dtype="<u2").tofile(tmp_path / "b.uint16.bin")
    feed = Tokens(tmp_path, length=10)
    assert [feed[index][0][0].item() for index in range(len(feed))] == [0, 10, 100, 110]
    assert feed[3][1:] == feed[3][1:]
    assert all(0 <= start <= end < 10 for _, start, end in (feed[index] for index in range(4)))
    assert len({tuple(map(int, feed[index][1:])) for index in range(4)}) > 1
    np.full(10, 40_000, dtype="<u2").tofile(tmp_path / "c.uint16.bin")
    with pytest.raises(UserError, match=r"c\.uint16\.bin holds token 40000, but the model knows ids below 30522"):
        Tokens(tmp_path, length=10)[4]


def write_tone(path: Path, hertz: float, rate: int = 16_000, seconds: float = 1.0) -> None:
    path.parent.mkdir(exist_ok=True)
    time = np.arange(int(rate * seconds)) / rate
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.sin(2 * np.pi * hertz * time) * 20_000).astype("<i2").tobytes())


def test_short_sounds_are_padded_and_odd_ones_refused(tmp_path: Path) -> None:
    write_tone(tmp_path / "word" / "a.wav", 500, rate=8000, seconds=0.5)
    write_tone(tmp_path / "word" / "b.wav", 500, rate=44_100)
    write_tone(tmp_path / "word" / "d.wav", 500)
    (tmp_path / "word" / "c.wav").write_bytes(b"RIFF")
    feed = Speech(tmp_path)
    signal, _ = feed[0]
    assert signal.shape == (1, 8000)
    assert not signal[0, 4000:].any()
    assert feed[3][0].std().item() == pytest.approx(20_000 / 32_768 / 2**0.5, rel=0.02)
    with pytest.raises(UserError, match=r"b\.wav has 1 channel\(s\) of 16 bits at 44100 Hz"):
        feed[1]
    with pytest.raises(UserError, match=r"c\.wav cannot be decoded"):
        feed[2]
