"""The bench of disturbed profiles: what is true, what an answer is worth, where a profile is cut off."""

import pytest

from bench.noise import ablation, play, record, truths
from bench.noise.recordings import Recording
from bench.noise.truths import Known, Truth
from stash.analysis.breakdown import Stall
from stash.core.intervals import Interval
from stash.core.measured import Block, Rank
from stash.core.records.profile import Profile, Settings, Workload

RUNGS = ("solo", "crowd", "node", "warm")


def profile(rounds, slower=0.0):
    """Two ranks on one node; of each round the step's seconds under each rung, rank 1 ``slower`` under crowd."""
    blocks = []
    for number, times in enumerate(rounds):
        for at, (rung, seconds) in enumerate(zip(RUNGS, times, strict=True)):
            for rank in range(1 if rung == "solo" else 2):
                own = seconds + (slower if rung == "crowd" and rank else 0.0)
                began = 4.0 * number + at
                blocks.append(
                    Block(
                        round=number, rung=rung, rank=rank, steps=2, seconds=2 * own, started=began
                    )
                )
    return Profile(
        stash_version="",
        created="",
        hosts=(),
        software={},
        ended="budget",
        elapsed_seconds=60.0,
        workload=Workload(command=(), name="job"),
        ranks=tuple(Rank(rank=r, node=0, local_rank=r, device="cpu") for r in range(2)),
        settings=Settings(
            precision=0.02, budget_seconds=30, rungs=RUNGS, isolated=False, why="asked"
        ),
        blocks=tuple(blocks),
    )


def recording(name, **fields):
    values = {
        "name": name,
        "job": "a job",
        "disturbance": "pip",
        "reference": False,
        "when": 0.0,
        "machine": "",
        "budget": 30.0,
        "truth": None,
        "cause": None,
        "slow_rank": None,
        "others": (0.5, 1.0),
        "seconds": 40.0,
    }
    return Recording(**{**values, **fields})  # type: ignore[arg-type]


def stall(name, seconds, half, share=0.5):
    return Stall(
        name=name,
        time=Interval(value=seconds, low=seconds - half, high=seconds + half),
        share=share,
    )


TRUE = Truth(
    {
        "compute": Known(0.06),
        "contention": Known(0.004),
        "prep": Known(0.03, 0.002),
        "fetch": Known(0.001),
    },
    ("prep",),
    frozenset({"prep", "contention"}),
)


def test_every_recording_of_the_matrix_has_a_name_of_its_own():
    names = [take.name for take in record.takes()]
    assert len(names) == len({*names}) == 180


def test_what_references_say_is_differences_of_the_slower_rank():
    found = truths.truth_of_references(
        [profile([(0.06, 0.06, 0.07, 0.1), (0.07, 0.07, 0.08, 0.11)] * 3, slower=0.004)]
    )
    seconds = {name: known.seconds for name, known in found.stalls.items()}
    assert seconds == pytest.approx(
        {"compute": 0.065, "contention": 0.004, "interconnect": 0.006, "prep": 0.03}
    )
    assert found.step == pytest.approx(0.105)
    assert found.cause == ("prep",)
    assert found.may == {"prep", "interconnect", "contention"}


def test_one_wild_round_in_ten_does_not_move_the_truth():
    quiet = [(0.06, 0.06, 0.07, 0.1)] * 19
    found = truths.truth_of_references([profile([*quiet, (0.06, 0.06, 0.07, 3.0)])])
    assert found.stalls["prep"].seconds == pytest.approx(0.03)


def test_references_that_differ_know_no_better_than_that():
    assert truths.pool_runs([[1.0, 1.0, 1.0], [3.0, 3.0, 3.0]]).half >= 1.0


def test_an_interval_may_miss_by_what_the_truth_is_uncertain():
    assert truths.holds(TRUE, stall("prep", 0.032, 0.001)) is True  # 1 ms and 2 ms in quadrature
    assert truths.holds(TRUE, stall("prep", 0.033, 0.001)) is False
    assert truths.holds(TRUE, stall("compute", 0.062, 0.001)) is False


@pytest.mark.parametrize(
    ("kind", "leading", "right", "expected"),
    [
        ("stall", ["prep"], True, "right"),
        ("stall", ["prep"], False, "partly"),
        ("stall", ["contention"], False, "partly"),
        ("stall", ["fetch"], False, "wrong"),
        ("tie", ["prep", "fetch"], False, "wrong"),
        ("compute", [], False, "wrong"),
        ("cannot tell", [], False, "cannot tell"),
        ("estimate", [], False, "cannot tell"),
    ],
)
def test_what_a_verdict_is_worth(kind, leading, right, expected):
    assert truths.outcome(TRUE, kind, leading, right) == expected


def test_an_answer_agrees_that_names_all_causes_and_nothing_else():
    assert truths.agrees(TRUE, ["prep"], "prep", None)
    assert truths.agrees(TRUE, ["prep", "contention"], "prep", None)
    assert not truths.agrees(TRUE, ["prep", "fetch"], "prep", None)
    assert not truths.agrees(TRUE, [], "compute", None)
    assert not truths.agrees(TRUE, ["prep", "contention"], "contention", None)


def test_what_other_work_costs_is_no_cause():
    assert truths.rank_stalls([stall("disturbed", 0.05, 0.001), stall("prep", 0.03, 0.001)]) == [
        "prep"
    ]


def test_a_profile_is_cut_off_after_the_round_in_which_the_rule_fires():
    whole = profile([(0.06, 0.06, 0.07, 0.1)] * 6)
    kept, seconds = play.stop_by_rule(
        whole, 30.0, lambda so_far, *_: len({block.round for block in so_far.blocks}) == 3
    )
    assert {block.round for block in kept.blocks} == {0, 1, 2}
    # the third round's last block begins after 11 s and takes 0.2
    assert seconds == pytest.approx(11.2)
    kept, seconds = play.stop_by_rule(whole, 8.0, lambda *_: False)
    assert {block.round for block in kept.blocks} == {0, 1}
    assert seconds is None


def test_a_truth_that_scatters_is_none_to_judge_by():
    found = truths.truth_of_references(
        [profile([(0.06, 0.06, 0.07, 0.07 + 0.03 * (number % 2)) for number in range(8)])]
    )
    assert found.uncertain
    assert not TRUE.uncertain


def test_every_mechanism_can_be_switched_off():
    taken = recording("a job beside pip")
    known = (taken, profile([(0.06, 0.064, 0.064, 0.094)] * 6), TRUE)
    assert play.summary("all on", ablation.judge_without({}, [known]))[1:6] == [1, 1, 0, 0, 0]
    for replaced in ablation.OFF.values():
        assert ablation.judge_without(replaced, [known])
