"""Runs of studies in a world that only pretends: nothing finished is lost, nothing rented is left, limits hold."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some
from studies import LOCAL, DeadOnKill, Ending, FakeWorld, Killed, reading_of, run, states, study

from stash.core.errors import StoreError, UserError
from stash.study.study_folder import folder_of_study

SIX = LOCAL.replace("[32, 64]", "[32, 64, 128]")


@pytest.mark.parametrize("at", [5, 62, 125, 190, 239])
def test_whenever_the_controller_is_killed_the_next_one_ends_with_the_same_cells(tmp_path, at):
    whole = FakeWorld()
    world = DeadOnKill()
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    run(study(LOCAL, tmp_path / "whole"), whole)
    file = study(LOCAL, tmp_path / "killed")
    world.kill_at = world.clock + at
    with pytest.raises(Killed):
        run(file, world)
    world.dead = False
    run(file, world)
    assert states(file) == ["done"] * 4
    assert sorted(world.started) == sorted(whole.started)  # adopted, never run twice


def test_a_failed_cell_keeps_its_reason_and_is_retried_only_when_asked(tmp_path):
    file = study(LOCAL, tmp_path)
    bad = FakeWorld(
        lambda title: (
            Ending(1, "x\nerror: the data are damaged\n") if "vgg11 batch 32" in title else Ending()
        )
    )
    run(file, bad)
    failed = [each for each in reading_of(file).standings.values() if each.state == "failed"]
    assert [each.why for each in failed] == ["the data are damaged"]
    world = FakeWorld()
    run(file, world)
    assert world.started == []
    run(file, world, retry=True)
    assert [title.split(" on ")[0] for title in world.started] == ["vgg11 batch 32"]
    assert states(file) == ["done"] * 4


def test_out_of_memory_spares_larger_batches_and_further_repeats(tmp_path):
    file = study(SIX + "repeats: 2\n", tmp_path)
    text = "error: vgg11 ran out of memory in step 1 of solo; try --batch 32"
    world = FakeWorld(lambda title: Ending(1, text) if "vgg11 batch 64" in title else Ending())
    outcome = run(file, world)
    assert sum("vgg11 batch 64" in title for title in world.started) == 1
    assert not any("vgg11 batch 128" in title for title in world.started)
    assert any("batches from 64 on were not tried" in sentence for sentence in outcome.not_started)
    assert sorted(states(file)) == [*["done"] * 8, *["larger"] * 3, "out of memory"]


def test_a_place_whose_first_cell_fails_is_left(tmp_path):
    outcome = run(
        study(LOCAL, tmp_path), world := FakeWorld(lambda _: Ending(1, "error: no such thing"))
    )
    assert len(world.started) == 1
    assert "nothing more was tried" in outcome.not_started[0]


def test_two_controllers_never_run_one_study(tmp_path):
    file = study(LOCAL, tmp_path)
    with (
        folder_of_study(file.path).lock(),
        pytest.raises(UserError, match="another `stash characterize`"),
    ):
        run(file, FakeWorld())


def test_a_store_that_vanishes_leaves_the_profile_in_its_folder(tmp_path):
    def vanished(cell):
        raise StoreError("s3://bucket cannot be reached")

    file = study(LOCAL, tmp_path)
    notes = []
    run(file, FakeWorld(), notes=notes, keep=vanished)
    assert states(file) == ["done"] * 4
    assert any(
        "stays in the cell's folder: s3://bucket cannot be reached" in line for line in notes
    )
    folder = folder_of_study(file.path)
    assert all(folder.cell(cell.id).profile.exists() for cell in reading_of(file).cells)


PRICES = {"p3.2xlarge": 3.0, "p3.8xlarge": 12.0}
STUDY = """
workloads: [{zoo: resnet18}]
batches: [16, 32, 64]
targets:
- {engine: sky, instance: p3.2xlarge, price: "$3/h"}
- {engine: sky, instance: p3.8xlarge, price: "$12/h"}
"""
ENDING = 30.0 + 60.0
"""Seconds: to end in order, and what passes by the fake clock while clusters are taken down, one after the other."""
Taken = some.lists(some.floats(1, 20_000), min_size=6, max_size=6)


def ran(took, boot, down_fails, dollars):
    """The dollars that the cloud of a run with this limit has billed."""
    each = iter(took * 4)
    world = FakeWorld(lambda _: Ending(seconds=next(each)), boot=boot, down_fails=down_fails)
    with tempfile.TemporaryDirectory() as folder:
        run(study(STUDY, Path(folder)), world, dollars=dollars)
    assert world.clusters == set()
    billed = 0.0
    for cluster, there in world.billed.items():
        (price,) = (price for name, price in PRICES.items() if name.replace(".", "-") in cluster)
        billed += price * there / 3600
    return billed


@hypothesis_settings(max_examples=12, deadline=None)
@given(
    seconds=Taken,
    boot=some.floats(0, 2_000),
    down_fails=some.integers(0, 2),
    dollars=some.floats(0.1, 30),
)
def test_money_is_passed_by_no_more_than_ending_takes(seconds, boot, down_fails, dollars):
    billed = ran(seconds, boot, down_fails, dollars)
    assert billed <= dollars + ENDING * sum(PRICES.values()) / 3600
