"""What is launched next and what is kept, decided without starting a process."""

import itertools

import pytest
from launching import even_agents, expedition, run

from stash.analysis.attribution import attribute
from stash.core.ladder import UNTOUCHED
from stash.core.measured import Block, Rank
from stash.measure.launcher.engines import Cluster
from stash.measure.launcher.job import Job
from stash.measure.protocol.messages import (
    LadderChosen,
    LadderEnded,
    LedgerKept,
    PhaseBegun,
    RoundGivenUp,
)

pytestmark = pytest.mark.usefixtures("temporary")


def ending(*acts, ladder=(), error=""):
    """A job that has its ladder (if empty, that of its orders), tells or takes steps, and ends."""

    def agents(orders, process):
        if ladder is not None:
            process.ladder(*(ladder or orders.rungs))
        for act in acts:
            process.step(act) if isinstance(act, int) else process.tell(act)
        process.tracebacks = (
            [f"Traceback (most recent call last):\n  x\n{error}\n"] if error else []
        )
        yield
        return int(bool(error))

    return agents


def rounds_of(*seconds):
    """Agents whose rounds take so long, second opinions included; only the stop file ends them."""

    def agents(orders, process):
        process.ladder(*orders.rungs)
        for number, took in enumerate(seconds):
            end = process.clock.now + took
            while process.clock.now < end:
                if orders.files.stop.exists():
                    process.tell(LadderEnded("stopped"))
                    return 0
                yield
            process.step(10 * number + 10)
            process.round(number, 1.0, min(seconds) - 1.0)
        process.tell(LadderEnded("rounds done"))
        return 0

    return agents


@pytest.mark.parametrize(
    ("seconds", "rounds"),
    [
        ((7.0, 7.0, 7.0, 7.0), 3),  # a verdict after half of the budget more, rather than none
        ((5.4, 5.4, 2.5, 2.5, 2.5), 4),  # the first two took second opinions
        ((5.4, 5.4, 5.4, 5.4), 3),  # the third ends after the budget does, within a tenth
        ((10.0, 10.0, 10.0, 10.0), 1),  # the third would end at twice the budget
    ],
)
def test_a_third_round_is_waited_for_as_fewer_give_no_verdict(seconds, rounds):
    result, _ = run(rounds_of(*seconds), budget=15.0, noise=1e-9)
    assert result.profile.ended == "budget"
    assert len({block.round for block in result.profile.blocks}) == rounds


def test_rounds_are_looked_at_for_a_fiftieth_of_the_time():
    # Rounds take 2.5 s, and to look at one takes 0.2: the next look is at the first round that ends 10 s later.
    seen = []
    one, started = expedition(rounds_of(*[2.5] * 30), budget=60.0, noise=1e-9)

    def look(moment):
        if moment.breakdown is not None:
            seen.append(started[-1].clock.now)
            started[-1].clock.now += 0.2

    one.measure_job(look)
    gaps = [after - before for before, after in itertools.pairwise(seen)]
    assert gaps
    assert all(10.2 <= gap < 13.0 for gap in gaps)


def test_what_was_forgotten_ends_no_measurement():
    one, _ = expedition(rounds_of(*[2.5] * 30), budget=60.0, noise=1000.0)
    one.measure_job()
    assert one.measurement.stop_reason() == "precision"
    one.measurement.start_over()
    assert one.measurement.stop_reason() is None


def loop_of(rounds, steps):
    """A script whose loop ends by itself after so many rounds and steps."""

    def agents(orders, process):
        process.ladder(*orders.rungs)
        for number in range(orders.first_round, orders.first_round + rounds):
            yield
            process.clock.now += 1.0
            process.round(number, 1.0, 1.5)
        process.step(steps)
        process.tell(LadderEnded("script ended"))
        yield
        return 0

    return agents


