"""Generated data sets: deterministic, resumable, realistic in size, and read back in the right shapes."""

from __future__ import annotations

import errno
import json
import os
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from stash.base.errors import UserError
from stash.lab.zoo import picture, workload
from stash.lab.zoo.datasets import KINDS, make_dataset
from stash.lab.zoo.feed import open_feed, synthetic_feed
from stash.lab.zoo.formats import CARDINALITIES
from stash.lab.zoo.manifest import MANIFEST
from stash.lab.zoo.readers import Speech, Tokens

COUNTS = {"images": 5, "text": 3, "audio": 5, "clicks": 70_000}
READERS = {"images": "resnet18", "text": "bert_base_qa", "audio": "m5", "clicks": "dlrm"}


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_makes_the_same_bytes(kind: str, tmp_path: Path) -> None:
    made = [
        make_dataset(kind, tmp_path / name, COUNTS[kind], seed) for name, seed in zip("abc", (1, 1, 2), strict=True)
    ]
    first, again, other = (contents(item.path) for item in made)
    assert first == again
    assert first.keys() == other.keys()
    assert all(first[name] != other[name] for name in first)
    assert made[0].bytes == sum(map(len, first.values())) - len(first[MANIFEST])


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_data_set_is_completed(kind: str, tmp_path: Path) -> None:
    made = make_dataset(kind, tmp_path / "data", COUNTS[kind])
    whole = contents(made.path)
    lost = sorted(name for name in whole if name != MANIFEST)[-1]
    (made.path / lost).unlink()
    (made.path / lost).with_name(f".{Path(lost).name}.tmp").write_bytes(b"half")
    again = make_dataset(kind, made.path)  # Neither count nor seed: those of before.
    assert again.new_files == 1
    assert contents(made.path) == whole


def test_nothing_is_written_when_nothing_is_missing(tmp_path: Path) -> None:
    make_dataset("audio", tmp_path / "data", 4)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert make_dataset("audio", tmp_path / "data", 4).new_files == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_short_file_is_written_again(tmp_path: Path) -> None:
    made = make_dataset("clicks", tmp_path / "data", 100)
    file = made.path / "clicks-00000.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[:1000])
    make_dataset("clicks", made.path)
    assert file.read_bytes() == whole


def test_more_samples_can_be_added_later(tmp_path: Path) -> None:
    make_dataset("images", tmp_path / "data", 2)
    few = contents(tmp_path / "data")
    more = make_dataset("images", tmp_path / "data", 4)
    assert (more.count, more.new_files) == (4, 2)
    assert few.items() - contents(tmp_path / "data").items() == {(MANIFEST, few[MANIFEST])}


def test_progress_counts_up_to_the_whole(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    make_dataset("audio", tmp_path / "data", 100, progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, 100)
    assert seen[-1] == (100, 100)
    assert seen == sorted(seen)


def test_every_file_is_flushed_before_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name))
    make_dataset("audio", tmp_path / "data", 3)
    assert {f".{index:08d}.wav.tmp" for index in range(3)} <= set(flushed)


def test_a_full_disk_is_one_sentence_and_keeps_finished_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dataset("audio", tmp_path / "data", 3)

    def full(handle: int) -> None:
        if os.readlink(f"/proc/self/fd/{handle}").endswith(".wav.tmp"):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="is full; finished files are kept") as caught:
        make_dataset("audio", tmp_path / "data", 6)
    assert "\n" not in str(caught.value)
    assert len(list(tmp_path.rglob("*.wav"))) == 3
    assert list(tmp_path.rglob("*.tmp")) == []
    with pytest.raises(UserError, match="is unfinished"):
        open_feed(workload("m5"), tmp_path / "data")


def test_a_read_only_folder_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UserError, match="Read-only file system; name a folder you may write to"):
        make_dataset("text", tmp_path / "data", 1)


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("do not touch")
    with pytest.raises(UserError, match="files that Stash did not make"):
        make_dataset("text", tmp_path, 1)
    with pytest.raises(UserError, match="is a file"):
        make_dataset("text", tmp_path / "thesis.txt", 1)
    assert contents(tmp_path) == {"thesis.txt": b"do not touch"}


def test_a_folder_with_half_a_manifest_is_ours(tmp_path: Path) -> None:
    (tmp_path / f".{MANIFEST}.0123abcd.tmp").write_text("{")
    assert make_dataset("text", tmp_path, 1).count == 1


@pytest.mark.parametrize(
    ("kind", "count", "seed", "message"),
    [
        ("audio", None, None, "already holds text, not audio"),
        ("text", None, 7, "made with seed 0, not 7"),
        ("text", 1, None, "made for 2 samples, more than 1"),
        ("text", 0, None, "at least one sample"),
        ("text", None, -1, "a whole number from 0"),
        ("video", None, None, "choose one of images, text, audio, clicks"),
    ],
)
def test_a_request_that_contradicts_the_folder_is_refused(
    kind: str, count: int | None, seed: int | None, message: str, tmp_path: Path
) -> None:
    make_dataset("text", tmp_path / "data", 2)
    with pytest.raises(UserError, match=message):
        make_dataset(kind, tmp_path / "data", count, seed)


