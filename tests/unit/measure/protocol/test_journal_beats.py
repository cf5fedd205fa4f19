"""What ranks tell of themselves at every step, and what the launcher reads of it."""

import os
import time

from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.journal import Heart, read_beats


def test_the_last_beat_of_every_rank_is_read(tmp_path):
    folder, before = RunFolder(tmp_path), time.monotonic()
    first, second = Heart(folder), Heart(folder)
    first.beat(0, 1)
    second.beat(1, 4)
    for steps in (2, 3):
        first.beat(0, steps)
    found = read_beats(folder)
    assert {rank: beat.steps for rank, beat in found.items()} == {0: 3, 1: 4}
    assert {beat.pid for beat in found.values()} == {os.getpid()}
    assert all(before <= beat.when <= time.monotonic() for beat in found.values())


def test_the_files_own_time_tells_when_the_rank_lived(tmp_path):
    folder = RunFolder(tmp_path)
    heart = Heart(folder)
    heart.beat(0, 1)
    (path,) = folder.list_beat_files()
    os.utime(path, (0, 0))
    heart._dated -= 10  # as if the last second had been long ago
    heart.beat(0, 2)
    assert path.stat().st_mtime > time.time() - 60
