"""What real threads did, replayed through the agent's tables: each decision is the one that was recorded."""

from __future__ import annotations

import pytest
from thread_replays import Line, logs, replay_ledger, replay_loops, replay_stamps, replay_watched

from stash.measure.agent.runner.step_stages import STAGES, WATCHED_STAGES

LOGS = logs()
TAKEN_BACK_ONCE = {"profile eval_gradients"}
"""A loop that was refused had what it read taken back again for each further batch; now once."""


INTERRUPTED_BETWEEN_EPOCHS = {
    *(
        "profile eval_update_bn",
        "profile gan",
        "profile gan 2",
        "profile lightning",
        "profile lightning 2",
    ),
    *("profile recipe", "profile recipe 2", "profile remade", "profile replace_fold"),
}
"""Collections and collectives between epochs were rows of their own; now they are the epoch's end."""


SECOND_PASSES = {
    **{"profile gan": "own", "profile gan 2": "own", "profile hf": "optimizer"},
    **{"profile accelerate": "loop", "profile accelerate 2": "loop"},
}
"""What a second pass took before its backward pass, over the same batch or the next of an accumulated step, or the
pass over an epoch's last batch where loaders read ahead, was in another row; now it is ``forward``."""


def is_same(then: Line, now: Line, name: str) -> bool:
    if then == now:
        return True
    *before, effects = then
    return name in TAKEN_BACK_ONCE and [*before, effects.replace("uw", "w", 1)] == now


def merge_epoch_ends(rows: list[Line]) -> list[Line]:
    """The rows, as they were before the script's own code between epochs had one of its own."""
    ends = sum(row[1] for row in rows if row[0] == "epoch end")
    return [
        [row[0], row[1] + ends, *row[2:]] if row[0] == "loop" else row
        for row in rows
        if row[0] != "epoch end"
    ]


def merge_interrupts(rows: list[Line]) -> list[Line]:
    own = ("loop", "collector", "collective")
    return [
        *(row for row in rows if row[0] not in own),
        ["own", sum(row[1] for row in rows if row[0] in own)],
    ]


def merge_second_passes(rows: list[Line], before: str) -> list[Line]:
    moved = (before, "forward")
    rest = [row for row in rows if row[0] not in moved]
    return [*rest, ["passes", sum(row[1] for row in rows if row[0] in moved)]]


@pytest.mark.parametrize("name", LOGS)
def test_loops_are_judged_as_they_were(name: str) -> None:
    for number, (then, now) in enumerate(replay_loops(LOGS[name])):
        assert is_same(then, now, name), f"call {number} of {name}: {then} became {now}"


@pytest.mark.parametrize("name", LOGS)
def test_steps_and_seconds_have_the_rows_that_they_had(name: str) -> None:
    *lines, (kind, steps, seconds) = LOGS[name]
    assert kind == "rows"
    assert replay_stamps(lines, WATCHED_STAGES if name.startswith("watch") else STAGES) == steps
    found = merge_epoch_ends(replay_ledger(lines))
    if name in INTERRUPTED_BETWEEN_EPOCHS:
        found, seconds = ([row[:2] for row in merge_interrupts(rows)] for rows in (found, seconds))
    if name in SECOND_PASSES:
        found, seconds = ([row[:2] for row in rows] for rows in (found, seconds))
        assert dict(found)["forward"] > dict(seconds)["forward"]
        found, seconds = (
            merge_second_passes(rows, SECOND_PASSES[name]) for rows in (found, seconds)
        )
    assert found == seconds


@pytest.mark.parametrize("name", [name for name in LOGS if name.startswith("watch")])
def test_a_watched_run_stamps_what_it_stamped(name: str) -> None:
    for number, (then, now) in enumerate(replay_watched(LOGS[name])):
        assert then == now, f"call {number} of {name}"


def test_the_logs_have_every_kind_of_loop() -> None:
    calls = {line[1] for lines in LOGS.values() for line in lines if line[0] == "loops"}
    assert calls >= {
        "opened",
        "closed",
        "should_stop",
        "next_batch",
        "stepped",
        "skipped_steps",
        "training",
    }
    effects = {
        letter
        for lines in LOGS.values()
        for line in lines
        if line[0] == "loops"
        for letter in line[-1]
    }
    assert effects >= set("Nrecupqkwx")
