"""``stash schedule``: what it prints at 80 columns and as JSON, what it asks of Slurm, what it refuses."""

import json
import shutil
from pathlib import Path

import commands
import pytest
from schedules import EXAMPLES, cluster, job, matrix

from stash.core.errors import StashError, UserError
from stash.core.parsers import node_names
from stash.schedule.advice_now import ManagerRequest, advise_now
from stash.schedule.allocation import POLICIES
from stash.schedule.economics import CloudPrice, LeavingRules, cloud_bills, equilibrium
from stash.schedule.simulate import simulate
from stash.schedule.slurm_requests import apply_requests, make_requests, match_queue


@pytest.fixture(autouse=True)
def typed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for path in EXAMPLES.iterdir():
        shutil.copy(path, tmp_path)
    lines = (EXAMPLES / "jobs.csv").read_text().splitlines()
    Path("few.csv").write_text("\n".join(lines[:14]) + "\n")

    def type_words(line):
        lab = "" if "import" in line or "--cluster" in line else " --cluster cluster.yaml"
        exits = commands.run(monkeypatch, "schedule", *f"{line}{lab}".split())
        printed = capsys.readouterr()
        if exits:
            assert (exits, len(printed.err.strip().splitlines())) == (2, 1)
            return printed.err
        return json.loads(printed.out) if "--json" in line else printed.out

    return type_words


def test_policies_stand_side_by_side_on_any_screen(typed):
    out = typed("simulate few.csv --policy fifo-aware,max-min,srtf")
    assert max(map(len, out.splitlines())) <= 80
    assert "13 jobs on 48 GPUs" in out
    assert all(f"\n  {name} " in out for name in ("fifo-aware", "max-min", "srtf"))
    assert "The makespan cannot be below" in out
    assert "?" not in out


def test_the_document_adds_up(typed):
    found = typed("simulate few.csv --policy max-min,fifo-aware --json")
    one = found["policies"]["max-min"]
    assert one["productive"] + sum(one["lost"].values()) == pytest.approx(one["gpu_seconds"])
    assert one["objective"] > 0
    assert one["makespan_seconds"] >= found["bounds"]["makespan_seconds"]


def test_a_type_without_a_rate_is_said_to_stand_idle(typed):
    lines = Path("matrix.csv").read_text().splitlines()
    Path("matrix.csv").write_text("\n".join(line for line in lines if ",P100," not in line) + "\n")
    shown = " ".join(typed("simulate few.csv --policy srtf").split())
    assert "16 of 48 GPUs stand idle: no job has a rate on P100" in shown


def test_advice_shows_ten_changes_and_json_all(typed):
    brief = typed("advise jobs.csv")
    assert "--json has all" in brief
    assert len(brief.splitlines()) < 60
    assert " waits " not in brief
    assert any(job["change"] == "waits" for job in typed("advise jobs.csv --json")["jobs"])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("simulate few.csv --policy lifo", "there is no policy lifo; there are max-min"),
        ("simulate none.csv", "cannot read the jobs none.csv"),
        ("simulate few.csv --cluster few.csv", "few.csv"),
        ("advise few.csv --policy cost,srtf", "--policy cost,srtf: only one can be followed here"),
        ("advise few.csv --apply", "--apply is for --engine slurm"),
        ("advise few.csv --engine slurm", "there is no scontrol here"),
        ("economics few.csv --cloud p9.huge", "p9.huge"),
        ("economics few.csv --cloud p4d.24xlarge", "of which the throughputs say nothing"),
        ("import few.csv --throughputs matrix.csv", "has no column JobID"),
        ("throughputs few.csv", "few.csv"),
    ],
)
def test_what_is_refused_in_one_sentence(typed, monkeypatch, words, why):
    monkeypatch.setenv("PATH", "/nowhere")
    error = typed(words)
    assert why in error
    assert error.startswith("error: ")


def test_economics_says_who_stays(typed):
    found = typed("economics few.csv --cloud p3.2xlarge --json")
    assert set(found["staying"]) | set(found["left"]) == {"ada", "ben", "eva", "kim"}
    assert found["break_even_utilisation"] > 0
    assert "Is lab worth it?" in typed("economics few.csv --cloud p3.2xlarge")


RATES = matrix({("m", 1, "V"): 1.0, ("m", 2, "V"): 2.0})
CLOUD = CloudPrice("big", "V", 1, 3.6)


