"""Files of schedules: jobs, clusters, matrices, traces of others; each mistake in one sentence with its place."""

from dataclasses import replace

import pytest
from forecast_profiles import gpu_job
from schedules import EXAMPLES, cluster, matrix

from stash.core.errors import UserError
from stash.schedule.lab_files import jobs_text, matrix_text, read_cluster, read_jobs, read_matrix
from stash.schedule.matrix import PACKED, SPREAD
from stash.schedule.profile_rates import rates_of
from stash.schedule.trace_importers import read_trace

LAB = cluster(V=(4, 4), K=(8,))
RATES = matrix({("m", 1, "V"): 2.0, ("m", 1, "K"): 0.5, ("m", 4, "V"): 7.0, ("n", 1, "V"): 0.0})


def jobs(tmp_path, text, lab=LAB):
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    return read_jobs(path, lab, RATES)


def test_jobs_are_read_with_the_first_submission_at_zero(tmp_path):
    text = "job,gpus,model,steps,submit,deadline\na,1,m,100,1h,3h\nb,1,m,9,90min,\n"
    found = jobs(tmp_path, text).jobs
    assert [(job.submit, job.steps, job.deadline) for job in found] == [
        (0, 100, 7200),
        (1800, 9, None),
    ]
    again = tmp_path / "again.csv"
    again.write_text(jobs_text(found))
    assert read_jobs(again, LAB, RATES).jobs == tuple(replace(job, deadline=None) for job in found)


def test_what_cannot_run_is_left_out_with_the_reason(tmp_path):
    found = jobs(tmp_path, "job,gpus,model,steps\na,1,m,9\nwide,9,m,9\nzero,1,n,9\nodd,2,m,9\n")
    assert [name for name, _ in found.excluded] == ["wide", "zero", "odd"]
    assert (
        found.excluded[0][1] == "it asks for 9 GPUs at once, and no type of cluster has more than 8"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name,gpus\n", "has no column job"),
        ("job,gpus,model,steps\na,1,m,1\na,1,m,1\n", ":3: job: a is also in line 2"),
        (
            "job,gpus,model,steps\na,0,m,1\n",
            ":2: gpus: '0' should be greater than or equal to 1; write it like 4",
        ),
        ("job,gpus,model,steps\na,1.5,m,1\n", ":2: gpus: '1.5' should be a valid integer"),
        ("job,gpus,model,steps,submit\na,1,m,1,-5\n", ":2: submit: '-5' cannot read the duration"),
        (
            "job,gpus,model,steps,submit\na,1,m,1,soon\n",
            ":2: submit: 'soon' cannot read the duration",
        ),
        ("job,gpus,model,steps\na,1,m,\n", ":2: steps: '' should be a valid number"),
        ("job,gpus,model,steps\na,1,,5\n", ":2: model: '' should have at least 1 character"),
        (
            "job,gpus,model,steps,deadline,submit\na,1,m,5,10,20\n",
            "it is not after the job's submission",
        ),
        (
            "job,gpus,model,steps,dedline\na,1,m,5,10\n",
            "there is no column dedline; did you mean deadline?",
        ),
        (
            "job,gpus,model,steps\nwide,9,m,9\n",
            "has no job that can run on cluster; wide: it asks for 9 GPUs",
        ),
        ("job,gpus,model,steps\n", "has 0 lines below its first"),
    ],
)
def test_mistakes_in_jobs(tmp_path, text, why):
    with pytest.raises(UserError) as error:
        jobs(tmp_path, text)
    assert why in str(error.value)


def test_a_cluster_and_what_it_costs(tmp_path):
    path = tmp_path / "lab.yaml"
    path.write_text(
        "power_price: $0.10/kWh\nstaff: 8760\nnodes:\n"
        "  - {gpu: V, gpus: 4, count: 2, purchase: $43800, years: 5, power: 2kW, cores: 32}\n"
        "  - {gpu: K, gpus: 8, price: $0.80/h, name: old}\n"
    )
    lab = read_cluster(path)
    assert [node.name for node in lab.nodes] == ["v-1-1", "v-1-2", "old"]
    # V: 2 machines at $1 and $0.20 for power; K: $0.80; staff $1 over 16 GPUs.
    assert lab.costs.hourly == pytest.approx(2 * 1.2 + 0.8 + 1)
    assert lab.costs.by_type == pytest.approx({"V": 0.3 + 1 / 16, "K": 0.1 + 1 / 16})
    assert lab.fewest_nodes("V", 5) == 2
    assert lab.fewest_nodes("V", 9) == 0
    assert lab.nodes[0].cores == 32


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nodes: []\n", "nodes: needs at least one entry"),
        ("nodes:\n  - {gpu: V, gpus: 0}\n", "nodes[0].gpus"),
        (
            "nodes:\n  - {gpu: V, gpus: 1, purchase: $9000}\n",
            ":2: nodes[0].purchase: over how many years?",
        ),
        ("nodes:\n  - {gpu: V, gpus: 1, power: 1kW}\n", "what does it cost? give power_price"),
        (
            "nodes:\n  - {gpu: V, gpus: 1, name: a}\n  - {gpu: V, gpus: 1, name: a}\n",
            "two machines are called a",
        ),
    ],
)
def test_mistakes_in_clusters(tmp_path, text, why):
    (tmp_path / "lab.yaml").write_text(text)
    with pytest.raises(UserError) as error:
        read_cluster(tmp_path / "lab.yaml")
    assert why in str(error.value)