def test_a_loop_that_ends_early_is_started_again_until_its_rounds_suffice():
    result, started = run(loop_of(2, 60))
    assert [process.orders.first_round for process in started] == [0, 2, 4]
    assert sorted({block.round for block in result.profile.blocks}) == [0, 1, 2, 3, 4, 5]
    assert result.profile.ended == "script ended"
    assert result.profile.settings.launches == 3
    assert "the job was started again" in result.profile.notes[0]


def test_where_the_scripts_own_epochs_are_too_short_its_loader_is_kept_from_ending():
    def agents(orders, process):
        return even_agents()(orders, process) if orders.endless else loop_of(1, 60)(orders, process)

    result, started = run(agents)
    assert [process.orders.endless for process in started] == [False, True]
    assert result.profile.ended == "decided"


def test_a_script_that_cannot_train_past_its_epochs_is_started_again_for_each():
    def agents(orders, process):
        kind = (
            ending(61, error="ZeroDivisionError: division by zero")
            if orders.endless
            else loop_of(2, 60)
        )
        return kind(orders, process)

    result, started = run(agents)
    assert [process.orders.endless for process in started] == [False, True, False, False]
    assert result.failure is None
    assert sorted({block.round for block in result.profile.blocks}) == [0, 1, 2, 3, 4, 5]
    assert "longer than its own epochs the script cannot train" in result.profile.notes[1]


def test_a_loop_too_short_for_a_round_gets_shorter_blocks_and_then_a_sentence():
    result, started = run(loop_of(0, 48))
    assert [process.orders.most_steps for process in started] == [None, None, 2]
    assert result.profile is None
    assert "ended after 48 steps, before one round was measured" in result.failure.sentence
    # two rungs are the fewest that tell anything
    assert result.failure.sentence.endswith("(more steps or epochs)")


@pytest.mark.parametrize(
    ("rungs", "hint"),
    [
        (("solo", "crowd", "node", "warm", "cold"), "solo,node"),
        (("resident", "solo", "crowd", "node", "cluster", "warm"), "resident,cluster"),
        (("solo", "warm", "cold"), "solo,warm"),
    ],
)
def test_fewer_rungs_are_named_that_are_fewer(rungs, hint):
    short = ending(48, LadderEnded("script ended"), ladder=rungs)
    result, _ = run(short, short, rungs=rungs)
    assert result.failure.sentence.endswith(f"or measure fewer rungs (--rungs {hint})")


def test_a_job_whose_collectives_cannot_be_switched_is_measured_whole():
    result, started = run(
        ending(LadderEnded("unsafe", "it shards")),
        even_agents(),
        rungs=("solo", "crowd", "node", "warm"),
    )
    assert [process.orders.rungs for process in started] == [
        ("solo", "crowd", "node", "warm"),
        ("node", "warm"),
    ]
    skipped = {item.rung: item.why for item in result.profile.skipped}
    assert (skipped["solo"], skipped["crowd"]) == ("it shards", "it shards")
    assert any("only steps of the whole job were measured" in note for note in result.profile.notes)


def test_a_job_that_cannot_be_switched_has_no_answer_where_nothing_else_was_asked_for():
    result, started = run(ending(LadderEnded("unsafe", "it shards")), rungs=("solo",))
    assert len(started) == 1
    assert "it shards" in result.failure.sentence


def test_a_script_that_fails_on_resident_batches_is_measured_without_them():
    fails = ending(PhaseBegun("resident", 0), error="TypeError: expected a CPU tensor")
    result, started = run(fails, even_agents(), rungs=("resident", "solo", "warm"))
    assert [process.orders.rungs for process in started] == [
        ("resident", "solo", "warm"),
        ("solo", "warm"),
    ]
    (skipped,) = result.profile.skipped
    assert skipped.rung == "resident"
    assert "TypeError: expected a CPU tensor" in skipped.why