def test_users_leave_until_nobody_moves_by_hand():
    # One GPU at $3 an hour for 3 h of three one-hour jobs, one after the other: π = $3. Waiting costs $1 an hour.
    # The cloud asks $3.60: ada pays 3, ben 3 + 1 and leaves, kim 3 + 2 and leaves. Then ada alone pays $9 and leaves.
    jobs = [job(name, 3600, user=name) for name in ("ada", "ben", "kim")]

    def queued(these):
        return simulate(these, cluster(V=(1,)), RATES, POLICIES["fifo-aware"])

    found = equilibrium(jobs, 1, 3.0, RATES, queued, LeavingRules(CLOUD, 1.0, 15.0))
    assert [step.price for step in found.steps] == pytest.approx([3, 9])
    assert [step.leaving for step in found.steps] == [("ben", "kim"), ("ada",)]
    assert [bill.own for bill in found.steps[0].bills] == pytest.approx([3, 4, 5])
    assert found.staying == ()
    assert found.break_even == pytest.approx(3 / 3.6)
    patient = equilibrium(jobs, 1, 3.0, RATES, queued, LeavingRules(CLOUD, 0.1, 1.5))
    # two waits of her runtime, then π rises from 3 to 4.5
    assert patient.left == (
        "kim",
        "ada",
        "ben",
    )


def test_cloud_bills_by_the_second():
    jobs = [
        job("a", 3600, user="ada"),
        job("b", 7200, gpus=2, user="ben"),
        job("c", 60, model="other", user="kim"),
    ]
    assert cloud_bills(jobs, RATES, CLOUD) == {"ada": pytest.approx(3.6), "ben": None, "kim": None}
    two = CloudPrice("big", "V", 2, 3.6)
    assert cloud_bills(jobs[:2], RATES, two) == pytest.approx({"ada": 3.6, "ben": 3.6})


TWO = matrix(
    {("m", 1, "fast"): 3.0, ("m", 1, "slow"): 1.0, ("n", 1, "fast"): 1.1, ("n", 1, "slow"): 1.0}
)
QUEUE = """\
JobId=11 JobName=one UserId=u(1) Nice=0 JobState=RUNNING Reason=None Requeue=1 NodeList=slow0 Features=slow
JobId=12 JobName=two UserId=u(1) Nice=0 JobState=RUNNING Requeue=0 NodeList=fast0 Features=fast
JobId=13 JobName=three JobState=PENDING Requeue=1 NodeList=(null) Features=(null)
JobId=14 JobName=other JobState=PENDING Requeue=1 NodeList=(null) Features=(null)
"""


def test_slurm_is_asked_only_for_what_changes_and_may_be_requeued():
    lab = cluster(fast=(1,), slow=(1,))
    jobs = [
        job("11", 900, model="m"),
        job("12", 900, model="n"),
        job("13", 900, model="n"),
        job("99", 9),
    ]
    held = match_queue(jobs, lab, lambda words: QUEUE)
    assert [(each.name, each.on) for each in held.jobs] == [
        ("11", "slow"),
        ("12", "fast"),
        ("13", ""),
    ]
    found = advise_now(held.jobs, lab, TWO, "srtf")
    answers = {each.job.name: each for each in found.jobs}
    assert answers["11"].gpu == "fast"
    assert answers["11"].change == "move from slow"
    asked = {each.job: each for each in make_requests(found, held)}
    assert asked["11"].commands[0] == ("scontrol", "requeue", "11")
    assert asked["11"].commands[1][:4] == ("scontrol", "update", "jobid=11", "features=fast")
    assert asked["12"].commands == ()
    assert "--no-requeue" in asked["12"].note
    assert asked["13"].commands[0][2] == "jobid=13"
    # a queue has no prices that could say so
    assert not any("has room" in each.why for each in found.jobs)
    priced = advise_now(held.jobs, lab, TWO, "makespan")
    assert set(priced.type_prices) == {"fast", "slow"}
    assert any("is full" in each.why for each in priced.jobs)


def test_nodes_of_a_running_job_are_known_by_slurms_lists_or_it_stays():
    assert [*node_names("a[1-2,05]-x,b")] == ["a1-x", "a2-x", "a05-x", "b"]
    lab = cluster(fast=(1,), slow=(1,))
    jobs = [job("11", 900, model="m"), job("12", 900, model="n")]
    listed = QUEUE.replace("NodeList=slow0 Features=slow", "NodeList=slow[0-1] Features=(null)")
    held = match_queue(jobs, lab, lambda words: listed)
    assert held.jobs[0].on == "slow"
    strange = QUEUE.replace(
        "NodeList=slow0 Features=slow", "NodeList=other.example.org Features=(null)"
    )
    held = match_queue(jobs, lab, lambda words: strange)
    asked = {
        each.job: each for each in make_requests(advise_now(held.jobs, lab, TWO, "srtf"), held)
    }
    assert (asked["11"].commands, "on which type it runs is unknown" in asked["11"].note) == (
        (),
        True,
    )