def test_a_matrix_comes_back_as_it_was_written(tmp_path):
    path = tmp_path / "matrix.csv"
    path.write_text(
        "model,gpus,gpu,placement,steps_per_second,low,high,origin,restart\n"
        "m,2,V,packed,2,1.5,3,forecast,40\nm,2,V,2,1,,,measured,\nm,2,V,spread,0.5,,,,\n"
    )
    found = read_matrix(path)
    assert found.rate("m", 2, "V", 2).value == 1
    assert found.rate("m", 2, "V", 3).value == 0.5
    assert found.restart == {"m": 40}
    path.write_text(matrix_text(found))
    assert read_matrix(path) == found


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("m,1,V,packed,-1", "'-1' should be greater than or equal to 0"),
        ("m,1,V,packed,", "steps_per_second: '' should be a valid number"),
        ("m,1,V,near,1", "'near' is not packed, spread or a number of nodes"),
        ("m,1,V,packed,0", "has no rate above 0"),
    ],
)
def test_mistakes_in_matrices(tmp_path, line, why):
    (tmp_path / "m.csv").write_text(f"model,gpus,gpu,placement,steps_per_second\n{line}\n")
    with pytest.raises(UserError, match=why):
        read_matrix(tmp_path / "m.csv")


SACCT = (
    "JobID|User|Submit|ElapsedRaw|AllocTRES\n9|ada|2024-01-01T00:00:00|86430|cpu=8,gres/gpu=4,gres/gpu:V=4\n"
    "9.batch|ada|2024-01-01T00:00:00|600|cpu=8\n10|ada|2024-01-01T00:00:00|600|cpu=8\n"
)


def test_jobs_of_slurm_s_own_accounts(tmp_path):
    path = tmp_path / "slurm.txt"
    path.write_text(SACCT)
    found = read_trace(path, RATES, duration_on="V")
    (one,) = found.jobs
    assert (one.gpus, one.steps) == (
        4,
        pytest.approx(86430.0 * RATES.rates[one.model, 4, "V", PACKED].value),
    )
    assert sum(found.left_out.values()) == 1
    path.write_text("nothing,like,it\n1,2,3\n")
    with pytest.raises(UserError, match="has no column JobID"):
        read_trace(path, RATES, duration_on="V")


def test_models_are_drawn_by_a_seeded_rule(tmp_path):
    rates = matrix({("a", 1, "V"): 1.0, ("b", 1, "V"): 1.0})
    lines = "".join(f"{n}|ada|2024-01-01T00:00:{n}|9|gres/gpu=1\n" for n in range(10, 50))
    (tmp_path / "t").write_text(f"JobID|User|Submit|ElapsedRaw|AllocTRES\n{lines}")

    def models():
        return [job.model for job in read_trace(tmp_path / "t", rates, "V").jobs]

    drawn = models()
    assert drawn == models()
    assert 8 < drawn.count("a") < 32


def test_rates_of_a_profile_are_measured_where_it_ran_and_forecast_elsewhere(
    tmp_path,
):
    path = tmp_path / "lab.yaml"
    path.write_text(
        "nodes:\n  - {gpu: V100, gpus: 2, count: 2, network: 10gbit}\n  - {gpu: T4, gpus: 2, count: 2}\n"
    )
    profile = gpu_job()
    found = rates_of([(profile, "gpu.stash.json")], read_cluster(path))
    here, there = (found.matrix.rates["resnet50", 4, kind, PACKED] for kind in ("V100", "T4"))
    assert (here.origin, there.origin) == ("measured", "data sheet")
    assert here.value == pytest.approx(1 / 0.3)
    assert there.low < there.value < here.value


def test_the_examples_are_gavels_own():
    lab = read_cluster(EXAMPLES / "cluster.yaml")
    rates = read_matrix(EXAMPLES / "matrix.csv")
    assert lab.counts.tolist() == [8, 16, 24]
    assert rates.rates["ResNet-50 (batch size 128)", 1, "K80", PACKED].value == 0
    assert (
        rates.rate("LM (batch size 10)", 2, "K80", 2)
        is rates.rates["LM (batch size 10)", 2, "K80", SPREAD]
    )
    assert len(read_jobs(EXAMPLES / "jobs.csv", lab, rates).jobs) == 96