def test_a_script_that_fails_where_ranks_exchange_nothing_is_measured_as_a_whole():
    fails = ending(Rank(1, 0, 1, "cpu"), PhaseBegun("crowd"), 20, error="TypeError: no batch")
    result, started = run(fails, even_agents(), rungs=("solo", "crowd", "node", "warm"))
    assert [process.orders.rungs for process in started] == [
        ("solo", "crowd", "node", "warm"),
        ("node", "warm"),
    ]
    assert {item.rung for item in result.profile.skipped} == {"solo", "crowd"}
    (note,) = result.profile.notes
    assert "TypeError: no batch" in note
    assert note.endswith("only steps of the whole job were measured")


def fails_at_start(error, *acts):
    return ending(*acts, ladder=None, error=error)


WANTS_RANK, NO_CUDA = (
    "KeyError: 'LOCAL_RANK'",
    "AssertionError: Torch not compiled with CUDA enabled",
)
TYPED = Cluster(engine="local", all_devices=2)


def commands(started):
    """How many ranks each launch had, and by what."""
    return [next((word for word in each.command if "nproc" in word), "plain") for each in started]


def test_a_plain_process_that_asks_for_its_rank_is_started_on_all_devices_which_is_said_at_once():
    one, started = expedition(fails_at_start(WANTS_RANK), even_agents(), cluster=TYPED)
    moments = []
    result = one.measure_job(moments.append)
    assert commands(started) == ["plain", "--nproc-per-node=2"]
    assert result.failure is None
    note = f"the job was started by torchrun, as 2 ranks, since as a plain process it failed ({WANTS_RANK})"
    assert note in result.profile.notes
    assert [moment.notice for moment in moments if moment.notice] == [note]


def test_if_it_fails_again_both_errors_are_told_the_first_one_first():
    result, started = run(fails_at_start(WANTS_RANK), fails_at_start(NO_CUDA), cluster=TYPED)
    assert len(started) == 2
    for text in (result.failure.sentence, result.failure.own_words):
        assert (
            0
            < text.index(WANTS_RANK)
            < text.index("started again by torchrun, as 2 ranks")
            < text.index(NO_CUDA)
        )


def no_group(orders, process):
    """Ranks that are jobs of their own: the first says so, and all wait to be ended."""
    process.step(1)
    process.tell(PhaseBegun("warm-up"), LadderEnded("no process group"))
    while True:
        orders.files.mark("finished")
        yield


@pytest.mark.parametrize(
    ("agents", "cluster", "ways"),
    [
        ((no_group,), Cluster(2), ["--nproc-per-node=2", "plain"]),
        (
            (fails_at_start(WANTS_RANK), no_group),
            TYPED,
            ["plain", "--nproc-per-node=2", "--nproc-per-node=1"],
        ),
    ],
)
def test_ranks_that_are_no_job_end_at_once_and_one_process_is_measured(agents, cluster, ways):
    result, started = run(*agents, even_agents(), cluster=cluster)
    assert result.failure is None
    assert commands(started) == ways
    assert any("never called init_process_group" in note for note in result.profile.notes)


def test_one_process_of_a_script_that_may_train_on_several_devices_says_how_to_have_them(tmp_path):
    def noted(cluster, text):
        (tmp_path / "train.py").write_text(text)
        result, _ = run(
            even_agents(), cluster=cluster, job=Job("script", str(tmp_path / "train.py"))
        )
        return (
            "one process was started, as typed; to use all 2 devices: --nproc-per-node 2"
            in result.profile.notes
        )

    assert noted(TYPED, "import torch.distributed as dist")
    assert not noted(TYPED, "import torch")
    # it was asked for
    assert not noted(Cluster(engine="local"), "import torch.distributed as dist")


def test_after_a_step_nothing_else_is_tried():
    result, started = run(ending(error=WANTS_RANK))
    assert len(started) == 1
    assert WANTS_RANK in result.failure.sentence


