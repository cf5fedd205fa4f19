"""An account of traces is evidence like any other: shown, reported, compared, checked, stored, told to agents."""

import json

import pytest
from hand_traces import meeting, two_steps, write

from stash.core.artefact import load_any
from stash.core.errors import UserError
from stash.core.intervals import Interval
from stash.core.trace_records import FILE, Trace
from stash.mcp_server.tools import AgentTools
from stash.trace.cross_check import cross_check

PROFILE = "tests/golden/one-node.stash.json"


@pytest.fixture
def saved(tmp_path, run_stash):
    traces = tmp_path / "traces"
    traces.mkdir()
    for rank, start in enumerate((10, 80)):
        write(traces / f"rank{rank}.json", meeting(rank, start, 110), rank=rank, world=2)
    target = tmp_path / "train.trace.json"
    run_stash("trace", str(traces), "-o", str(target))
    return target


def test_it_is_saved_shown_and_reported(saved, tmp_path, run_stash):
    assert isinstance(load_any(saved), Trace)
    assert "Rank 1 arrives last at 100% of collectives" in " ".join(
        run_stash("show", str(saved)).out.split()
    )
    document = json.loads(run_stash("show", str(saved), "--json").out)
    assert [stall["name"] for stall in document["stalls"]] == ["compute", "contention", "exchange"]
    assert document["verdict"]["stall"] == "contention"
    assert document["step_seconds"] == pytest.approx(110e-6)
    run_stash("report", str(saved), "-o", str(tmp_path / "a.md"))
    assert "contention" in (tmp_path / "a.md").read_text()


def test_what_would_be_saved_is_said_in_dollars(saved, run_stash):
    document = json.loads(
        run_stash("trace", str(saved.parent / "traces"), "--instance", "p3.16xlarge", "--json").out
    )
    price = document["price"]
    assert price["instance"] == "p3.16xlarge"  # one of it has 8 GPUs, and there are 2 ranks
    saved_dollars = {
        each["name"]: each["saved_dollars_per_day"] for each in document["suppositions"]
    }
    assert saved_dollars["rank 1 in time"] == pytest.approx(
        24 * price["dollars_per_hour"] * 70 / 110
    )
    assert (
        "saved a day"
        in run_stash("trace", str(saved.parent / "traces"), "--instance", "p3.16xlarge").out
    )
    run_stash("trace", str(saved.parent / "traces"), "--instance", "p3.17xlarge", code=2)


def test_the_first_schema_loads():
    assert FILE.load("tests/golden/schema-1.trace.json").step_seconds > 0


def test_it_is_stored_and_listed(saved, tmp_path, run_stash):
    store = str(tmp_path / "store")
    run_stash("store", "add", str(saved), "--store", store)
    (row,) = json.loads(run_stash("list", store, "--json").out)
    assert (row["kind"], row["ranks"], row["stall"]) == ("trace", 2, "contention")


def of_steps(saved, exchange):
    """The account with parts known to a tenth, of which exchange is so many seconds."""
    trace = FILE.load(saved)
    parts = [("compute", 0.1), ("exchange", exchange)]
    known = {
        name: Interval(value=time, low=time * 0.9, high=time * 1.1, repetitions=5)
        for name, time in parts
    }
    step = 0.1 + exchange
    return trace.model_copy(
        update={
            "traced": tuple(
                part.model_copy(
                    update={"time": known[part.name], "share": known[part.name].value / step}
                )
                for part in trace.traced
                if part.name in known
            ),
            "step": Interval(value=step, low=step * 0.99, high=step * 1.01, repetitions=5),
        }
    )


def test_it_is_compared_and_checked(saved, tmp_path, run_stash):
    files = [str(tmp_path / f"{name}.trace.json") for name in ("before", "after")]
    for file, exchange in zip(files, (0.02, 0.06), strict=True):
        FILE.save(of_steps(saved, exchange), file)
    (document,) = json.loads(run_stash("compare", *files, "--json").out)
    assert {line["name"]: line["verdict"] for line in document["lines"]} == {
        "compute": "no difference shown",
        "exchange": "slower",
        "step": "slower",
    }
    run_stash("check", files[0], "--max", "exchange=30%", "--require", "ranks=2")
    run_stash("check", files[1], "--max", "exchange=30%", code=1)
    run_stash("check", files[1], "--against", files[0], "--slower", "5%", code=1)
    run_stash("check", files[0], "--max", "fetch=5%", code=2)
    run_stash("compare", files[0], PROFILE, code=2)


def test_an_agent_is_told_it_in_four_kilobytes(saved):
    answer = AgentTools().explain(str(saved))
    assert len(answer) <= 4096
    assert json.loads(answer)["verdict"]["stall"] == "contention"


def test_it_is_held_against_a_profile_of_the_same_job_alone(saved):
    from stash.analysis.attribution import attribute
    from stash.core.artefact import load

    breakdown = attribute(load(PROFILE), PROFILE)
    trace = of_steps(saved, 0.02).model_copy(update={"world_size": breakdown.world_size})
    checks = {check.name: check for check in cross_check(trace, breakdown)}
    assert set(checks) >= {"compute", "exchange", "step"}
    for check in checks.values():
        assert check.difference.value == pytest.approx(check.ladder.value - check.traced.value)
    assert "settle this first" in checks["step"].text
    with pytest.raises(UserError, match="another job"):
        cross_check(trace.model_copy(update={"world_size": 17}), breakdown)


def test_one_file_is_no_trace_of_ours_and_one_of_ours_is_no_trace(saved, tmp_path, run_stash):
    raw = write(tmp_path / "rank0.pt.trace.json", two_steps())
    assert "stash trace" in run_stash("show", str(raw), code=2).err
    assert "stash show" in run_stash("trace", str(saved), code=2).err
