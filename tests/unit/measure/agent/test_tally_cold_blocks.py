"""The beginning of a data block: what stays open is out of the page cache, and counted, before the first batch."""

from __future__ import annotations

import pytest
from data_folder import FILES, PAGES
from ranks_in_memory import job

from stash.measure.agent.data.tally import COLD, WARM, Tally
from stash.measure.agent.runner.judge import begin_data_block
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.protocol.orders import current_orders


@pytest.fixture
def rank(tally: Tally) -> OwnRank:
    """The only one of a job whose data lie in ``data``."""
    given = current_orders()
    assert given is not None
    return job(given).runner.rank


def counted(tally: Tally):
    return tally.sum_counters()["pages"], tally.sum_counters()["resident"]


def test_a_cold_block_begins_with_held_files_out_of_the_cache(
    rank: OwnRank, tally: Tally, tmp_path
):
    with (tmp_path / "data" / "0.bin").open("rb") as held:
        held.read()
        begin_data_block(rank, tally, COLD, whole_folder=False)
    assert counted(tally) == (PAGES, 0)


def test_a_warm_block_leaves_them_there(rank: OwnRank, tally: Tally, tmp_path):
    (tmp_path / "data" / "0.bin").read_bytes()
    begin_data_block(rank, tally, WARM, whole_folder=True)
    assert counted(tally) == (FILES * PAGES, PAGES)


def test_the_whole_folder_is_dropped_where_it_is_unknown_what_is_opened(
    rank: OwnRank, tally: Tally, tmp_path
):
    for path in (tmp_path / "data").iterdir():
        path.read_bytes()
    begin_data_block(rank, tally, COLD, whole_folder=True)
    assert counted(tally) == (FILES * PAGES, 0)
