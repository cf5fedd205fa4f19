"""Two ranks that see a folder differently go on from one checkpoint, or say why not: real processes over gloo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stash.spot.train import saved_shards

RANK = """
import sys, shutil
from pathlib import Path
import torch.distributed as dist
from stash.core.errors import UserError
from stash.spot.sync import resuming as agreed
rank, meeting, own, late, seconds = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4], float(sys.argv[5])
dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=2)
def sleep(seconds):
    if late:
        shutil.copy(late, own)
for _ in range(2):
    try:
        found = agreed.newest(own, 0, seconds, sleep)
        print(None if found is None else found.facts["state"]["step"])
    except UserError as error:
        print(error)
"""


def _ranks(folder: Path, late: Path | None, seconds: float) -> list[list[str]]:
    """What each of the two printed, rank 0 with ``folder/one/kept`` and rank 1 with ``folder/two/kept``."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), str(folder / "meeting"), str(folder / of / "kept"),
             str(late or "") if rank else "", str(seconds)],
            stdout=subprocess.PIPE, text=True,
        )
        for rank, of in enumerate(("one", "two"))
    ]  # fmt: skip
    return [process.communicate(timeout=120)[0].splitlines() for process in started]


def _saved(folder: Path, step: int) -> Path:
    return saved_shards.save(folder, 0, {"parts": [], "state": {"step": step}}, b"")


def _folders(folder: Path) -> tuple[Path, Path]:
    made = folder / "one/kept", folder / "two/kept"
    for each in made:
        each.mkdir(parents=True)
    return made


def test_who_does_not_see_the_newest_yet_waits_for_it(tmp_path: Path) -> None:
    one, two = _folders(tmp_path)
    _saved(one, 10)
    _saved(two, 10)
    newest = _saved(one, 20)
    assert _ranks(tmp_path, newest, 60.0) == [["20", "20"], ["20", "20"]]


@pytest.mark.slow
def test_where_rank_0_begins_anew_all_do(tmp_path: Path) -> None:
    _, two = _folders(tmp_path)
    _saved(two, 10)
    assert _ranks(tmp_path, None, 60.0) == [["None", "None"], ["None", "None"]]


@pytest.mark.slow
def test_a_folder_that_is_not_shared_is_said_in_one_sentence(tmp_path: Path) -> None:
    one, _ = _folders(tmp_path)
    _saved(one, 20)
    first, second = _ranks(tmp_path, None, 0.0)
    assert first == ["20", "20"]
    assert "rank 0 goes on from shard0-00000000.ckpt, which rank 1 cannot use after 0 s" in second[0]
    assert "in a folder that all nodes see, like a bucket or NFS" in second[0]


@pytest.mark.slow
def test_where_rank_0_cannot_use_what_there_is_the_others_do_not_wait(tmp_path: Path) -> None:
    one, _ = _folders(tmp_path)
    _saved(one, 20).write_bytes(b"half")
    first, second = _ranks(tmp_path, None, 60.0)
    assert "is damaged" in first[0]
    assert second[0].startswith("rank 0 cannot use the checkpoints in ")
