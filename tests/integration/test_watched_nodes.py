"""A run over two nodes is watched by one watcher on each: windows of all ranks are at node 0."""

import sys

import pytest
import yaml
from characterized import needs_testbed
from runs import PATIENCE
from waiting import until

from stash.lab.testbed.bed import Testbed
from stash.monitor.records import load_record

pytestmark = [needs_testbed, pytest.mark.slow]
_STAGE = 0.015


@pytest.fixture
def bed():
    with Testbed(2, network="1gbit", verify=False) as made:
        yield made


def watch(bed, folder, steps, *more, size=4096):
    """Two ranks on each of two hosts, watched; records in folders of their own; ``size``: bytes of gradients."""
    layer = {
        "name": "only",
        "bytes": size,
        "forward_seconds": _STAGE,
        "backward_seconds": 2 * _STAGE,
    }
    (folder / "model.yaml").write_text(yaml.safe_dump({"layers": [layer], "prep_seconds": 0.002}))
    job = (
        "-m",
        "stash.lab.testbed.train_emulated",
        "--model",
        str(folder / "model.yaml"),
        "--steps",
        str(steps),
        *more,
    )

    def command(node):
        (folder / str(node)).mkdir(exist_ok=True)
        ranks = ["--nnodes", "2", "--nproc-per-node", "2", "--node-rank", str(node)]
        meeting = ["--rdzv-endpoint", f"{bed.address(0)}:29577"]
        record = ["-o", str(folder / str(node) / "run.watch.jsonl")]
        return [sys.executable, "-m", "stash", "watch", *ranks, *meeting, *record, *job]

    return bed.run_all(command, env={"OMP_NUM_THREADS": "1", "STASH_TESTBED": "1"})


def test_windows_of_two_nodes_are_one_record_and_a_late_rank_of_the_other_node_is_named(
    bed, tmp_path
):
    nodes = watch(bed, tmp_path, 720, "--fault=3:prep:420:720:0.03")
    assert [node.wait(PATIENCE) for node in nodes] == [0, 0], nodes[0].output + nodes[1].output
    record = load_record(tmp_path / "0" / "run.watch.jsonl")
    assert (record.header.ranks, record.header.nodes) == (4, 2)
    last = record.windows[-1]
    assert set(last.ranks) == {0, 1, 2, 3}
    assert sum(value or 0.0 for value in last.stalls.values()) == pytest.approx(
        last.step_seconds, rel=1e-3
    )
    assert [(late.rank, late.stage) for late in last.stragglers] == [(3, "input")]
    assert [(alert.stall, alert.rank) for alert in record.alerts] == [("input", 3)]
    assert record.events[-1].what == "end"
    assert not list((tmp_path / "1").iterdir())  # node 0 has it all


def test_a_node_that_is_lost_is_an_event(bed, tmp_path):
    watch(bed, tmp_path, 100_000)
    path = tmp_path / "0" / "run.watch.jsonl"
    until(lambda: path.exists() and len(load_record(path).windows) > 0)
    bed.kill(1)
    until(lambda: any("node 1" in event.text for event in load_record(path).events))
    assert any(event.what == "lost" for event in load_record(path).events)


def test_a_link_that_gets_slower_is_told_from_a_late_rank(bed, tmp_path):
    watch(bed, tmp_path, 100_000, size=400_000)
    path = tmp_path / "0" / "run.watch.jsonl"
    until(lambda: path.exists() and len(load_record(path).windows) > 2)
    for node in range(2):
        bed.set_network(node, "50mbit")
    until(lambda: bool(load_record(path).alerts))
    (alert,) = load_record(path).alerts
    assert (alert.stall, alert.rank, alert.ended) == ("exchange", None, False)
    assert "it is a link: `stash probe`" in alert.text
    for node in range(2):
        bed.set_network(node, "1gbit")
    until(lambda: load_record(path).alerts[0].ended)
