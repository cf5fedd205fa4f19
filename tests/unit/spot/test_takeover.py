"""A fleet by a fake ``sky``: who goes is replaced, and whatever goes wrong, nothing is left running unseen."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from spot_fleets import QUOTA, FakeFleet, plan, request, run, with_on_demand

from stash.core.errors import JobError, StashError, UserError
from stash.spot.choose.fleet_costs import rented_on_demand
from stash.spot.rented import tasks
from stash.spot.rented.job_tasks import FleetRequest
from stash.spot.rented.replace_machines import FleetPolicy
from stash.spot.rented.workers import SpotWorkers
from stash.spot.replacement.outlook import RentDecision
from stash.study import study_folder
from stash.study.backend import open_leases, spent
from stash.study.programs import Called
from stash.study.study_folder import CellFolder

FIRST = sum(plan().chosen.workers.values())
"""Workers of the plan."""


def launches(world: FakeFleet) -> list[str]:
    """Names of workers, in the order in which they were asked for."""
    return [words[words.index("--name") + 1] for words in world.commands if words[:3] == ("sky", "jobs", "launch")]


def events(of: FleetRequest):  # type: ignore[no-untyped-def]
    return study_folder.read(of.folder.journal)


def kill_the_controller(of: FleetRequest, world: FakeFleet, after: int) -> None:
    """After so many updates; what it rented trains on, and another one may come."""

    def killed(words: Sequence[str]) -> BaseException | None:
        world.dead = world.dead or world.done > after
        return KeyboardInterrupt() if world.dead else None

    world.stops = killed
    with pytest.raises(KeyboardInterrupt):
        run(of, world)
    world.stops, world.dead = (lambda words: None), False


def nothing_is_left(of: FleetRequest, world: FakeFleet) -> bool:
    """Nor will be, once all that was asked for has come."""
    world.clock += 3600
    world.settle()
    return world.left == [] and open_leases(events(of)) == ()


def task(of: FleetRequest, name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((of.folder.cell(name.rpartition("-")[2]).path / "task.yaml").read_text())
    return found


def on_demand(of: FleetRequest, world: FakeFleet) -> list[str]:
    """Names of workers that were asked for so."""
    return [name for name in launches(world) if not task(of, name)["resources"]["use_spot"]]


def kind_of(of: FleetRequest, name: str) -> str:
    return (of.folder.cell(name.rpartition("-")[2]).path / "task.yaml").read_text().splitlines()[0]


def test_a_plan_is_rented_followed_to_its_loss_and_ended(tmp_path: Path) -> None:
    of, world = request(tmp_path), FakeFleet()
    policy = FleetPolicy(of)
    outcome = run(of, world, policy=policy)
    assert (outcome.reason, outcome.reached, outcome.left) == ("loss reached", True, ())
    assert (policy.progress.updates, policy.progress.loss) == (30_000, 0.79)
    assert outcome.fetched == str(of.folder.path / "trained")
    kinds = Counter(kind_of(of, name).partition(": ")[2] for name in launches(world))
    assert dict(kinds) == plan().chosen.workers
    assert world.commands[0][:2] == ("sky", "launch")  # the server first
    assert nothing_is_left(of, world)
    assert outcome.dollars == pytest.approx(spent(events(of)))


def test_a_plan_that_is_run_again_trains_again(tmp_path: Path) -> None:
    of, first, second = request(tmp_path), FakeFleet(), FakeFleet()
    assert run(of, first).reached
    (of.folder.path / "trained").mkdir()
    assert run(of, second).reached
    assert second.updates == first.updates > 0
    assert (of.folder.path / "trained.1").is_dir()  # what the first left, which no copy goes into


@pytest.mark.parametrize(
    ("bucket", "how"),
    [
        (
            None,
            "trained/checkpoints; to resume, copy that folder into a bucket and run the same command with "
            "--checkpoint-url",
        ),
        ("s3://mine/run1", "; the same command resumes from the last checkpoint in s3://mine/run1"),
    ],
)
def test_a_head_that_was_killed_says_how_to_resume_and_nothing_is_left(
    tmp_path: Path, bucket: str | None, how: str
) -> None:
    line = tasks.FAILED.replace(f"~/{tasks.HERE}/events.jsonl", str(tmp_path / "events"))
    subprocess.run(["sh", "-c", f"CODE=137\n{line}"], check=True)
    (event,) = map(json.loads, (tmp_path / "events").read_text().splitlines())

    of = dataclasses.replace(request(tmp_path), checkpoints=bucket)
    world = FakeFleet(script={5000: lambda world: world.say(**event)})
    with pytest.raises(JobError) as raised:
        run(of, world)
    assert str(raised.value).startswith("the head ended with exit status 137; what it printed is in output.log")
    assert how in str(raised.value)
    assert nothing_is_left(of, world)


def test_a_saved_model_with_another_loss_than_was_reported_is_an_error_of_the_run(tmp_path: Path) -> None:
    saved = {"said": "x", "wrong": "the saved model gives 0.79"}
    of = request(tmp_path)
    world = FakeFleet(script={5000: lambda world: world.say("ended", reason="loss reached", updates=9, saved=saved)})
    with pytest.raises(JobError, match=r"the saved model gives 0\.79"):
        run(of, world)
    assert nothing_is_left(of, world)


def test_on_notice_the_rest_is_planned_again_before_the_machine_goes(tmp_path: Path) -> None:
    launched: list[int] = []

    def notice(world: FakeFleet) -> None:
        for name in ("worker1", "worker2"):
            world.say("notice", name, seconds=120.0)
        launched.append(len(launches(world)))

    of, world, notes = request(tmp_path, plan(seconds=2100.0)), FakeFleet(script={5000: notice}), []
    run(of, world, notes=notes)
    at = notes.index("worker2 (p3.2xlarge) will be taken away in 120 s")
    assert notes[at + 1].startswith("rent ")
    later = launches(world)[launched[0] :]
    assert later
    assert not any(kind_of(of, name).endswith("p3.2xlarge") for name in later)  # its type is cooling down
    assert world.commands.index(("sky", "jobs", "cancel", "--yes", "--name", of.worker(1))) > launched[0]
    assert nothing_is_left(of, world)


def test_a_worker_that_was_preempted_is_not_recovered_by_others(tmp_path: Path) -> None:
    of, world = request(tmp_path), FakeFleet(script={5000: lambda world: world.preempt("worker2")})
    assert run(of, world).reached
    cancelled = [words[-1] for words in world.commands if words[:3] == ("sky", "jobs", "cancel")]
    assert cancelled[0] == of.worker(2)
    assert nothing_is_left(of, world)


def test_a_loss_that_the_head_does_not_tell_is_seen_in_the_list(tmp_path: Path) -> None:
    of, notes = request(tmp_path), []
    world = FakeFleet(script={5000: lambda world: world.preempt("worker2", noticed=True)})
    assert run(of, world, notes=notes).reached
    assert "worker2 (p3.2xlarge) is gone" in notes
    assert nothing_is_left(of, world)


def test_a_look_that_hangs_is_ended_and_the_next_one_sees(tmp_path: Path) -> None:
    class HangsOnce(FakeFleet):
        hung = 0

        def start(self, command: Sequence[str], work: Path, cell: CellFolder) -> None:
            super().start(command, work, cell)
            if command[:3] == ("sky", "jobs", "queue"):
                self.hung += 1
                self.running[cell.path] = 1e18 if self.hung == 1 else self.running[cell.path]

    of, notes = request(tmp_path), []
    world = HangsOnce(updates=60_000, script={5000: lambda world: world.preempt("worker2", noticed=True)})
    assert run(of, world, notes=notes).reached
    assert "worker2 (p3.2xlarge) is gone" in notes


def test_workers_are_ended_before_what_the_head_has_left_is_fetched(tmp_path: Path) -> None:
    of, world = request(tmp_path), FakeFleet()
    run(of, world)
    fetched = next(n for n, words in enumerate(world.commands) if words[0] == "scp")
    before = [words[-1] for words in world.commands[:fetched] if words[:3] == ("sky", "jobs", "cancel")]
    assert sorted(before) == [of.worker(number) for number in range(1, FIRST + 1)]


def test_a_notice_that_is_withdrawn_keeps_its_worker(tmp_path: Path) -> None:
    def withdraw(world: FakeFleet) -> None:
        world.say("withdrawn", "worker3")

    script = {5000: lambda world: world.say("notice", "worker3", seconds=600.0), 6000: withdraw}
    of, world, notes = request(tmp_path), FakeFleet(script=script), []  # type: ignore[arg-type]
    run(of, world, notes=notes)
    assert "worker3 stays: its notice was withdrawn" in notes
    ends = [n for n, words in enumerate(world.commands) if words[:3] == ("sky", "jobs", "cancel")]
    looks = [n for n, words in enumerate(world.commands) if words[-1].startswith("wc ")]
    assert min(ends) > max(looks)


def test_a_type_that_cannot_be_had_is_left_alone_and_others_come(tmp_path: Path) -> None:
    of, notes = request(tmp_path), []
    world = FakeFleet(refuses=lambda text: QUOTA if "instance_type: g3.8xlarge" in text else None)
    assert run(of, world, notes=notes).reached
    refused = [line for line in notes if "was refused" in line]
    assert refused
    assert "ask the cloud for more" in refused[0]
    assert not any(kind_of(of, name).endswith("g3.8xlarge") for name in launches(world)[FIRST:])
    assert nothing_is_left(of, world)


def hourly(of: FleetRequest) -> dict[str, float | None]:
    """What the journal says that each worker's machine costs."""
    return {event.lease.rpartition("-")[2]: event.dollars_per_hour for event in events(of) if event.what == "opened"}


