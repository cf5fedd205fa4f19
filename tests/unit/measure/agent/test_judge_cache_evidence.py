"""Two witnesses of where a block's bytes came from: what each of them shows, and what they refute."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stash.measure.agent.data.tally import COLD, Tally
from stash.measure.agent.runner.judge import CacheEvidence, evidence_of, why_not_cold, why_not_warm

SAMPLES, LABEL, PICTURE = 80, 4096, 100_000
COLD_READ = CacheEvidence(
    batches=10,
    files=SAMPLES,
    heads=SAMPLES * LABEL,
    pages=SAMPLES,
    called=SAMPLES * LABEL,
    storage=SAMPLES * LABEL,
)
"""A file a sample, opened by Python, and nothing else."""


def test_a_block_that_read_its_files_from_storage_was_cold() -> None:
    assert why_not_cold([COLD_READ, COLD_READ]) is None


def test_small_files_do_not_prove_the_large_ones_that_c_code_reads_from_memory() -> None:
    why = why_not_cold([replace(COLD_READ, called=SAMPLES * (LABEL + PICTURE))])
    assert why.startswith("92% of the bytes that the loader read came from memory")
    assert "--data-root" in why


def test_what_c_code_reads_from_storage_is_cold_whoever_opened_it() -> None:
    whole = SAMPLES * (LABEL + PICTURE)
    assert why_not_cold([replace(COLD_READ, called=whole, storage=whole)]) is None
    unseen = CacheEvidence(batches=10, called=whole, storage=whole)
    assert why_not_cold([unseen]) is None


def test_reading_the_head_of_a_file_twice_is_no_reading_from_memory() -> None:
    # numpy reads the header of an array through a buffer that holds all of a small file, then reads it again
    assert why_not_cold([replace(COLD_READ, called=2 * SAMPLES * LABEL)]) is None


def test_one_rank_in_another_ones_wake_is_no_reading_from_memory() -> None:
    first = replace(COLD_READ, heads=0, storage=2 * SAMPLES * LABEL)  # the kernel read ahead
    assert why_not_cold([first, replace(COLD_READ, heads=0, storage=0)]) is None


def test_a_loader_that_reads_nothing_shows_no_coldness() -> None:
    for nothing in (
        CacheEvidence(),
        replace(COLD_READ, called=0, storage=0),
        CacheEvidence(batches=10, called=900, storage=0),
    ):
        assert "no file was seen being read" in str(why_not_cold([nothing]))
    # a module, read by a worker's first batch
    imported = CacheEvidence(batches=10, called=4000, storage=4096)
    assert "no file was seen being read" in str(why_not_cold([imported]))


@pytest.mark.parametrize("resident", [0, SAMPLES])
def test_without_counters_the_page_cache_alone_is_used(resident: int) -> None:
    alone = replace(COLD_READ, called=None, storage=None, resident=resident)
    assert (why_not_cold([alone]) is None) == (resident == 0)


def test_where_residency_is_hidden_the_counters_alone_are_used() -> None:
    hidden = replace(COLD_READ, pages=0)
    assert why_not_cold([hidden]) is None
    assert why_not_cold([replace(hidden, storage=0, heads=0)]) is not None
    assert why_not_cold([replace(hidden, called=None, storage=None)]) is not None


def test_a_file_system_with_a_cache_of_its_own_is_named() -> None:
    networked = replace(COLD_READ, foreign=SAMPLES * LABEL, file_system="nfs4")
    assert "on nfs4, which has a cache of its own" in str(why_not_cold([COLD_READ, networked]))
    settings = replace(COLD_READ, foreign=LABEL, file_system="nfs4")  # only a small part lies there
    assert why_not_cold([settings]) is None


def test_a_warm_block_that_reads_from_storage_makes_prep_contain_reading() -> None:
    memory = replace(COLD_READ, storage=0)
    assert why_not_warm([memory], [COLD_READ]) is None
    why = why_not_warm([replace(memory, storage=SAMPLES * LABEL // 2)], [COLD_READ])
    assert "read 50% of what it fetched with files out of memory from storage" in why
    alone = why_not_warm([replace(memory, storage=SAMPLES * LABEL // 4)], [])
    assert "25% of all that it read" in str(alone)


def test_of_what_is_mapped_a_warm_block_is_told_by_the_cold_one() -> None:
    mapped = replace(COLD_READ, files=0, heads=0, called=0)
    assert why_not_warm([replace(mapped, storage=LABEL)], [mapped]) is None
    assert why_not_warm([mapped], [mapped]) is not None
    # the kernel does not tell
    assert why_not_warm([replace(COLD_READ, storage=None)], [COLD_READ]) is None


def test_one_batch_without_counters_leaves_them_unknown(tmp_path: Path) -> None:
    tally = Tally(str(tmp_path / "tally"))
    tally.set_mode(COLD)
    tally.add(1, {"batches": 1, "called": 10, "storage": 20, "files": 3})
    assert evidence_of(tally) == CacheEvidence(batches=1, files=3, called=10, storage=20)
    tally.add(2, {"batches": 1, "not_reported": 1})
    tally.name_file_system("zfs")
    assert evidence_of(tally) == CacheEvidence(batches=2, files=3, file_system="zfs")
