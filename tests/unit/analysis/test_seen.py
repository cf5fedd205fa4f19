"""Stalls of jobs whose rungs cannot be switched: from what their ranks were seen to wait, worked out by hand."""

from __future__ import annotations

import pytest
from breakdowns import change_blocks
from profile_builder import build

from stash.advice.case import Case, why_stall
from stash.advice.remedies import REMEDIES
from stash.analysis.attribution import attribute
from stash.analysis.seen import expert_loads, groups_of, phase_seconds
from stash.core.measured import StagePasses
from stash.core.records.profile import GroupUse, MeshAxis, PipelineSchedule
from stash.report import model_facts

MESH = (
    MeshAxis(name="dp", ranks=2, across_nodes=True),
    MeshAxis(name="tp", ranks=2, across_nodes=False),
)
DIVIDED = dict.fromkeys(("solo", "crowd", "node"), "the model is divided among ranks")


def seconds(profile):
    breakdown = attribute(profile)
    assert sum(stall.seconds for stall in breakdown.stalls) == pytest.approx(breakdown.step_seconds)
    return {stall.name: pytest.approx(stall.seconds) for stall in breakdown.stalls}


def whole(waits, **workload):
    """Four ranks on two nodes whose step takes 100 ms; ``waits[rank]`` are seconds of a step."""
    profile = build(
        {"cluster": [0.1] * 3},
        ranks=4,
        nodes=2,
        skipped=DIVIDED,
        workload={"mesh": MESH, **workload},
    )
    return change_blocks(
        profile,
        lambda b: {"group_waits": {key: value * b.steps for key, value in waits[b.rank].items()}},
    )


def test_what_all_ranks_of_a_group_wait_is_its_exchange_and_the_rest_a_slower_rank():
    # tensor groups are ranks 0, 1 and 2, 3 (inside nodes), data groups 0, 2 and 1, 3 (across)
    waits = [
        {"tp/all_reduce": 0.010, "dp/all_gather": 0.020},
        {"tp/all_reduce": 0.014, "dp/all_gather": 0.020},
        {"tp/all_reduce": 0.006, "dp/all_gather": 0.028},
        {"tp/all_reduce": 0.006, "dp/all_gather": 0.020},
    ]
    # tensor: 10 of ranks 0, 1 and 6 of 2, 3: 8; data: 20; slower ranks: (4 + 8) / 4, less than the slowest's 5 more
    assert seconds(whole(waits)) == {
        "compute": 0.069,
        "contention": 0.003,
        "interconnect": 0.008,
        "network": 0.020,
    }


def test_who_waits_in_another_group_for_an_exchange_that_ended_later_waits_for_that_exchange():
    # data groups share a link: ranks 0, 2 have theirs after 10 ms, 1, 3 after 16; in the tensor groups 0 and 2 wait
    early = {"dp/all_reduce": 0.010, "tp/all_reduce": 0.011}
    late = {"dp/all_reduce": 0.016, "tp/all_reduce": 0.005}
    apart = whole([early, late, early, late])
    assert seconds(apart) == {
        "compute": 0.079,
        "contention": 0.0,
        "interconnect": 0.005,
        "network": 0.016,
    }
    by_name = {wait.name: wait for wait in attribute(apart).seen.waits}
    assert by_name["dp"].apart == pytest.approx(0.003)
    assert (
        "data all_reduce: 13.0 ms waited a step, 16.0 ms in all for its exchange, which ends apart"
        in str(model_facts.model_facts(attribute(apart), apart))
    )
    # AND rank 1, which works 6 ms longer, is waited for by 3 in its data group, and by 0 and 2 afterwards
    slow = [
        {"dp/all_reduce": 0.010 + 0.006 * (rank == 3), "tp/all_reduce": 0.011 - 0.006 * (rank % 2)}
        for rank in range(4)
    ]
    assert seconds(whole(slow)) == {
        "compute": 0.0805,
        "contention": 0.0045,
        "interconnect": 0.005,
        "network": 0.010,
    }


def test_what_hides_is_what_was_under_way_and_not_waited_for():
    profile = whole([{"tp/all_reduce": 0.010, "dp/all_gather": 0.020}] * 4)
    # of older profiles
    assert [wait.hidden for wait in attribute(profile).seen.waits] == [
        None,
        None,
    ]
    for missing, overlap in ((3, None), (None, pytest.approx(0.6))):
        job = change_blocks(
            profile,
            lambda b, missing=missing: (
                {} if b.rank == missing else {"group_under_way": {"tp/all_reduce": 0.025 * b.steps}}
            ),
        )
        found = attribute(job)
        assert {wait.name: wait.hidden for wait in found.seen.waits} == {"dp": None, "tp": overlap}
    # AND it is in the stall's line and in the table of groups
    case = Case(found, job)
    assert why_stall(case, "interconnect") == "most is all_reduce of the group tp, 60% hidden"
    assert why_stall(case, "network") == "most is all_gather of the group dp"
    assert ", 60% hidden" in str(model_facts.model_facts(found, job))
    assert [each["hidden"] for each in model_facts.document(found, job)["waits"]] == [None, 0.6]