def test_where_no_spot_machine_can_be_had_machines_on_demand_come_in_time(tmp_path: Path) -> None:
    of, notes = request(tmp_path, with_on_demand(plan())), []
    world = FakeFleet(refuses=lambda text: QUOTA if "use_spot: true" in text else None)
    assert run(of, world, notes=notes).reached
    later = on_demand(of, world)
    assert later
    assert launches(world).index(later[0]) >= FIRST
    for name in later:
        each = task(of, name)
        kind = of.kind(each["envs"]["STASH_TYPE"])
        assert each["resources"]["max_hourly_cost"] == pytest.approx(1.1 * kind.on_demand_dollars_per_hour, abs=1e-4)
        assert hourly(of)[name.rpartition("-")[2]] == each["resources"]["max_hourly_cost"]
    assert any(" on demand: no spot machines are in time, this is the cheapest that is (" in line for line in notes)
    assert nothing_is_left(of, world)


def test_types_that_are_planned_on_demand_are_rented_on_demand(tmp_path: Path) -> None:
    mixed = with_on_demand(plan())
    mixed = mixed.model_copy(update={"pool": rented_on_demand(mixed.pool, ["p3.2xlarge"])})
    of, world = request(tmp_path, mixed), FakeFleet()
    run(of, world)
    rented = [task(of, name) for name in launches(world)]
    kinds = Counter((each["resources"]["instance_type"], each["resources"]["use_spot"]) for each in rented)
    assert kinds == {(name, name != "p3.2xlarge"): count for name, count in mixed.chosen.workers.items()}
    assert nothing_is_left(of, world)


