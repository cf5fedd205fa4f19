"""The stages of a step by pencil: events and seconds in, a row out."""

from __future__ import annotations

from typing import Any

import pytest

from stash.measure.agent.runner import step_stages
from stash.measure.agent.runner.step_stages import (
    STAGES,
    WATCHED_STAGES,
    Stages,
    StepUnderWay,
    fold_marks,
)
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.protocol.stamped import (
    DELAY,
    EXCHANGE_DELAY,
    INPUT_DELAY,
    INPUTS,
    LOADERS,
    StepStage,
)

Event = tuple[str, float] | tuple[str, float, Any]
"""What happens, after so many seconds, and what comes with it."""
HALF = 0.5
"""Of each second the thread has no core."""
PASS: list[Event] = [("BACKWARD_BEGINS", 1), ("BACKWARD_ENDED", 2)]


def row_of(events: list[Event], stages: Stages = STAGES) -> list[float]:
    now, step = 0.0, StepUnderWay((int(StepStage.BETWEEN), 0.0, 0.0, 0, None), stages)
    for name, seconds, *about in events:
        now += seconds
        step.handlers[ThreadEvent[name]](now, HALF * now, *(about or [None]))
    return fold_marks(step.end(now, HALF * now))


def taken(row: list[float]) -> dict[str, float]:
    return {stage.name: row[stage] for stage in StepStage if row[stage]}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param(
            [
                ("READ_BEGINS", 1, 2),
                ("READ_ENDED", 2),
                ("BACKWARD_BEGINS", 3),
                ("GRADIENT_READY", 4),
                ("GRADIENT_READY", 1),
                ("BACKWARD_ENDED", 4),
                ("STEPPED", 1),
            ],
            {"BETWEEN": 1, "INPUT": 2, "FORWARD": 3, "BACKWARD": 5, "EXCHANGE": 4, "OPTIMIZER": 1},
            id="stages add up, and a gradient that came late was no exchange",
        ),
        pytest.param(
            [("READ_BEGINS", 1, 0), ("READ_FAILED", 2), ("STEPPED", 1)],
            {"BETWEEN": 2, "INPUT": 2},
            id="a loader that has no more",
        ),
        pytest.param(
            [("REPLAYED", 1), *PASS, ("STEPPED", 1)],
            {"BETWEEN": 1, "FORWARD": 1, "BACKWARD": 2, "OPTIMIZER": 1},
            id="a kept batch",
        ),
        pytest.param(
            [
                ("BACKWARD_BEGINS", 1),
                ("BACKWARD_BEGINS", 1),
                ("BACKWARD_ENDED", 1),
                ("BACKWARD_ENDED", 2),
                ("STEPPED", 5),
            ],
            {"BETWEEN": 1, "BACKWARD": 4, "OPTIMIZER": 5},
            id="a backward pass inside another is part of it",
        ),
        pytest.param(
            [
                ("BACKWARD_BEGINS", 1),
                ("COLLECTIVE_BEGINS", 1),
                ("COLLECTIVE_BEGINS", 1),
                ("COLLECTIVE_ENDED", 1),
                ("COLLECTIVE_ENDED", 1),
                ("BACKWARD_ENDED", 1),
            ],
            {"BETWEEN": 1, "BACKWARD": 2, "COLLECTIVE": 3},
            id="a collective goes back to where it was called",
        ),
        pytest.param(
            [("COLLECTIVE_ENDED", 1), ("STEPPED", 1)],
            {"BETWEEN": 2},
            id="what nobody saw begin ends nothing",
        ),
        pytest.param(
            [
                ("READ_BEGINS", 1, 0),
                ("COPY_BEGINS", 1),
                ("COPY_ENDED", 4),
                ("READ_ENDED", 1),
                ("COPY_BEGINS", 1),
                ("COPY_ENDED", 4),
                *PASS,
            ],
            {"BETWEEN": 1, "INPUT": 6, "FORWARD": 2, "TRANSFER": 4, "BACKWARD": 2},
            id="a copy within a wait is the wait's",
        ),
        pytest.param(
            [("MODEL_CALLED", 2), *PASS, ("MODEL_CALLED", 2), *PASS, ("STEPPED", 5)],
            {"BETWEEN": 4, "FORWARD": 2, "BACKWARD": 4, "OPTIMIZER": 5},
            id="what comes before a forward pass was no optimizer's",
        ),
        pytest.param(
            [*PASS, ("UPDATED_BEFORE", 5), ("MODEL_CALLED", 2), *PASS, ("STEPPED", 5)],
            {"BETWEEN": 3, "BACKWARD": 4, "FORWARD": 1, "OPTIMIZER": 10},
            id="but for the update of another one",
        ),
        pytest.param(
            [("CLEARING_BEGINS", 1), ("CLEARING_ENDED", 2), ("READ_BEGINS", 1, 0)],
            {"BETWEEN": 2, "OPTIMIZER": 2},
            id="clearing gradients is a part of the update, wherever the script does it",
        ),
        pytest.param(
            [*PASS, ("CLEARING_BEGINS", 1), ("CLEARING_ENDED", 2), ("STEPPED", 1)],
            {"BETWEEN": 1, "BACKWARD": 2, "OPTIMIZER": 4},
            id="and no pause before the step",
        ),
        pytest.param(
            [("UPDATED_BESIDE", 4), ("UPDATED_BESIDE", 4), ("MODEL_CALLED", 2), *PASS],
            {"BETWEEN": 2, "FORWARD": 1, "BACKWARD": 2, "OPTIMIZER": 8},
            id="updates beside the counted one are no pause",
        ),
        pytest.param(
            [("SAVE_BEGINS", 1), ("SAVE_ENDED", 2), ("ITERATOR_ASKED", 1), ("EVALUATION_ASKED", 1)],
            {"BETWEEN": 5},
            id="a ledger has rows of its own for these",
        ),
    ],
)
def test_an_event_ends_one_stage_and_begins_another(
    events: list[Event], expected: dict[str, float]
) -> None:
    assert taken(row_of(events)) == expected


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        pytest.param(
            [
                ("EPOCH_BEGINS", 1),
                ("ITERATOR_GIVEN", 2),
                ("FIRST_ASKED", 1),
                ("READ_ENDED", 3),
                *PASS,
            ],
            {"BETWEEN": 2, "EPOCH_START": 5, "FORWARD": 1, "BACKWARD": 2},
            id="an epoch's start",
        ),
        pytest.param(
            [
                ("EVALUATION_BEGINS", 1),
                ("ITERATOR_GIVEN", 2),
                ("EVALUATION_ASKED", 0),
                ("BATCH_GIVEN", 3),
                ("EVALUATION_ASKED", 1),
                ("LOOP_ENDED", 1),
                ("STEPPED", 1),
            ],
            {"BETWEEN": 2, "EVALUATION": 7},
            id="an evaluation lasts to its end",
        ),
        pytest.param(
            [
                ("READ_BEGINS", 1, 0),
                ("READ_ENDED", 1),
                ("EPOCH_BEGINS", 1),
                ("ITERATOR_GIVEN", 1),
                ("FIRST_ASKED", 0),
                ("READ_ENDED", 1),
                ("READ_BEGINS", 1, 1),
                ("READ_ENDED", 1),
                ("READ_BEGINS", 1, 1),
                ("READ_FAILED", 1),
                ("LOOP_WAS_EVALUATION", 0, 3),
                *PASS,
            ],
            {"BETWEEN": 2, "INPUT": 1, "FORWARD": 1, "EVALUATION": 6, "BACKWARD": 2},
            id="a loop that no step trained on, and nothing before it",
        ),
        pytest.param(
            [
                ("SAVE_BEGINS", 1),
                ("COLLECTION_BEGINS", 1),
                ("COLLECTION_ENDED", 2),
                ("SAVE_ENDED", 1),
            ],
            {"BETWEEN": 1, "CHECKPOINT": 2, "COLLECTOR": 2},
            id="interruptions within each other",
        ),
    ],
)
def test_a_watched_run_has_stages_for_what_is_no_step(
    events: list[Event], expected: dict[str, float]
) -> None:
    assert taken(row_of(events, WATCHED_STAGES)) == expected