def test_a_requeued_job_is_changed_once_slurm_lets_it():
    tries = []
    asked = []

    def slurm(words):
        if words[1] == "update" and len(tries) < 2:
            tries.append(words)
            raise StashError("Job is no longer pending execution")
        asked.append(tuple(words))
        return ""

    one = ManagerRequest(
        "a", (("scontrol", "requeue", "1"), ("scontrol", "update", "jobid=1", "features=x"))
    )
    done = apply_requests((one,), slurm, clock=lambda: 0.0, sleep=lambda seconds: None)
    assert next(done) == "scontrol requeue 1"
    assert [*done] == ["scontrol update jobid=1 features=x"]
    assert [words[1] for words in asked] == ["requeue", "update"]


def test_what_was_done_before_slurm_refuses_is_said():
    def slurm(words):
        if "jobid=2" in words:
            raise StashError("Access/permission denied")
        return ""

    two = tuple(ManagerRequest(each, (("scontrol", "update", f"jobid={each}"),)) for each in "12")
    done = apply_requests(two, slurm, clock=lambda: 0.0)
    assert next(done) == "scontrol update jobid=1"
    with pytest.raises(StashError, match="denied"):
        next(done)


def test_gpus_that_other_jobs_hold_are_not_given_away():
    lab = cluster(fast=(4, 1), slow=(4,))
    mine = "JobId=11 JobName=one JobState=RUNNING Requeue=1 NodeList=slow0 Features=slow AllocTRES=cpu=1,gres/gpu=1"
    other = "JobId=42 JobName=x UserId=v(2) JobState=RUNNING NodeList=fast[0-1] AllocTRES=node=2,gres/gpu:v100=2"

    def free(*lines):
        held = match_queue(
            [job("11", 900, model="m")], lab, lambda words: "\n".join((mine, *lines))
        )
        assert held.types == ("fast", "slow")
        return [(node.name, node.gpus) for node in held.cluster.nodes]

    assert free() == [("fast0", 4), ("fast1", 1), ("slow0", 4)]
    assert free(other) == [("fast0", 3), ("slow0", 4)]
    assert free(other.replace("RUNNING", "PENDING")) == free()
    assert free(other.replace("gres/gpu:v100=2", "cpu=8")) == free()  # it holds cores alone
    # whose GPUs nobody counts
    nothing = "\n".join(line.partition(" AllocTRES")[0] for line in (mine, other))
    held = match_queue([job("11", 900, model="m")], lab, lambda words: nothing)
    assert [node.name for node in held.cluster.nodes] == ["slow0"]
    assert advise_now(held.jobs, held.cluster, TWO, "srtf").jobs[0].change == "stays"
    with pytest.raises(UserError, match="jobs that are not in the file hold all GPUs of cluster"):
        match_queue(
            [job("11", 900)], cluster(fast=(1,)), lambda words: QUEUE.replace("slow0", "fast1")
        )


@pytest.mark.parametrize(
    ("had", "asked"),
    [
        ("slow", "features=fast"),
        ("fast|slow", "features=fast"),
        ("[slow*1&big]", ""),
        ("ib&slow", ""),
    ],
)
def test_a_job_that_asks_for_more_than_a_type_is_left_alone(had, asked):
    line = f"JobId=11 JobName=one UserId=u(1) JobState=PENDING Requeue=1 NodeList=(null) Features={had}"
    lab = cluster(fast=(1,), slow=(1,))
    held = match_queue([job("11", 900, model="m")], lab, lambda words: line)
    (request,) = make_requests(advise_now(held.jobs, lab, TWO, "srtf"), held)
    assert request.commands == (
        (("scontrol", "update", "jobid=11", asked, "nice=0"),) if asked else ()
    )
    assert bool(request.note) is not bool(asked)


@pytest.mark.parametrize("policy", ["fifo-aware", "srtf", "max-min"])
def test_advice_names_places(typed, policy):
    jobs = typed(f"advise few.csv --policy {policy} --json")["jobs"]
    assert len(jobs) == 13
    assert all(bool(each["gpu"]) is bool(each["nodes"]) and each["why"] for each in jobs)