def test_trainers_beside_the_one_that_was_measured_are_ended_with_it_and_mentioned():
    def two_trainers(orders, process):
        orders.files.mark("extra")
        yield from even_agents()(orders, process)
        while True:  # the other one trains on
            yield

    result, started = run(two_trainers)
    assert result.failure is None
    assert started[0].stopped
    assert any(note.startswith("another process trained besides") for note in result.profile.notes)


def test_an_interrupt_keeps_the_rounds_before_it():
    one, started = expedition(even_agents(), noise=1e-9, budget=1e6)
    one.measurement.clock.interrupt_at = 1010.0
    result = one.measure_job()
    assert result.interrupted
    assert result.profile.ended == "interrupted"
    assert started[0].stopped


def never_steps(orders, process):
    process.words = "done\n"
    yield
    return 0


def test_a_script_that_never_steps_is_told_what_was_looked_for():
    result, _ = run(never_steps)
    assert "ended without a training step" in result.failure.sentence
    assert result.failure.own_words == "done"


def silent(phase, steps=0):
    """A job that hangs."""

    def agents(orders, process):
        if phase is not None:
            process.ladder(*orders.rungs)
            process.step(steps, rank=0)
            process.step(steps - 1, rank=1)
            process.tell(PhaseBegun(phase, 0))
        while True:
            yield

    return agents


def test_a_launch_is_ended_when_its_time_is_over_and_none_is_begun_after():
    one, started = expedition(silent(None), start_timeout=120.0)
    until = one.measurement.clock.monotonic() + 20.0
    one.launches.leave_nothing(until)
    result = one.measure_job()
    assert result.failure.sentence.endswith("was ended: the time given was over")
    assert len(started) == 1
    assert one.measurement.clock.monotonic() < until + 1.0
    assert one.measure_job().failure.sentence == result.failure.sentence
    assert len(started) == 1


def test_patience_ends_with_a_job_that_takes_no_step():
    moments = []
    one, started = expedition(silent(None), start_timeout=120.0)
    result = one.measure_job(moments.append)
    (notice,) = {moment.notice for moment in moments if moment.notice}
    assert "no training step seen in 3" in notice
    assert "`stash.step()` after the update" in notice
    assert "took no training step within 12" in result.failure.sentence
    assert started[0].stopped


@pytest.mark.parametrize("phase", ["solo", "catch-up", "crowd"])
def test_after_a_hang_of_ranks_that_step_without_exchange_only_the_whole_job_is_measured(phase):
    result, started = run(silent(phase, 12), never_steps)
    assert not {"solo", "crowd", "resident"} & set(started[1].orders.rungs)
    assert result.profile is None


def test_a_hang_elsewhere_names_the_rank_that_got_least_far():
    result, _ = run(silent("cluster", 12))
    assert "no rank of train.py ended a step for 6" in result.failure.sentence
    assert "rank 1 got least far (11 steps, last block: cluster)" in result.failure.sentence


def long_steps(seconds, then):
    """A job that takes three steps of so many seconds, and another one ``then`` seconds later."""

    def agents(orders, process):
        process.tell(PhaseBegun("cluster", 0))
        for number, wait in enumerate((seconds, seconds, seconds, then), 1):
            due = process.clock.now + wait
            while process.clock.now < due:
                yield
            process.step(number)
        process.tracebacks = [
            "Traceback (most recent call last):\n  x\nValueError: the last step came\n"
        ]
        return 1

    return agents


@pytest.mark.parametrize(
    ("then", "words"), [(90.0, "the last step came"), (112.0, "no rank of train.py ended a step")]
)
def test_silence_is_judged_by_the_longest_step_that_was_seen(then, words):
    result, _ = run(long_steps(20.0, then))
    assert words in result.failure.sentence


def test_a_round_that_was_given_up_is_told_with_what_was_expected():
    given_up = RoundGivenUp(99.0, 9.0), LadderEnded("stopped")
    result, _ = run(ending(*given_up, ladder=("solo", "warm", "cold")))
    assert (
        "became so slow that its first round was given up, after 99 s where 9 s"
        in result.failure.sentence
    )
    assert result.profile is None