@pytest.mark.parametrize("damage", ["{", "[]", '{"format": 1, "kind": "text"}'])
def test_a_damaged_manifest_is_named(damage: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(damage)
    with pytest.raises(UserError, match=f"{MANIFEST} is damaged"):
        make_dataset("text", tmp_path, 1)


def test_images_are_as_large_as_those_of_imagenet() -> None:
    sizes = [len(picture.jpeg(np.random.default_rng(index))) for index in range(250)]
    assert np.mean(sizes) == pytest.approx(110_000, rel=0.2)
    assert np.std(np.log(sizes)) == pytest.approx(picture.SPREAD, rel=0.2)


def test_words_and_categories_follow_zipf_s_law(tmp_path: Path) -> None:
    make_dataset("text", tmp_path / "text", 200)
    ids = np.fromfile(tmp_path / "text" / "tokens-00000.uint16.bin", dtype="<u2")
    assert ids.max() < 30_522
    assert np.mean(ids < 10) > 0.15
    make_dataset("clicks", tmp_path / "clicks", 2000)
    records = np.fromfile(tmp_path / "clicks" / "clicks-00000.bin", dtype="<i4").reshape(-1, 40)
    assert np.mean(records[:, 0]) == pytest.approx(0.25, abs=0.05)
    assert (records[:, 14:] < CARDINALITIES).all()
    assert (records >= 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_data_set_and_its_synthetic_twin_have_the_same_shapes(kind: str, tmp_path: Path) -> None:
    expected = {
        "images": [((2, 3, 96, 96), torch.float32), ((2,), torch.int64)],
        "text": [((2, 384), torch.int64), ((2,), torch.int64), ((2,), torch.int64)],
        "audio": [((2, 1, 8000), torch.float32), ((2,), torch.int64)],
        "clicks": [((2, 13), torch.float32), ((2, 26), torch.int64), ((2,), torch.float32)],
    }
    root = make_dataset(kind, tmp_path / "data", COUNTS[kind]).path
    item = workload(READERS[kind])
    for feed in (open_feed(item, root, image_size=96), synthetic_feed(item, 8, image_size=96)):
        batch = next(iter(DataLoader(feed, batch_size=2)))
        assert [(tuple(tensor.shape), tensor.dtype) for tensor in batch] == expected[kind]


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
    np.arange(100, 120, dtype="<u4").tofile(tmp_path / "b.uint32.bin")
    feed = Tokens(tmp_path, length=10, vocabulary=1000, answers=True)
    assert [feed[index][0][0].item() for index in range(len(feed))] == [0, 10, 100, 110]
    assert feed[3][1:] == feed[3][1:]
    assert all(0 <= start <= end < 10 for _, start, end in (feed[index] for index in range(4)))
    assert len({tuple(map(int, feed[index][1:])) for index in range(4)}) > 1
    with pytest.raises(UserError, match=r"b\.uint32\.bin holds token 109"):
        Tokens(tmp_path, length=10, vocabulary=50, answers=False)[2]


def write_tone(path: Path, hertz: float, rate: int = 16_000, seconds: float = 1.0) -> None:
    path.parent.mkdir(exist_ok=True)
    time = np.arange(int(rate * seconds)) / rate
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.sin(2 * np.pi * hertz * time) * 20_000).astype("<i2").tobytes())


def test_resampling_keeps_low_tones_and_removes_those_that_would_alias(tmp_path: Path) -> None:
    for hertz in (500, 7000):
        write_tone(tmp_path / "word" / f"{hertz}.wav", hertz)
    high, low = (Speech(tmp_path)[index][0] for index in (1, 0))
    assert low.std().item() == pytest.approx(20_000 / 32_768 / 2**0.5, rel=0.02)
    assert high.std() < 0.02 * low.std()


def test_short_sounds_are_padded_and_odd_ones_refused(tmp_path: Path) -> None:
    write_tone(tmp_path / "word" / "a.wav", 500, rate=8000, seconds=0.5)
    write_tone(tmp_path / "word" / "b.wav", 500, rate=44_100)
    (tmp_path / "word" / "c.wav").write_bytes(b"RIFF")
    feed = Speech(tmp_path)
    signal, _ = feed[0]
    assert signal.shape == (1, 8000)
    assert not signal[0, 4000:].any()
    with pytest.raises(UserError, match=r"b\.wav has 1 channel\(s\) of 16 bits at 44100 Hz"):
        feed[1]
    with pytest.raises(UserError, match=r"c\.wav cannot be decoded"):
        feed[2]


def test_an_image_folder_of_one_s_own_is_read(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.JPG").write_bytes(picture.jpeg(np.random.default_rng(0)))
        (tmp_path / name / "notes.txt").write_text("not a picture")
    feed = open_feed(workload("resnet18"), tmp_path, image_size=32)
    assert [feed[index][1].item() for index in range(2)] == [0, 1]
    assert len(feed) == 2


def test_more_classes_than_the_model_tells_apart_are_refused(tmp_path: Path) -> None:
    for index in range(36):
        write_tone(tmp_path / f"word{index}" / "a.wav", 500, rate=8000, seconds=0.01)
    with pytest.raises(UserError, match="has 36 classes, but m5 tells only 35 apart"):
        open_feed(workload("m5"), tmp_path)


def test_the_manifest_says_what_was_made(tmp_path: Path) -> None:
    made = make_dataset("text", tmp_path / "data", 2, 5)
    assert json.loads((made.path / MANIFEST).read_text()) == {
        "kind": "text", "seed": 5, "count": 2, "complete": True, "bytes": 4096, "format": 1,
    }  # fmt: skip
