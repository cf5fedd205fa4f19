"""Counters shared by a training process and its loader's workers."""

from __future__ import annotations

import multiprocessing

from stash.measure.agent.data.tally import WARM, Tally


def test_a_tally_tells_what_each_process_that_made_batches_took(tmp_path):
    own = Tally(str(tmp_path / "tally"))
    own.set_mode(WARM)
    own.add(2, {"batches": 1, "making_ns": 7})
    own.add(1, {"batches": 3, "making_ns": 5})
    own.add(3, {"files": 1})
    assert [(counts["batches"], counts["making_ns"]) for counts in own.list_makers()] == [
        (3, 5),
        (1, 7),
    ]
    own.set_mode(WARM)
    assert own.list_makers() == []


def test_each_worker_has_a_slot_of_its_own_whichever_loader_it_is_of(tmp_path):
    own = Tally(str(tmp_path / "tally"))
    own.set_mode(WARM)
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_make_one_batch, args=(own,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [counts["batches"] for counts in own.list_makers()] == [2, 2, 2]
    assert Tally(own.path).workers_slot() == 4  # whoever opens it forgets nobody
    assert own.own_ns == 0


def _make_one_batch(shared: Tally):
    shared.add(shared.workers_slot(), {"batches": 1})
    shared.add(shared.workers_slot(), {"batches": 1})