def test_machines_on_demand_keep_the_cap_at_their_own_price(tmp_path: Path) -> None:
    of = request(tmp_path, with_on_demand(plan()))
    world = FakeFleet(updates=10**9, refuses=lambda text: QUOTA if "use_spot: true" in text else None)
    outcome = run(of, world, cap=6.0)
    assert "nearly spent" in outcome.reason
    assert outcome.dollars <= 6.0
    assert nothing_is_left(of, world)


def test_a_type_that_can_be_had_in_no_way_is_not_asked_for_in_a_loop(tmp_path: Path) -> None:
    of, notes = request(tmp_path, with_on_demand(plan())), []
    world = FakeFleet(refuses=lambda text: QUOTA if "accelerators" in text or "instance_type" in text else None)
    evening = world.clock + 3 * 3600
    ended = iter([KeyboardInterrupt()])
    world.stops = lambda words: next(ended, None) if world.clock > evening else None
    with pytest.raises(KeyboardInterrupt):
        run(of, world, notes=notes)
    assert len(launches(world)) < 400  # without a pause there would be thousands
    assert any(" on demand) was refused" in line for line in notes)
    assert nothing_is_left(of, world)


def test_a_machine_that_a_cloud_looks_for_forever_is_given_up_for_others(tmp_path: Path) -> None:
    of, notes = request(tmp_path, with_on_demand(plan())), []
    world = FakeFleet(starves=lambda text: "instance_type: g3.8xlarge" in text and "use_spot: true" in text)
    assert run(of, world, notes=notes).reached
    given_up = [line for line in notes if "could not be had within" in line]
    assert given_up
    assert "(g3.8xlarge)" in given_up[0]
    assert launches(world)[FIRST:]
    assert nothing_is_left(of, world)


