"""A folder of data files on a real disk."""

import os

import pytest

from stash.core import pagecache
from stash.measure.agent.data import reads

FILES, PAGES = 3, 16


def fill(folder, files=FILES, pages=PAGES):
    """So many files of so many pages each, written out; skips the test on a RAM disk, which nothing leaves."""
    folder.mkdir()
    for number in range(files):
        with (folder / f"{number}.bin").open("wb") as file:
            file.write(os.urandom(pages * pagecache.PAGE))
            file.flush()
            os.fsync(file.fileno())
    if reads.examine_files(map(str, folder.iterdir()), cold=True)["resident"]:
        pytest.skip("the temporary folder is a RAM disk")
