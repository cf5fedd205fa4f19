"""Live progress: what it says on a terminal, on one that cannot be updated, without colour, and in a log."""

import io
from types import SimpleNamespace

import pytest
from profile_builder import build
from rich.console import Console

from stash.analysis.attribution import attribute
from stash.core.measured import Block
from stash.measure.launcher.measurement import Moment
from stash.measure.launcher.profile_options import ProfileOptions
from stash.measure.live import Progress

EXPEDITION = SimpleNamespace(
    job=SimpleNamespace(title="train.py"),
    measurement=SimpleNamespace(wishes=ProfileOptions(noise=0.02, budget=60.0)),
)


def rounds(count):
    """Steps of 0.1 s and 0.2 s, of which every second round is slower by 10 %."""
    slower = [1.0 + 0.1 * (number % 2) for number in range(count)]
    return build({"solo": [0.1] * count, "crowd": [0.2 * factor for factor in slower]})


def after(number, elapsed, count):
    """While ``crowd`` is measured; a round has just finished, the ``count``-th, unless that is ``None``."""
    if count is None:
        return Moment("crowd", number, elapsed)
    return Moment("crowd", number, elapsed, rounds(count), attribute(rounds(count)))


def screen(width=80, **settings):
    return Console(
        file=io.StringIO(), width=width, force_terminal=True, highlight=False, **settings
    )


def rendered(console, *moments):
    progress = Progress(EXPEDITION, console, clock=lambda: 100.0)
    with progress:
        for moment in moments:
            progress.show(moment)
        with console.capture() as capture:
            console.print(progress)
    return capture.get()


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_rounds_elapsed_remaining_and_the_least_known_stall(width):
    shown = rendered(screen(width, color_system=None), after(4, 21.0, 4))
    assert "round 5: all devices, no exchange" in shown
    assert (
        "4 rounds, 21 s of 60 s, at most 39 s left\n  contention ±8.8% of the step (target ±2.3%)\n"
        in shown
    )
    assert "contention" in shown  # the breakdown so far
    assert max(map(len, shown.splitlines())) <= width


def test_without_colour_stalls_are_told_apart_by_letters():
    moment = after(4, 21.0, 4)
    assert "####xxxx" in rendered(screen(color_system="truecolor", no_color=True), moment)
    assert "####" not in rendered(screen(color_system="truecolor"), moment)


def test_a_log_gets_the_first_round_and_then_a_few_dozen_at_most():
    console = Console(file=io.StringIO())
    with Progress(EXPEDITION, console) as progress:
        for number in range(1, 601):
            progress.show(after(number, number / 10, min(number, 40) if number <= 40 else None))
        progress.show(after(601, 59.9, 41))
    lines = console.file.getvalue().splitlines()
    assert "round 1 done (0 s of 60 s, at most 60 s left)" in lines[1]
    assert 3 <= len(lines) <= 22
    assert "round 41 done (60 s of 60 s)" in lines[-1]


def test_more_time_than_the_budget_is_never_said_to_be_of_it():
    assert "4 rounds, 63 s\n" in rendered(screen(color_system=None), after(4, 63.0, 4))
    console = Console(file=io.StringIO())
    with Progress(EXPEDITION, console) as progress:
        progress.show(after(4, 63.0, 4))
    line = console.file.getvalue().splitlines()[-1]
    assert line.startswith("  round 4 done (63 s); ")


def test_what_is_known_to_no_better_than_the_whole_step_is_being_measured():
    wild = build({"solo": [0.1, 0.9, 0.1], "crowd": [0.2, 0.1, 1.4]})
    moment = Moment("crowd", 3, 21.0, wild, attribute(wild))
    shown = rendered(screen(color_system=None), moment)
    assert "compute: measuring …" in shown or "contention: measuring …" in shown
    assert "target" not in shown


@pytest.mark.parametrize(
    ("waits", "says"),
    [
        ({}, "no significant waits"),
        ({"wait_seconds": 0.2}, "20.0 ms (20%) of it waiting for the data loader"),
        ({"stage_seconds": {"exchange": 0.3}}, "30.0 ms (30%) of it waiting for the exchange"),
    ],
)
def test_the_first_look_says_what_a_step_waits_for(waits, says):
    profile = build({"solo": [0.1]})
    first = [
        Block(
            0,
            "untouched",
            rank,
            10,
            1.0,
            step_seconds=(0.1,) * 10,
            step_delays=(0.0,) * 10,
            **waits,
        )
        for rank in (0, 1)
    ]
    log = Console(file=io.StringIO(), width=200)
    with Progress(EXPEDITION, log) as progress:
        progress.show(
            Moment("blocks", None, 1.0, profile.model_copy(update={"blocks": tuple(first)}))
        )
    look = f"  first look (10 unmodified steps): 100 ms a step, {says}\n"
    assert look in log.file.getvalue()


def test_what_a_step_takes_is_said_once_before_the_first_ones_are_timed():
    log = Console(file=io.StringIO(), width=200)
    with Progress(EXPEDITION, log) as progress:
        for moment in [
            Moment("warm-up", None, 0.2),
            Moment("first-steps", None, 0.5, step_seconds=0.1),
        ] * 2:
            progress.show(moment)
    assert (
        log.file.getvalue().count("about 100 ms a step while warming up; timing unmodified steps")
        == 1
    )


def test_the_very_first_steps_are_an_answer_while_more_are_timed():
    profile = build({"solo": [0.1]})
    first = tuple(
        Block(0, "untouched", rank, 10, 1.0, step_seconds=(0.1,) * 10, step_delays=(0.0,) * 10)
        for rank in (0, 1)
    )
    log = Console(file=io.StringIO(), width=200)
    with Progress(EXPEDITION, log) as progress:
        for waited in (0.03, 0.04):
            progress.show(
                Moment("first-steps", None, 0.5, step_seconds=0.1, steps=5, waited_seconds=waited)
            )
        progress.show(Moment("blocks", None, 1.0, profile.model_copy(update={"blocks": first})))
    looks = [line for line in log.file.getvalue().splitlines() if "look (" in line]
    assert looks == [
        "  first look (5 unmodified steps): 100 ms a step, 30.0 ms (30%) of it waiting for the data loader; "
        "timing more …",
        "  closer look (10 unmodified steps): 100 ms a step, no significant waits",
    ]


def test_a_budget_of_few_rounds_is_said_to_be_one_before_they_are_measured():
    says = "a round takes about 30 s, so 60 s give an estimate with wide intervals or none; --budget 140 gives 3 rounds"
    console = Console(file=io.StringIO(), width=200)
    with Progress(EXPEDITION, console) as progress:
        progress.show(Moment("warm-up", None, 1.0))
        for phase in ("blocks", "solo"):
            progress.show(Moment(phase, 0, 2.0, round_seconds=30.0))
    assert console.file.getvalue().count(says) == 1
    assert says in rendered(screen(120), Moment("solo", 0, 2.0, round_seconds=30.0))
    assert "a round takes" not in rendered(screen(120), Moment("solo", 0, 2.0, round_seconds=20.0))


def test_what_whoever_waits_should_know_at_once_is_a_line_that_stays():
    moment = Moment("starting", None, 0.0, notice="the job was started by torchrun")
    console = screen()
    with Progress(EXPEDITION, console) as progress:
        progress.show(moment)
    assert "the job was started by torchrun" in console.file.getvalue()
    log = Console(file=io.StringIO())
    with Progress(EXPEDITION, log) as progress:
        progress.show(moment)
    assert "  the job was started by torchrun\n" in log.file.getvalue()