def test_a_cooldown_is_waited_for_while_machines_on_demand_would_still_do(tmp_path: Path) -> None:
    only = tuple(kind for kind in plan().pool.types if kind.name == "g4dn.4xlarge")
    planned = with_on_demand(plan(0.9, 6000.0, types=only)).model_copy(update={"deadline_seconds": 2000.0})
    lost: list[float] = []

    def preempt(world: FakeFleet) -> None:
        world.preempt("worker1")
        lost.append(world.clock)

    of, notes, asked = request(tmp_path, planned), [], []
    world = FakeFleet(script={2000: preempt})
    world.stops = lambda words: asked.append(world.clock) if words[:3] == ("sky", "jobs", "launch") else None
    assert run(of, world, notes=notes, cooldown=300.0).reached
    (at,) = [
        number for number, line in enumerate(notes) if line.startswith("rent nothing now, and 1 machine of g4dn")
    ]
    assert "after the cooldown: the cheapest that is in time" in notes[at]
    assert "of g4dn.4xlarge: " in notes[at + 1]  # on spot
    assert asked[2] >= lost[0] + 300
    assert on_demand(of, world) == []
    assert nothing_is_left(of, world)


def test_a_controller_that_goes_on_knows_who_is_on_demand(tmp_path: Path) -> None:
    of, notes = request(tmp_path, with_on_demand(plan())), []
    world = FakeFleet(refuses=lambda text: QUOTA if "use_spot: true" in text else None)

    kill_the_controller(of, world, after=5000)
    first = of.secret.read_text()
    world.script[10_000] = lambda world: world.say("notice", on_demand(of, world)[0].rpartition("-")[2], seconds=30.0)
    secrets = []
    world.script[9000] = lambda world: secrets.append(of.secret.read_text())
    assert run(of, world, notes=notes).reached
    assert any(" on demand) will be taken away in 30 s" in line for line in notes)
    assert secrets == [first]  # the head that is there knows no other
    assert nothing_is_left(of, world)


def test_the_secret_of_a_run_is_its_owner_s_alone_and_goes_with_it(tmp_path: Path) -> None:
    of, seen, notes = request(tmp_path), [], []
    world = FakeFleet(script={100: lambda world: seen.append((of.secret.stat().st_mode, of.secret.read_text()))})
    run(of, world, notes=notes)
    ((mode, text),) = seen
    assert mode & 0o777 == 0o600
    drawn = dict(line.split("=") for line in text.splitlines())
    assert {name: len(token) for name, token in drawn.items()} == {"RAY_AUTH_TOKEN": 64, "STASH_RUN_TOKEN": 64}
    written = [path.read_bytes().decode(errors="replace") for path in of.folder.path.rglob("*") if path.is_file()]
    printed = (*written, *notes, *map(" ".join, world.commands))
    assert not any(token in each for each in printed for token in drawn.values())
    assert not of.secret.exists()


def test_a_server_that_cannot_be_had_ends_it_before_any_worker(tmp_path: Path) -> None:
    of, world = request(tmp_path), FakeFleet(refuses=lambda text: QUOTA)
    with pytest.raises(JobError, match=r"server cannot be rented.*ask the cloud for more"):
        run(of, world)
    assert launches(world) == []
    assert nothing_is_left(of, world)


def test_when_no_machine_can_be_had_it_ends_and_saves_what_there_is(tmp_path: Path) -> None:
    of = request(tmp_path)
    world = FakeFleet(refuses=lambda text: QUOTA if "use_spot: true" in text else None)
    outcome = run(of, world, cap=0.2)
    assert not outcome.reached
    assert outcome.dollars <= 0.2
    assert nothing_is_left(of, world)


