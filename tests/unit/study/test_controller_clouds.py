"""Rented machines by a fake ``sky`` at the process seam: whatever goes wrong, nothing is left running unseen."""

import json

import pytest
from studies import SKY, DeadOnKill, Ending, FakeWorld, Killed, reading_of, run, states, study

from stash.study import study_folder
from stash.study.backend import OpenLease, open_leases, spent_dollars
from stash.study.study_folder import folder_of_study

QUOTA = (
    "sky.exceptions.ResourcesUnavailableError: Failed to provision all possible launchable resources. "
    "VcpuLimitExceeded: you have requested more vCPU capacity than your current quota of 0"
)


@pytest.fixture
def file(tmp_path):
    return study(SKY, tmp_path)


def events(file):
    return study_folder.read_events(folder_of_study(file.path).journal)


def nothing_left(file, world, outcome):
    return (world.clusters, outcome.left, open_leases(events(file))) == (set(), (), ())


def test_cells_share_a_cluster_which_is_gone_at_the_end(file):
    outcome = run(file, world := FakeWorld(), dollars=10)
    launches = [words for words in world.commands if words[:2] == ("sky", "launch")]
    assert len({words[words.index("--cluster") + 1] for words in launches}) == 1
    assert all("--down" in words and "--idle-minutes-to-autostop" in words for words in launches)
    assert [words[:2] for words in world.commands].count(("sky", "down")) == 1
    assert nothing_left(file, world, outcome)
    # Two cells of 60 s at $12 an hour, and what fetching and taking down took.
    assert outcome.dollars == pytest.approx(0.4, abs=0.1)
    assert outcome.dollars == pytest.approx(spent_dollars(events(file)))


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (Ending(1, QUOTA), "ask the cloud for more"),
        (
            Ending(1, "sky.exceptions.NoCloudAccessError: No cloud access found. Run: sky check"),
            "`sky check` says",
        ),
        (
            Ending(100, "(stash-1, pid=7) error: train.py failed: KeyError\nERROR: Job 1"),
            "train.py failed: KeyE",
        ),
    ],
)
def test_what_cannot_be_had_is_said_once_and_leaves_nothing(file, ending, why):
    outcome = run(file, world := FakeWorld(lambda _: ending), dollars=10)
    assert len(world.started) == 1
    (failed,) = [each for each in reading_of(file).standings.values() if each.state == "failed"]
    assert why in failed.why
    assert nothing_left(file, world, outcome)


def test_a_preempted_cell_is_run_again_on_a_new_cluster(file):
    taken = iter(
        [Ending(255, "Connection to 1.2.3.4 closed: connection reset by peer", preempts=True)]
    )
    outcome = run(file, world := FakeWorld(lambda _: next(taken, Ending())), dollars=10)
    assert len(world.started) == 3
    assert [words[:2] for words in world.commands].count(("sky", "down")) == 2
    assert states(file) == ["done", "done"]
    assert nothing_left(file, world, outcome)


def test_a_profile_that_cannot_be_fetched_is_tried_again_and_then_told(tmp_path, file):
    run(file, FakeWorld(fetch_fails=2), dollars=10)
    assert states(file) == ["done", "done"]
    (tmp_path / "other").mkdir()
    other = study(SKY, tmp_path / "other")
    outcome = run(other, never := FakeWorld(fetch_fails=99), dollars=10)
    assert (
        "could not be fetched: ssh: connect to host"
        in next(iter(reading_of(other).standings.values())).why
    )
    assert nothing_left(other, never, outcome)


def test_a_clock_that_is_set_back_between_two_runs_makes_nothing_negative():
    lease = OpenLease("stash-a", opened=100.0, dollars_per_hour=12.0)
    assert (lease.seconds(50.0), lease.cost(50.0)) == (0.0, 0.0)


def test_a_teardown_that_never_works_is_named_and_tried_by_the_next_run(file):
    world = FakeWorld(down_fails=99)
    (sentence,) = run(file, world, dollars=10).left
    assert "may still be running" in sentence
    assert "sky down --yes stash-p3-8xlarge-1-" in sentence
    assert len(open_leases(events(file))) == 1
    world.down_fails = 0
    assert nothing_left(file, world, run(file, world, dollars=10))


@pytest.mark.parametrize("at", [5, 62, 100])
def test_a_killed_controller_leaves_a_cluster_that_the_next_one_uses_or_ends(file, at):
    world = DeadOnKill()
    world.kill_at = world.clock + at
    with pytest.raises(Killed):
        run(file, world, dollars=10)
    assert len(open_leases(events(file))) == 1
    world.dead = False
    outcome = run(file, world, dollars=10)
    assert nothing_left(file, world, outcome)
    assert len(world.started) == 2
    # What was rented while no controller ran is paid for, too.
    assert outcome.dollars == pytest.approx(spent_dollars(events(file)))


def test_a_cluster_of_cells_that_left_the_study_is_taken_down(tmp_path, file):
    world = DeadOnKill()
    world.kill_at = world.clock + 20
    with pytest.raises(Killed):
        run(file, world, dollars=10)
    world.dead = False
    other = study(SKY.replace("p3.8xlarge", "p3.2xlarge"), tmp_path)
    assert nothing_left(other, world, run(other, world, dollars=10))


@pytest.mark.parametrize("lease", ["stash-p3-8xlarge-1-abc", "somebodys-own", "--all", "../up"])
def test_what_is_run_to_end_a_lease_is_the_studys_and_never_the_journals(tmp_path, file, lease):
    # GIVEN a journal from somebody else, whose open lease brings commands of its own
    world = FakeWorld()
    journal = folder_of_study(file.path).journal
    pwned = str(tmp_path / "pwned")
    journal.parent.mkdir()
    planted = {"at": 1, "what": "opened", "lease": lease, "rented_from": "sky"}
    planted |= {"release": [["touch", pwned]], "check": ["touch", pwned]}
    started = {"at": 2, "what": "started", "lease": lease, "cell": "../../elsewhere"}
    journal.write_text(f"{json.dumps(planted)}\n{json.dumps(started)}\n")
    # WHEN the study is run THEN only its own commands are, on what Stash itself may have rented
    run(file, world, dollars=10)
    assert not any("touch" in command for command in world.commands)
    ended = [
        command
        for command in world.commands
        if command[:2] == ("sky", "down") and command[-1] == lease
    ]
    assert ended == ([("sky", "down", "--yes", lease)] if lease.startswith("stash-") else [])
    assert all(event.cell != "../../elsewhere" for event in events(file))