def test_ranks_that_got_equally_far_are_not_blamed_one_by_one():
    def waiting(orders, process):
        process.ladder(*orders.rungs)
        for rank in (1, 0):
            process.step(12, rank)
        process.tell(PhaseBegun("cluster", 0))
        while True:
            yield

    result, _ = run(waiting)
    assert "all ranks got equally far (12 steps, last block: cluster)" in result.failure.sentence


def test_nothing_to_measure_is_the_users_mistake():
    chosen = LadderChosen((), {"warm": "no data loader was seen"})
    none = ending(5, Rank(0, 0, 0, "cpu"), chosen, LadderEnded("no rungs"), ladder=None)
    result, _ = run(none, rungs=("warm",))
    assert result.failure.users_mistake
    assert result.failure.sentence.endswith("(warm: no data loader was seen)")


def test_after_a_hang_a_users_own_launcher_is_not_started_again():
    one, started = expedition(
        silent("solo", 12), job=Job("command", "accelerate", ("launch", "train.py"))
    )
    result = one.measure_job()
    assert "no rank of train.py ended a step" in result.failure.sentence
    assert len(started) == 1
    assert not started[0].orders.may_start_again


def test_a_job_that_waits_for_an_answer_is_shown_with_its_question():
    def asks(orders, process):
        process.words = "loading\nwhich model? "
        for _ in range(400):
            yield
        process.words += "resnet\n"
        return (yield from even_agents()(orders, process))

    moments = []
    expedition(asks)[0].measure_job(moments.append)
    (notice,) = [moment.notice for moment in moments if moment.notice]
    assert "it waits at: which model?; if it trains by now" in notice


FIRST_STEPS = (
    Block(
        0,
        UNTOUCHED.name,
        0,
        12,
        6.0,
        step_seconds=(0.5,) * 12,
        step_waits=(0.2,) * 12,
        wait_seconds=2.4,
    ),
    LedgerKept(
        rank=0,
        seconds=9.0,
        steps=15,
        timed_steps=12,
        timed_seconds=6.0,
        epoch_steps=100,
        rows=[
            {
                "row": row,
                "seconds": seconds,
                "timed_seconds": seconds,
                "each": [],
                "at_steps": [],
                "times": 0,
            }
            for row, seconds in (("input", 2.4), ("forward", 3.6))
        ],
        places=[],
        unplaced="",
    ),
)


def test_a_script_that_fails_once_its_batches_are_blocks_is_answered_from_its_first_steps():
    fails = ending(*FIRST_STEPS, error="AssertionError: evaluated 1 of 40 batches")
    result, started = run(fails)
    assert [process.orders.whole_side_work for process in started] == [False, True]
    assert "evaluated 1 of 40 batches" in result.failure.sentence
    assert result.profile.settings.rungs == ("warm",)
    assert any("job's first 12 steps" in note for note in result.profile.notes)
    breakdown = attribute(result.profile)
    assert breakdown.step_seconds == pytest.approx(0.5)
    assert {row.name: round(row.seconds, 9) for row in breakdown.run.rows} == {
        "compute": 0.3,
        "input": 0.2,
    }


def test_a_script_whose_evaluations_must_be_whole_is_measured_with_whole_ones():
    def agents(orders, process):
        if orders.whole_side_work:
            return even_agents()(orders, process)
        return ending(*FIRST_STEPS, error="AssertionError: evaluated 1 of 40")(orders, process)

    result, started = run(agents)
    assert len(started) == 2
    assert result.failure is None
    assert result.profile.settings.rungs == ("solo", "warm")
    assert any("evaluations got all their batches" in note for note in result.profile.notes)


def test_a_loop_too_short_for_a_round_is_answered_from_its_first_steps():
    result, _ = run(ending(48, *FIRST_STEPS, LadderEnded("script ended")))
    assert result.failure is None
    assert any("its training loop ended after 48 steps" in note for note in result.profile.notes)