def test_only_a_schedule_whose_passes_were_timed_makes_a_bubble_of_what_stages_wait():
    waits, schedule = (
        [{"pipeline/recv": 0.030}] * 4,
        PipelineSchedule(name="ScheduleGPipe", stages=2, ranks=2, microbatches=1),
    )
    assert seconds(whole(waits, pipeline=schedule)) == {"compute": 0.1}
    # two pipelines of two ranks, one microbatch, passes of 10 and 20 ms: each rank works 30 and idles 30 of 60 ms
    rows = tuple(
        StagePasses(
            rank=r,
            round=0,
            rung="cluster",
            passes=(f"{r // 2}F0", f"{r // 2}B0", "rest"),
            seconds=(0.01, 0.02, 0.0) * 3,
        )
        for r in range(4)
    )
    uses = (GroupUse(name="pipeline", kind="recv", ranks=2, across_nodes=True, calls=1, bytes=64),)
    profile = whole([{"pipeline/recv": 0.040}] * 4, pipeline=schedule, groups=uses)
    profile = profile.model_copy(update={"passes": rows})
    assert seconds(profile) == {"compute": 0.060, "bubble": 0.030, "network": 0.010}
    found = attribute(profile).seen
    assert found.bubble.late == pytest.approx(0.010)

    # AND where ranks of later rounds, whose passes are not recorded, work half as long again, and idle as much longer
    def lengthen(b):
        times = 1.5 if b.round else 1.0
        return {
            "seconds": times * b.seconds,
            "step_seconds": tuple(times * each for each in b.step_seconds),
            "group_waits": {key: times * value for key, value in b.group_waits.items()},
        }

    assert seconds(change_blocks(profile, lengthen)) == {
        "compute": 0.080,
        "bubble": 0.040,
        "network": pytest.approx(0.040 / 3),
    }


def test_what_ranks_wait_in_a_ring_of_the_scripts_own_is_exchange_and_slower_ranks():
    # GIVEN no schedule, as where a script writes `isend` and `irecv`: two ranks wait 40 ms, two others 10
    waits = [{"group/recv": seconds} for seconds in (0.040, 0.010, 0.040, 0.010)]
    # THEN what all wait is the exchange, the rest is for the ranks that work 90 ms instead of 60: none is compute
    expected = {"compute": 0.075, "network": 0.010, "contention": 0.015}
    assert seconds(whole(waits)) == {name: pytest.approx(s) for name, s in expected.items()}


def test_where_all_groups_cross_nodes_there_is_no_interconnect_in_compute():
    profile = whole([{"dp/all_gather": 0.020}] * 4)
    missing = {each.name: each for each in attribute(profile).skipped}
    assert (
        missing["interconnect"].why
        == "no group that was seen to exchange anything lies inside a node"
    )
    assert (missing["interconnect"].possible, missing["interconnect"].contained_in) == (False, None)


def test_a_ladder_that_was_only_not_asked_for_is_not_replaced_by_what_was_seen():
    profile = build(
        {"node": [0.1] * 3},
        block_extra={"node": {"group_waits": {"world/all_reduce": 0.1}}},
    )
    assert seconds(profile) == {"compute": 0.1}


def test_groups_are_rows_of_the_mesh_and_all_ranks_where_no_axis_tells():
    assert groups_of(MESH, "tp", [0, 1, 2, 3]) == [[0, 1], [2, 3]]
    assert groups_of(MESH, "dp", [0, 1, 2, 3]) == [[0, 2], [1, 3]]
    assert groups_of(MESH, "world", [0, 1, 2, 3]) == [[0, 1, 2, 3]]
    assert groups_of(MESH, "tp", [0, 1]) == [[0, 1]]  # the mesh is of other ranks


def routed(waits, rows):
    """Ranks that exchange tokens of experts: each one's seconds and rows of a step."""
    profile = whole([{"ep/all_to_all_single": each} for each in waits])
    return change_blocks(profile, lambda b: {"received_rows": {"ep": rows[b.rank] * b.steps}})


def test_experts_that_get_more_rows_are_waited_for_and_even_loads_would_save_that():
    # one group of four ranks: rows 100, 100, 300, 100 of 150 on average; every row takes 0.1 ms, so that the others
    # wait 20 ms longer than the slowest, which is 15 ms on average
    rows = [100, 100, 300, 100]
    waits = [0.025, 0.025, 0.005, 0.025]
    loaded = routed(waits, rows)
    (load,) = expert_loads(loaded)
    assert (load.name, load.rank, load.ratio, load.rows) == ("ep", 2, 2.0, 150.0)
    assert load.slower == pytest.approx(0.015)
    assert load.saves == pytest.approx(0.015)
    remedies = {each.name: each for each in REMEDIES["contention"](Case(attribute(loaded), loaded))}
    assert remedies["balance-experts"].saves == pytest.approx(0.015)


def test_waits_that_do_not_go_with_the_rows_are_not_put_down_to_them():
    # rank 0 is slow and gets as many rows as the mean; ranks 1 and 3, of 50 and 150, wait equally long
    rows = [100, 50, 100, 150]
    waits = [0.001, 0.021, 0.021, 0.021]
    (load,) = expert_loads(routed(waits, rows))
    assert (load.rank, load.ratio) == (3, 1.5)
    assert load.slower == pytest.approx(0.015)
    assert load.saves == pytest.approx(0.0, abs=1e-12)


def test_phases_are_means_of_a_step():
    named = change_blocks(
        whole([{}] * 4),
        lambda b: {"phase_seconds": {"rollout": (0.06 + 0.01 * (b.rank % 2)) * b.steps}},
    )
    assert phase_seconds(named, "cluster") == {"rollout": pytest.approx(0.065)}
    facts = dict(model_facts.model_facts(attribute(named), named))
    assert facts["phases"] == "rollout 65.0 ms (65%); 35.0 ms of a step in none"
    assert phase_seconds(whole([{}] * 4), "cluster") == {}
