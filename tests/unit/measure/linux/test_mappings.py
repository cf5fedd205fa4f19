"""Mapped files: let go of, so that they can leave the page cache, and never at the price of what is in no file."""

import mmap

import data_folder
import pytest
from data_folder import PAGES

from stash.measure.agent.data import reads
from stash.measure.linux import mappings


@pytest.fixture
def file(tmp_path):
    data_folder.fill(tmp_path / "data")
    return tmp_path / "data" / "0.bin"


def held(path):
    return [file for file in mappings.held_files() if file.path == str(path)]


def resident(path):
    """Pages left in memory after eviction."""
    return reads.examine_files([str(path)], cold=True)["resident"]


@pytest.mark.parametrize("access", [mmap.ACCESS_READ, mmap.ACCESS_WRITE, mmap.ACCESS_COPY])
def test_a_mapped_file_leaves_the_cache_only_when_it_was_let_go(file, access):
    # GIVEN a file whose every page was read through a mapping, which outlives its descriptor
    with file.open("r+b") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=access)
    content = file.read_bytes()
    assert mapped[:] == content
    assert resident(file) == PAGES
    # WHEN this process lets go of it THEN eviction works, and what is read afterwards is what the file holds
    (found,) = held(file)
    mappings.let_go(list(found.regions))
    assert resident(file) == 0
    assert mapped[:] == content


def test_changes_to_a_private_mapping_are_kept(file):
    # GIVEN a copy-on-write mapping that was written into
    with file.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
    mapped[5:10] = b"mine!"
    # WHEN its file is let go of THEN the change is still there
    for found in held(file):
        mappings.let_go(list(found.regions))
    assert mapped[5:10] == b"mine!"
    assert b"mine!" not in file.read_bytes()


def test_changes_to_a_shared_mapping_reach_the_file(file):
    with file.open("r+b") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_WRITE)
    mapped[5:10] = b"ours!"
    for found in held(file):
        mappings.let_go(list(found.regions))
    resident(file)
    assert file.read_bytes()[5:10] == b"ours!" == mapped[5:10]
