"""Probing with real ranks: on this machine, over shaped links, with peers that do not come or vanish."""

import statistics
import sys
import time

import psutil
import pytest
from characterized import needs_testbed
from runs import PATIENCE

from stash.core.errors import UserError
from stash.core.records.host import Probe
from stash.lab.testbed.bed import Testbed
from stash.measure.launcher.engines import Cluster
from stash.measure.launcher.probe_launch import run_probe

BUSY = 2.0
"""How many times too slow a link may look on a machine that does other work."""
PROBE = """
from stash.core.interrupts import REQUESTS, interrupted_by
import os, sys
from pathlib import Path
from stash.measure.launcher.probe_launch import run_probe
from stash.measure.launcher.engines import Cluster
nodes, node, budget, parts, place, out = sys.argv[1:]
with interrupted_by(*REQUESTS): found = run_probe(
    Cluster(int(os.environ.get("RANKS", "1")), int(nodes), int(node), place or None),
    budget=float(budget), data=None, instance=None, what=frozenset(parts.split(",")),
    say=lambda part: print(part, flush=True),
)
if found is not None:
    Path(out).write_text(found.model_dump_json())
print("none" if found is None else "saved", flush=True)
"""


def words(out, nodes, node, budget, parts, place):
    """The command that probes from one node."""
    return [sys.executable, "-c", PROBE, str(nodes), str(node), str(budget), parts, place, str(out)]


def on_all(bed, out, budget, parts, ranks=1):
    """A probe started on every host of a testbed."""
    place = f"{bed.address(0)}:29544"
    return bed.run_all(
        lambda node: words(out, bed.nodes, node, budget, parts, place),
        env={"RANKS": str(ranks), "TMPDIR": str(out.parent)},
    )


def links(found, node=0):
    """What a probe measured on one node."""
    measured = found.hosts[node].links
    assert measured is not None
    return measured


def leftovers(folder):
    """Whatever a probe may have forgotten in its temporary and its current folder."""
    return [
        path.name for path in folder.iterdir() if path.name.startswith((".stash-probe", "stash-"))
    ]


def test_one_machine_is_measured_within_its_budget_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    steps = []
    began = time.monotonic()
    found = run_probe(Cluster(2), budget=2, data=None, instance=None, say=steps.append)
    seconds = time.monotonic() - began
    assert found is not None
    assert steps == ["compute", "reads", "exchanges"]  # there is one node, without GPUs
    assert seconds < 2 + PATIENCE / 2
    mine = links(found)
    assert {figure.device for figure in mine.figures} == {"cpu"}
    assert all(figure.bursts[0] for figure in mine.figures)
    assert mine.exchanges[0].ranks == 2
    assert mine.exchanges[0].timings[0].bytes == 1024
    assert {(read.pattern, read.cold, read.direct) for read in mine.reads} >= {
        ("random", True, False)
    }
    assert {one.link for one in mine.skipped} >= {"streams", "copies"}
    timings = [t for group in (mine.exchanges, mine.reads) for one in group for t in one.timings]
    assert all(timing.seconds and min(timing.seconds) > 0 for timing in timings)
    assert leftovers(tmp_path) == []
    assert not [
        p for p in psutil.Process().children(recursive=True) if "-m stash." in " ".join(p.cmdline())
    ]


def test_nodes_that_do_not_come_are_named_in_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("stash.measure.launcher.probe_launch._NODES_SECONDS", 1.0)
    began = time.monotonic()
    with pytest.raises(
        UserError, match=r"the 2 nodes did not meet at 127.0.0.1:29545 within 1 s; start the same"
    ):
        run_probe(Cluster(1, 2, 0, "127.0.0.1:29545"), budget=5, data=None, instance=None)
    assert time.monotonic() - began < PATIENCE / 2
    assert leftovers(tmp_path) == []


@needs_testbed
@pytest.mark.slow
def test_streams_and_all_reduce_come_close_to_the_rate_of_the_links(tmp_path):
    out = tmp_path / "probe.json"
    with Testbed(2, network="200mbit") as bed:
        rate, burst = (
            min(link.measured for link in bed.links),
            max(link.burst_bytes for link in bed.links),
        )
        ranks = on_all(bed, out, 5, "streams,exchanges")
        assert [rank.wait(PATIENCE) for rank in ranks] == [0, 0], ranks[0].output + ranks[1].output
        assert ranks[1].output.splitlines()[-1] == "none"
    found = Probe.model_validate_json(out.read_text())
    assert len(found.hosts) == 2
    streams = [stream for node in (0, 1) for stream in links(found, node).streams]
    assert [(s.source, s.target, s.flows) for s in streams] == [
        (0, 1, 1),
        (0, 1, 8),
        (1, 0, 1),
        (1, 0, 8),
    ]
    for stream in streams:
        timing = stream.timings[0]
        assert rate / BUSY < timing.bytes / statistics.median(timing.seconds) < rate * 1.1
    across = links(found).exchanges[0]
    assert (across.nodes, across.ranks) == (2, 2)
    largest = across.timings[-1]
    # Ring all-reduce over two ranks: each sends its tensor once. On a busy machine the time is over at a small size,
    # of which a link that was idle lets a burst pass at once.
    assert rate / BUSY < largest.bytes / min(largest.seconds)
    assert (largest.bytes - burst) / min(largest.seconds) < rate * 1.15


@needs_testbed
@pytest.mark.slow
def test_a_node_that_vanishes_spoils_only_what_needs_it(tmp_path):
    out = tmp_path / "probe.json"
    with Testbed(2, network="200mbit", verify=False) as bed:
        ranks = on_all(bed, out, 9, "compute,exchanges")
        while "compute" not in ranks[0].output:
            time.sleep(0.1)
        bed.kill(1)
        assert ranks[0].wait(PATIENCE) == 0, ranks[0].output
    found = Probe.model_validate_json(out.read_text())
    assert links(found).figures
    assert "stopped answering" in {one.link: one.why for one in links(found).skipped}["exchanges"]
    assert [one.link for one in links(found, 1).skipped][-1] == "exchanges"