def test_unlike_versions_of_ray_are_said_in_one_sentence(tmp_path: Path) -> None:
    mismatch = "RuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.60.0\n"
    of, world = request(tmp_path), FakeFleet(fails=lambda name: mismatch if name.endswith("worker4") else None)
    with pytest.raises(UserError, match=r"worker4 has another Ray or Python than the server.*same Python"):
        run(of, world)
    assert nothing_is_left(of, world)


def test_workers_that_fail_before_they_train_end_it(tmp_path: Path) -> None:
    of, world = request(tmp_path), FakeFleet(fails=lambda name: "ModuleNotFoundError: No module named 'mine'")
    with pytest.raises(JobError, match=r"workers fail before they train: ModuleNotFoundError.*sky jobs logs --name"):
        run(of, world)
    assert nothing_is_left(of, world)


def test_what_is_taken_on_is_not_planned_again_as_if_nothing_had_been_trained(tmp_path: Path) -> None:
    known: list[int] = []

    class Listening(FleetPolicy):
        def decide(self, workers: SpotWorkers, seconds_left: float, dollars_left: float) -> RentDecision:
            known.append(self.progress.updates)
            return super().decide(workers, seconds_left, dollars_left)

    of, world = request(tmp_path), FakeFleet()

    kill_the_controller(of, world, after=15_000)
    assert run(of, world, policy=Listening(of)).reached
    assert known[0] > 15_000


def test_a_training_that_cannot_be_reached_when_it_is_taken_on_is_not_ended(tmp_path: Path) -> None:
    class Deaf(FakeFleet):
        reached = True

        def _ssh(self, words: Sequence[str]) -> Called:
            return super()._ssh(words) if self.reached else Called(255, "ssh: connect to host: timed out")

    of, world, notes = request(tmp_path), Deaf(), []

    kill_the_controller(of, world, after=5000)
    before = sorted(world.left)
    world.reached = False
    with pytest.raises(JobError, match=f"{of.server} does not answer by ssh"):
        run(of, world, notes=notes)
    assert sorted(world.left) == before
    assert f"{of.server} runs on; `sky down --yes {of.server}` ends it" in notes
    assert len(notes) == len(before)
    world.reached = True
    assert run(of, world).reached
    assert nothing_is_left(of, world)


def test_workers_that_fail_after_a_takeover_do_not_end_what_trains(tmp_path: Path) -> None:
    of, notes = request(tmp_path, plan(seconds=2100.0)), []
    world = FakeFleet(updates=60_000)

    kill_the_controller(of, world, after=5000)
    first = set(world.jobs)
    world.fails = lambda name: None if name in first else "ValueError: mine"
    for updates, name in ((9000, "worker1"), (12_000, "worker2")):
        world.script[updates] = lambda world, name=name: world.preempt(name)
    assert run(of, world, notes=notes).reached
    assert sum("failed: ValueError: mine" in line for line in notes) >= 2
    assert nothing_is_left(of, world)


def test_what_the_head_fails_of_is_told_as_the_user_s_where_it_is(tmp_path: Path) -> None:
    def fail(world: FakeFleet) -> None:
        world.say("failed", why="job.py cannot be pickled: a lambda; name a function instead", exit_code=2)

    of, world = request(tmp_path), FakeFleet(script={100: fail})
    with pytest.raises(UserError, match="cannot be pickled"):
        run(of, world)
    assert any(words[0] == "scp" for words in world.commands)  # what it printed explains more
    assert nothing_is_left(of, world)


def test_a_server_that_is_gone_ends_it(tmp_path: Path) -> None:
    of, world = request(tmp_path), FakeFleet(script={5000: lambda world: world.clusters.clear()})
    with pytest.raises(JobError, match="is gone"):
        run(of, world)
    assert nothing_is_left(of, world)


