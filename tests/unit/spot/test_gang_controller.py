"""A gang by a fake ``sky``: who goes is replaced, the end is the script's; nothing is left whatever goes wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from gang_fleets import FakeGang, gang, gang_plan
from spot_fleets import QUOTA, run

from stash.core.errors import JobError
from stash.spot.rented.job_tasks import GangRequest
from stash.spot.rented.rent_controller import FleetOutcome
from stash.spot.rented.replace_machines import GangPolicy, TrainedTime
from stash.study import study_folder
from stash.study.backend import open_leases, spent


def _run(of: GangRequest, world: FakeGang, cap: float = 50.0, notes: list[str] | None = None) -> FleetOutcome:
    return run(of, world, cap, notes, policy=GangPolicy(of))


def launched(world: FakeGang) -> list[str]:
    """Nodes, in the order in which they were asked for."""
    names = [words[words.index("--name") + 1] for words in world.commands if words[:3] == ("sky", "jobs", "launch")]
    return [name.rpartition("-")[2] for name in names]


def task(of: GangRequest, name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((of.folder.cell(name).path / "task.yaml").read_text())
    return found


def kind_of(of: GangRequest, name: str) -> str:
    return str(task(of, name)["envs"]["STASH_TYPE"])


def nothing_is_left(of: GangRequest, world: FakeGang) -> bool:
    world.clock += 3600
    world.settle()
    return world.left == [] and open_leases(study_folder.read(of.folder.journal)) == ()


def test_a_script_is_rented_for_followed_to_its_end_and_ended(tmp_path: Path) -> None:
    of, world, notes = gang(tmp_path), FakeGang(), []
    outcome = _run(of, world, notes=notes)
    assert (outcome.reason, outcome.reached, outcome.left) == ("the script ended", True, ())
    assert Counter(kind_of(of, name) for name in launched(world)) == {"p3.2xlarge": 1, "g4dn.4xlarge": 2}
    assert world.commands[0][:2] == ("sky", "launch")
    assert "the script is started on worker1, worker2, worker3" in notes
    assert outcome.fetched == str(of.folder.path / "trained")
    assert outcome.dollars == pytest.approx(spent(study_folder.read(of.folder.journal)))
    assert not of.secret.exists()
    assert nothing_is_left(of, world)


def test_a_node_that_was_preempted_is_replaced_by_another_that_is_fast_enough(tmp_path: Path) -> None:
    of, world, notes = gang(tmp_path), FakeGang(script={5000: lambda world: world.preempt("worker2")}), []
    assert _run(of, world, notes=notes).reached
    at = notes.index("worker2 (g4dn.4xlarge) is gone")
    assert notes[at + 1].startswith("rent 1 machine of ")
    assert launched(world)[3:] == ["worker4"]
    assert kind_of(of, "worker4") != "g4dn.4xlarge"  # which cools down
    assert of.kind(kind_of(of, "worker4")).samples_per_second >= of.kind("g4dn.4xlarge").samples_per_second
    cancelled = [words[-1] for words in world.commands if words[:3] == ("sky", "jobs", "cancel")]
    assert cancelled[0] == of.worker(2)  # and not recovered by SkyPilot
    assert nothing_is_left(of, world)


def test_at_a_notice_the_successor_is_asked_for_before_the_node_goes(tmp_path: Path) -> None:
    before: list[int] = []

    def go(world: FakeGang) -> None:
        before.append(len(launched(world)))
        world.leave("worker3")

    script = {5000: lambda world: world.say("notice", "worker3", seconds=120.0), 5600: go}
    of, world, notes = gang(tmp_path), FakeGang(script=script), []  # type: ignore[arg-type]
    assert _run(of, world, notes=notes).reached
    assert "worker3 (g4dn.4xlarge) will be taken away in 120 s" in notes
    assert before == [4]
    assert nothing_is_left(of, world)


def test_a_script_that_fails_ends_it_with_its_error(tmp_path: Path) -> None:
    def fail(world: FakeGang) -> None:
        world.say("failed", why="the script failed on worker1, 4 times in a row: ValueError: no data", exit_code=1)

    of, world = gang(tmp_path), FakeGang(script={500: fail})
    with pytest.raises(JobError, match="the script failed on worker1, 4 times in a row: ValueError: no data"):
        _run(of, world)
    assert any(words[0] == "scp" for words in world.commands)
    assert nothing_is_left(of, world)


def test_nodes_whose_setup_fails_end_it_before_anybody_trains(tmp_path: Path) -> None:
    of, world = gang(tmp_path), FakeGang(fails=lambda name: "ERROR: No matching distribution found for stash-ddl")
    with pytest.raises(JobError, match="workers fail before they train: ERROR: No matching distribution"):
        _run(of, world)
    assert nothing_is_left(of, world)


def test_where_nothing_can_be_had_on_spot_and_time_is_short_nodes_come_on_demand(tmp_path: Path) -> None:
    of, notes = gang(tmp_path, gang_plan(dearer=3.0, deadline_seconds=4200.0)), []
    world = FakeGang(refuses=lambda text: QUOTA if "use_spot: true" in text else None)
    assert _run(of, world, notes=notes).reached
    assert any("on demand: no spot machines would be in time" in line for line in notes)
    dear = [name for name in launched(world) if not task(of, name)["resources"]["use_spot"]]
    assert len(dear) == 3
    assert nothing_is_left(of, world)


def test_while_there_is_time_a_cooldown_is_waited_for(tmp_path: Path) -> None:
    one_type = gang_plan({"g4dn.4xlarge": 2}, 3.0, deadline_seconds=20000.0)
    only = tuple(kind for kind in one_type.pool.types if kind.name == "g4dn.4xlarge")
    of = gang(tmp_path, one_type.model_copy(update={"pool": one_type.pool.model_copy(update={"types": only})}))
    notes: list[str] = []
    world = FakeGang(script={5000: lambda world: world.preempt("worker2")})
    assert _run(of, world, notes=notes).reached
    assert any(line.startswith("rent nothing: 1 node more once a type has cooled down") for line in notes)
    assert all(task(of, name)["resources"]["use_spot"] for name in launched(world))
    assert nothing_is_left(of, world)


def test_at_the_cap_it_is_told_to_save_before_it_ends(tmp_path: Path) -> None:
    of, world = gang(tmp_path), FakeGang(updates=10**9)
    outcome = _run(of, world, cap=2.0)
    assert "--max-dollars 2 is nearly spent" in outcome.reason
    assert not outcome.reached
    assert outcome.dollars <= 2.0
    stop = next(n for n, words in enumerate(world.commands) if '"stop"' in words[-1])
    ends = [n for n, words in enumerate(world.commands) if words[:2] == ("sky", "down")]
    assert ends
    assert min(ends) > stop
    assert nothing_is_left(of, world)


def test_half_a_launch_is_ended_too(tmp_path: Path) -> None:
    of, world = gang(tmp_path), FakeGang(refuses=lambda text: QUOTA)
    with pytest.raises(JobError, match=r"server cannot be rented.*ask the cloud for more"):
        _run(of, world)
    assert launched(world) == []
    assert nothing_is_left(of, world)


def breaking_at(number: int) -> Callable[[Sequence[str]], BaseException | None]:
    count = iter(range(10**6))
    return lambda words: KeyboardInterrupt() if next(count) == number else None


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(0, 18, 3))
def test_ctrl_c_at_any_step_leaves_no_machine(tmp_path: Path, number: int, after: bool) -> None:
    of, broken = gang(tmp_path), breaking_at(number)
    world = FakeGang(stops_after=broken) if after else FakeGang(stops=broken)
    world.script[2000] = lambda world: world.preempt("worker2")
    with pytest.raises(KeyboardInterrupt):
        _run(of, world)
    assert nothing_is_left(of, world)


@pytest.mark.parametrize("number", range(1, 20, 3))
def test_after_a_kill_the_same_command_goes_on(tmp_path: Path, number: int) -> None:
    of, world, notes = gang(tmp_path), FakeGang(), []
    world.script[2000] = lambda world: world.preempt("worker2")
    count = iter(range(10**6))

    def killed(words: Sequence[str]) -> BaseException | None:
        world.dead = world.dead or next(count) == number
        return KeyboardInterrupt() if world.dead else None

    world.stops = killed
    with pytest.raises(KeyboardInterrupt):
        _run(of, world)
    before = list(world.clusters)
    world.stops, world.dead = (lambda words: None), False
    assert _run(of, world, notes=notes).reached
    if before:
        assert f"{of.server} still runs; taken on" in notes
        assert len(set(launched(world))) == len(launched(world))
    assert nothing_is_left(of, world)


def test_only_what_was_saved_counts_as_trained() -> None:
    trained = TrainedTime(2)
    trained.count({"what": "formed", "at": 100.0, "size": 1})
    trained.count({"what": "saved", "at": 160.0})
    assert trained.kept == 30.0
    trained.count({"what": "lost", "at": 200.0})
    assert trained.kept == 30.0
    trained.count({"what": "saved", "at": 250.0})
    trained.count({"what": "formed", "at": 300.0, "size": 2})
    trained.count({"what": "saved", "at": 310.0})
    assert trained.kept == 40.0
