"""Rented machines by a fake ``sky`` at the process seam: whatever goes wrong, nothing is left running unseen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from studies import SKY, DeadOnKill, Ending, FakeWorld, Killed, reading_of, run, study

from stash.core.artefact import load
from stash.study import study_folder
from stash.study.backend import open_leases, spent
from stash.study.programs import Called
from stash.study.study_folder import CellFolder, of_study

QUOTA = (
    "sky.exceptions.ResourcesUnavailableError: Failed to provision all possible launchable resources. "
    "VcpuLimitExceeded: you have requested more vCPU capacity than your current quota of 0"
)


def events(file):
    return study_folder.read(of_study(file.path).journal)


def test_cells_share_a_cluster_which_is_gone_at_the_end(tmp_path: Path) -> None:
    file, world = study(SKY, tmp_path), FakeWorld()
    outcome = run(file, world, dollars=10)
    launches = [words for words in world.commands if words[:2] == ("sky", "launch")]
    assert len({words[words.index("--cluster") + 1] for words in launches}) == 1
    assert all("--down" in words and "--idle-minutes-to-autostop" in words for words in launches)
    assert [words[:2] for words in world.commands].count(("sky", "down")) == 1
    assert (world.clusters, outcome.left, open_leases(events(file))) == (set(), (), ())
    # Two cells of 60 s at $12 an hour, and what fetching and taking down took.
    assert outcome.dollars == pytest.approx(0.4, abs=0.1)
    assert outcome.dollars == pytest.approx(spent(events(file)))


def test_every_profile_says_what_it_has_cost(tmp_path: Path) -> None:
    file, world = study(SKY, tmp_path), FakeWorld(lambda _: Ending(seconds=120.0))
    run(file, world, dollars=10)
    for cell in reading_of(file).cells:
        cost = load(of_study(file.path).cell(cell.id).profile).cost
        assert cost.dollars == pytest.approx(12 * cost.seconds / 3600)
        assert 120 <= cost.seconds < 140  # the fake's fetching takes seconds, too
        assert "as given in grid.yaml" in cost.price_source


def test_a_cluster_for_each_node_count(tmp_path: Path) -> None:
    file, world = study(SKY.replace("price:", "nodes: [1, 2], price:"), tmp_path), FakeWorld()
    run(file, world, dollars=100)
    names = {words[words.index("--cluster") + 1] for words in world.commands if words[:2] == ("sky", "launch")}
    assert len(names) == 2
    assert world.clusters == set()


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (Ending(1, QUOTA), "ask the cloud for more"),
        (Ending(1, "sky.exceptions.NoCloudAccessError: No cloud access found. Run: sky check"), "`sky check` says"),
        (
            Ending(100, "(stash-1, pid=7) error: train.py failed: KeyError\nERROR: Job 1 failed"),
            "train.py failed: KeyE",
        ),
    ],
)
def test_what_cannot_be_had_is_said_once_and_leaves_nothing(tmp_path: Path, ending: Ending, why: str) -> None:
    file, world = study(SKY, tmp_path), FakeWorld(lambda _: ending)
    outcome = run(file, world, dollars=10)
    assert len(world.started) == 1
    (failed,) = [each for each in reading_of(file).standings.values() if each.state == "failed"]
    assert why in failed.why
    assert (world.clusters, outcome.left) == (set(), ())


def test_without_sky_nothing_is_rented_and_the_rest_goes_on(tmp_path: Path) -> None:
    file = study(SKY.replace("targets: [", "targets: [{engine: local}, "), tmp_path)
    run(file, world := FakeWorld(missing=("sky",)), dollars=10)
    found = [(each.state, each.why) for each in reading_of(file).standings.values()]
    assert found.count(("done", "")) == 2
    assert ("failed", "there is no program 'sky' on PATH") in found
    assert open_leases(events(file)) == ()
    assert not any(words[0] == "sky" for words in world.commands)


def test_ctrl_c_while_a_profile_is_fetched_loses_it_not(tmp_path: Path) -> None:
    class Fetching(FakeWorld):
        interrupted = False

        def call(self, command: tuple[str, ...], seconds: float) -> Called:
            if command[0] == "scp" and not self.interrupted:
                self.interrupted = True
                raise KeyboardInterrupt
            return super().call(command, seconds)

    file, world = study(SKY, tmp_path), Fetching()
    with pytest.raises(KeyboardInterrupt):
        run(file, world, dollars=10)
    assert [each.state for each in reading_of(file).standings.values()] == ["done", "to run"]
    assert world.clusters == set()


def test_ctrl_c_while_a_cell_is_being_started_leaves_nothing(tmp_path: Path) -> None:
    class Starting(FakeWorld):
        def start(self, command: Sequence[str], work: Path, cell: CellFolder) -> None:
            super().start(command, work, cell)
            raise KeyboardInterrupt

    file, world = study(SKY, tmp_path), Starting()
    with pytest.raises(KeyboardInterrupt):
        run(file, world, dollars=10)
    assert (world.running, world.clusters, open_leases(events(file))) == ({}, set(), ())


def test_what_may_still_run_is_told_after_ctrl_c_too(tmp_path: Path) -> None:
    class Interrupted(FakeWorld):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.running:
                raise KeyboardInterrupt

    notes: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        run(study(SKY, tmp_path), Interrupted(down_fails=99), dollars=10, notes=notes)
    assert any("may still be running" in line for line in notes)


def test_a_preempted_cell_is_run_again_on_a_new_cluster(tmp_path: Path) -> None:
    taken = iter([Ending(255, "Connection to 1.2.3.4 closed: connection reset by peer", preempts=True)])
    file, world = study(SKY, tmp_path), FakeWorld(lambda _: next(taken, Ending()))
    run(file, world, dollars=10)
    assert len(world.started) == 3
    assert [words[:2] for words in world.commands].count(("sky", "down")) == 2
    assert [each.state for each in reading_of(file).standings.values()] == ["done", "done"]
    assert world.clusters == set()


def test_a_cell_that_is_preempted_again_and_again_is_left_for_the_next_run(tmp_path: Path) -> None:
    file, world = study(SKY, tmp_path), FakeWorld(lambda _: Ending(255, "cluster was preempted", preempts=True))
    outcome = run(file, world, dollars=100)
    assert len(world.started) == 6
    assert [each.state for each in reading_of(file).standings.values()] == ["to run", "to run"]
    assert len(outcome.not_started) == 2


def test_a_profile_that_cannot_be_fetched_is_tried_again_and_then_told(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    once, never = FakeWorld(fetch_fails=2), FakeWorld(fetch_fails=99)
    file = study(SKY, tmp_path / "a")
    run(file, once, dollars=10)
    assert [each.state for each in reading_of(file).standings.values()] == ["done", "done"]
    file = study(SKY, tmp_path / "b")
    run(file, never, dollars=10)
    assert "could not be fetched: ssh: connect to host" in next(iter(reading_of(file).standings.values())).why
    assert never.clusters == set()


def test_a_malformed_profile_that_comes_back_is_one_sentence_and_the_rest_goes_on(tmp_path: Path) -> None:
    class Garbled(FakeWorld):
        def call(self, command: Sequence[str], seconds: float) -> Called:
            called = super().call(command, seconds)
            if command[0] == "scp" and len(self.started) == 2:
                Path(command[-1]).write_text('{"schema_version": 3, "stash')
            return called

    file, world, notes = study(SKY, tmp_path), Garbled(), []
    outcome = run(file, world, dollars=10, notes=notes)
    assert [each.state for each in reading_of(file).standings.values()] == ["done", "failed"]
    assert sum("is damaged or cut short" in line for line in notes) == 1
    assert (outcome.left, world.clusters) == ((), set())


def test_a_clock_that_is_set_back_makes_nothing_negative(tmp_path: Path) -> None:
    class SetBack(FakeWorld):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if len(self.started) == 1 and self.clock > 1_000_030:
                self.clock -= 20_000.0
                self.running = {path: (self.clock + 20, ending) for path, (_, ending) in self.running.items()}
                self.started.append("the clock was set back")

    file, world = study(SKY, tmp_path), SetBack()
    outcome = run(file, world, dollars=10)
    assert [each.state for each in reading_of(file).standings.values()] == ["done", "done"]
    assert all((event.seconds or 0) >= 0 and (event.dollars or 0) >= 0 for event in events(file))
    assert (outcome.left, world.clusters) == ((), set())


def test_a_teardown_that_never_works_is_named_and_tried_by_the_next_run(tmp_path: Path) -> None:
    file, world = study(SKY, tmp_path), FakeWorld(down_fails=99)
    outcome = run(file, world, dollars=10)
    assert len(outcome.left) == 1
    assert "may still be running" in outcome.left[0]
    assert "sky down --yes stash-p3-8xlarge-1-" in outcome.left[0]
    (lease,) = open_leases(events(file))
    world.down_fails = 0
    assert run(file, world, dollars=10).left == ()
    assert (world.clusters, open_leases(events(file))) == (set(), ())
    assert lease.name not in world.clusters


@pytest.mark.parametrize("at", [5, 62, 100])
def test_a_killed_controller_leaves_a_cluster_that_the_next_one_uses_or_ends(tmp_path: Path, at: float) -> None:
    file, world = study(SKY, tmp_path), DeadOnKill()
    world.kill_at = world.clock + at
    with pytest.raises(Killed):
        run(file, world, dollars=10)
    assert len(open_leases(events(file))) == 1
    world.dead = False
    outcome = run(file, world, dollars=10)
    assert (world.clusters, outcome.left, len(world.started)) == (set(), (), 2)
    # What was rented while no controller ran is paid for, too.
    assert outcome.dollars == pytest.approx(spent(events(file)))


def test_a_cluster_of_cells_that_left_the_study_is_taken_down(tmp_path: Path) -> None:
    file, world = study(SKY, tmp_path), DeadOnKill()
    world.kill_at = world.clock + 20
    with pytest.raises(Killed):
        run(file, world, dollars=10)
    world.dead = False
    other = study(SKY.replace("p3.8xlarge", "p3.2xlarge"), tmp_path)
    run(other, world, dollars=10)
    assert (world.clusters, open_leases(events(other))) == (set(), ())


@pytest.mark.parametrize("lease", ["stash-p3-8xlarge-1-abc", "somebodys-own", "--all", "../up"])
def test_what_is_run_to_end_a_lease_is_the_studys_and_never_the_journals(tmp_path: Path, lease: str) -> None:
    # GIVEN a journal from somebody else, whose open lease brings commands of its own
    file, world = study(SKY, tmp_path), FakeWorld()
    journal = of_study(file.path).journal
    journal.parent.mkdir()
    pwned = str(tmp_path / "pwned")
    planted = {"at": 1, "what": "opened", "lease": lease, "rented_from": "sky"}
    planted |= {"release": [["touch", pwned]], "check": ["touch", pwned]}
    started = {"at": 2, "what": "started", "lease": lease, "cell": "../../elsewhere"}
    journal.write_text(f"{json.dumps(planted)}\n{json.dumps(started)}\n")
    # WHEN the study is run THEN only its own commands are, on what Stash itself may have rented
    run(file, world, dollars=10)
    assert not any("touch" in command for command in world.commands)
    ended = [command for command in world.commands if command[:2] == ("sky", "down") and command[-1] == lease]
    assert ended == ([("sky", "down", "--yes", lease)] if lease.startswith("stash-") else [])
    assert all(event.cell != "../../elsewhere" for event in events(file))


def test_money_is_a_hard_stop_before_a_cell_and_while_one_runs(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    # A cell is estimated to take 2 min and its cluster 5 min to start: $1.40 at $12 an hour.
    before = FakeWorld()
    outcome = run(study(SKY, tmp_path / "a"), before, dollars=1.0)
    assert before.started == []
    assert outcome.not_started == ("--max-dollars 1 leaves no money for more on p3.8xlarge",)
    beyond = FakeWorld(lambda _: Ending(seconds=100_000))
    outcome = run(file := study(SKY, tmp_path / "b"), beyond, dollars=3.0)
    assert len(beyond.started) == 1
    assert beyond.clusters == set()
    assert outcome.dollars == pytest.approx(3.0, rel=0.1)
    assert [each.state for each in reading_of(file).standings.values()] == ["to run", "to run"]
    again = FakeWorld(clock=2_000_000.0)
    run(file, again, dollars=3.0)
    assert again.started == []
