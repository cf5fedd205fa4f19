"""What every watch promises: small records, few ranks shown, and one sentence for what it cannot do."""

import numpy as np
import pytest
from profile_builder import build

from stash.core.artefact import save
from stash.core.errors import StashError, UserError
from stash.measure.protocol.stamped import StepStage
from stash.monitor.accounting import NOW_AND_THEN, STAGES, account_cycles
from stash.monitor.baseline import load_baseline
from stash.monitor.change_test import Slice
from stash.monitor.records import GpuState, Header, MachineState, RecordWriter
from stash.monitor.watch_metrics import Metrics
from stash.monitor.window_lines import window_of

HOUR = 360
"""Windows of ten seconds."""


def header(ranks):
    return Header(id="x", stash_version="1", began=1e9, job="train.py", ranks=ranks)


def part(number, ranks):
    """Of ranks that differ in every digit, the last ones the slowest in turn."""
    seconds = 0.01 + np.random.default_rng(number).random((24, ranks, len(STAGES))) / 100
    seconds[:, (number * 8 + np.arange(8)) % ranks, STAGES.index(StepStage.FORWARD)] += 0.1
    seconds[:, :, [STAGES.index(stage) for stage in NOW_AND_THEN.values()]] = 0.0
    return Slice(
        24 * number,
        24 * number + 23,
        account_cycles(range(ranks), seconds, seconds[:, :, 0]),
        1e9 + 10 * number,
    )


def test_an_hour_of_eight_ranks_is_no_larger_than_a_megabyte(tmp_path):
    record = RecordWriter(tmp_path / "run.watch.jsonl", header(8))
    gpus = tuple(
        GpuState(index=at, clock=0.987654, heat=81.5, power=612.3, throttled=0.123456)
        for at in range(8)
    )
    for number in range(HOUR):
        window = window_of(part(number, 8), "cuda")
        machine = MachineState(
            node=0, others_cores=1.23456, steal=0.0123, disk_bytes=1.23456e9, gpus=gpus
        )
        record.write(window.model_copy(update={"machines": (machine,)}))
    assert 100_000 < (tmp_path / "run.watch.jsonl").stat().st_size <= 1_000_000


def test_of_many_ranks_the_slowest_are_exported_whichever_they_were_before():
    metrics = Metrics(header(100))
    for number in range(5):
        metrics.receive_line(window_of(part(number, 100), "cpu"))
    lines = [
        line for line in metrics.text().splitlines() if line.startswith("stash_rank_seconds_total")
    ]
    assert {line.partition('rank="')[2].partition('"')[0] for line in lines} == {
        str(rank) for rank in range(32, 40)
    }


def test_a_counter_never_falls_whatever_a_window_says():
    """Of ranks that wait for input, those that compute less may be last: Prometheus took that for a restart."""
    metrics = Metrics(header(4))
    seen = []
    for late in (0.02, -0.01, -0.01, 0.03):
        found = window_of(part(1, 4), "cpu")
        metrics.receive_line(
            found.model_copy(update={"stalls": {**found.stalls, "contention": late}})
        )
        line = next(line for line in metrics.text().splitlines() if 'stall="contention"' in line)
        seen.append(float(line.rpartition(" ")[2]))
    assert seen == pytest.approx([24 * each for each in (0.02, 0.02, 0.02, 0.03)])


def test_a_baseline_of_another_job_or_that_is_none_is_refused_in_one_sentence(
    tmp_path,
):
    path = tmp_path / "other.stash.json"
    save(build({"solo": [0.05, 0.05], "crowd": [0.06, 0.06], "node": [0.07, 0.07]}), path)
    with pytest.raises(
        UserError, match=r"and this is other\.py; name a profile of the same job, or add --force"
    ):
        load_baseline(path, "other.py", force=False)
    assert load_baseline(path, "other.py", force=True).split["step"] > 0
    for content in ("", "{", "[]"):
        path.write_text(content)
        with pytest.raises(StashError) as refused:
            load_baseline(path, "other.py", force=False)
        assert "other.stash.json" in str(refused.value)
        assert "\n" not in str(refused.value)