def test_waits_are_known_by_loader_and_how_long_the_thread_was_kept_from_running() -> None:
    row = row_of(
        [
            ("READ_BEGINS", 1, 9),
            ("COLLECTIVE_BEGINS", 2),
            ("COLLECTIVE_ENDED", 4),
            ("READ_ENDED", 1),
            ("READ_BEGINS", 0, 1),
            ("READ_ENDED", 6),
            ("BACKWARD_BEGINS", 1),
            ("GRADIENT_READY", 1),
            ("BACKWARD_ENDED", 8),
        ]
    )
    assert row[INPUTS : INPUTS + LOADERS] == [1, 6, 0, 2]
    assert (row[INPUT_DELAY], row[EXCHANGE_DELAY], row[DELAY]) == (9 * HALF, 8 * HALF, 24 * HALF)


def test_a_step_of_very_many_events_is_kept_as_its_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Event] = [
        ("READ_BEGINS", 1, 1),
        ("READ_ENDED", 1),
        ("COLLECTIVE_BEGINS", 1),
        ("COLLECTIVE_ENDED", 1),
    ]
    whole = row_of([*events * 50, *PASS])
    monkeypatch.setattr(step_stages, "_MOST_MARKS", 7)
    assert row_of([*events * 50, *PASS]) == whole