def test_at_the_cap_it_saves_and_ends_before_more_is_spent(tmp_path: Path) -> None:
    of, world = request(tmp_path), FakeFleet(updates=10**9)
    outcome = run(of, world, cap=2.0)
    assert "--max-dollars 2 is nearly spent" in outcome.reason
    assert outcome.dollars <= 2.0
    assert outcome.fetched is not None
    order = [words[-1][:4] if words[0] == "ssh" else words[0] for words in world.commands]
    stop = next(n for n, words in enumerate(world.commands) if '"stop"' in words[-1])
    assert order.index("scp") > stop
    assert all(n > stop for n, words in enumerate(world.commands) if words[:2] == ("sky", "down"))
    assert nothing_is_left(of, world)


def test_what_ending_will_cost_is_not_there_to_be_spent(tmp_path: Path) -> None:
    offered: list[float] = []

    class Listening(FleetPolicy):
        def decide(self, workers: SpotWorkers, seconds_left: float, dollars_left: float) -> RentDecision:
            offered.append(workers.backend.dollars + dollars_left)
            return super().decide(workers, seconds_left, dollars_left)

    of = request(tmp_path)
    run(of, FakeFleet(script={5000: lambda world: world.preempt("worker1")}), cap=10.0, policy=Listening(of))
    assert offered
    assert max(offered) <= 10.0 - 0.22 * 900 / 3600  # while all is fetched the server stays


def test_what_is_deaf_to_its_end_is_told_again_and_named_if_it_stays(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    of, world = request(tmp_path / "a"), FakeFleet(deaf=2)
    assert run(of, world).left == ()
    assert nothing_is_left(of, world)
    of, world = request(tmp_path / "b"), FakeFleet(deaf=999)
    left = run(of, world).left
    assert len(left) == 1 + FIRST
    assert any(f"type `sky down --yes {of.server}`" in line for line in left)
    world.deaf = 0
    run(of, world)  # the same command finds it
    assert nothing_is_left(of, world)


def breaking_at(number: int) -> Callable[[Sequence[str]], BaseException | None]:
    """Ctrl-C at the command of that number, once."""
    count = iter(range(10**6))
    return lambda words: KeyboardInterrupt() if next(count) == number else None


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(0, 26, 3))
def test_ctrl_c_at_any_step_leaves_nothing(tmp_path: Path, number: int, after: bool) -> None:
    broken = breaking_at(number)
    of = request(tmp_path)
    world = FakeFleet(stops_after=broken) if after else FakeFleet(stops=broken)
    world.script[5000] = lambda world: world.preempt("worker2")
    with pytest.raises(KeyboardInterrupt):
        run(of, world)
    assert nothing_is_left(of, world)


@pytest.mark.parametrize("number", range(1, 30, 4))
def test_a_controller_that_is_killed_is_followed_by_one_that_ends_it_all(tmp_path: Path, number: int) -> None:
    of, world, notes = request(tmp_path), FakeFleet(), []
    world.script[5000] = lambda world: world.preempt("worker2")
    count = iter(range(10**6))

    def killed(words: Sequence[str]) -> BaseException | None:
        world.dead = world.dead or next(count) == number
        return KeyboardInterrupt() if world.dead else None

    world.stops = killed
    with pytest.raises(KeyboardInterrupt):
        run(of, world)
    before = list(world.clusters)
    world.stops, world.dead = (lambda words: None), False
    outcome = run(of, world, notes=notes)
    assert outcome.reached
    if before:
        assert f"{of.server} still runs; taken on" in notes
    assert len(set(launches(world))) == len(launches(world)) or not before
    assert nothing_is_left(of, world)


def test_two_controllers_never_run_one_plan(tmp_path: Path) -> None:
    of = request(tmp_path)
    with of.folder.held(), pytest.raises(UserError, match="another `stash spot run`"):
        run(of, FakeFleet())


def test_a_list_that_cannot_be_read_proves_nothing(tmp_path: Path) -> None:
    class Mumbling(FakeFleet):
        def _do(self, words):  # type: ignore[no-untyped-def]
            called = super()._do(words)
            return called._replace(output="Traceback …") if words[:2] == ("sky", "status") else called

    of = request(tmp_path)
    outcome = run(of, Mumbling())
    assert outcome.reached
    assert any(of.server in line for line in outcome.left)
    assert [lease.name for lease in open_leases(events(of))] == [of.server]
    assert issubclass(JobError, StashError)
