"""How far ``stash probe`` is from the truth and from the usual tools.

On the testbed, where rates are known from transfers of its own: streams, large all-reduces, the disk limit, and
how often one slow node of three is found (and an even cluster called even). Then side by side on one machine,
interleaved: a plain all-reduce loop, iperf3 and fio. Needs root; tools that are not installed are left out.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.machine import arguments, machine
from bench.table import span, table
from stash.analysis.findings.probe_reading import read
from stash.analysis.findings.rates import read_rate
from stash.catalog.layers import load
from stash.core.records.host import DiskRead, Exchange, Probe, Timing
from stash.lab.testbed.bed import Testbed
from stash.measure.launcher.engines import Cluster
from stash.measure.launcher.probe_launch import probe
from stash.measure.probe import disk_pieces
from stash.measure.probe.exchanges import equal_parts

RATES = ("100mbit", "400mbit", "1gbit")
DISKS = ("20MB/s", "60MB/s")
FAST, SLOW = "400mbit", "200mbit"
SIZES = (1024, 1 << 20, 1 << 24)
_PORT = 29555

PROBE = """
import sys
from pathlib import Path
from stash.measure.launcher.probe_launch import probe
from stash.measure.launcher.engines import Cluster
from stash.lab.testbed.accelerator import go_first
go_first()  # emulated hosts share the cores
nodes, node, place, budget, parts, out = sys.argv[1:]
cluster = Cluster(1, int(nodes), int(node), place) if int(nodes) > 1 else Cluster(1)
found = probe(
    cluster, budget=float(budget), data=None, instance=None, what=frozenset(parts.split(","))
)
if found is not None:
    Path(out).write_text(found.model_dump_json())
"""

REFERENCE = """
import json, os, sys, time
import torch, torch.distributed as dist
if sys.argv[1] == "pinned":
    del sys.argv[1]
    os.sched_setaffinity(0, [sorted(os.sched_getaffinity(0))[int(os.environ["LOCAL_RANK"])]])
else:
    from stash.lab.testbed.accelerator import go_first
    go_first()  # emulated hosts share the cores
dist.init_process_group("gloo")
found = {}
for size in map(int, sys.argv[2:]):
    tensor = torch.zeros(size // 4)
    for _ in range(3):
        dist.all_reduce(tensor)
    calls = max(2, min(50, 10_000_000 // size))
    batches = []
    for _ in range(9):
        began = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(tensor)
        batches.append((time.perf_counter() - began) / calls)
    found[size] = sorted(batches)[4]
if dist.get_rank() == 0:
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)
dist.barrier()
dist.destroy_process_group()
"""
"""A plain loop: no barriers, rank 0's own clock, the median of nine batches; pinned as the probe is."""


def probed(bed: Testbed, parts: str, budget: float) -> Probe:
    """One probe started on every host of a testbed."""
    with tempfile.TemporaryDirectory() as folder:
        out, place = Path(folder) / "probe.json", f"{bed.address(0)}:{_PORT}"
        started = bed.run_all(
            lambda node: [
                *(sys.executable, "-c", PROBE, str(bed.nodes), str(node), place, str(budget), parts, str(out))
            ]
        )
        for one in started:
            if one.wait(budget + 120) != 0:
                raise SystemExit(one.output)
        return Probe.model_validate_json(out.read_text())


def reference(bed: Testbed | None, sizes: Sequence[int]) -> dict[int, float]:
    """Seconds of an all-reduce over two ranks as the plain loop sees it: on two hosts, or on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        script, out = Path(folder) / "loop.py", Path(folder) / "loop.json"
        script.write_text(REFERENCE)
        launcher = [sys.executable, "-m", "torch.distributed.run"]
        words = [str(script), str(out), *map(str, sizes)]
        if bed is None:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            argv = [*launcher, "--standalone", "--nproc-per-node=2", str(script), "pinned", *words[1:]]
            done = subprocess.run(argv, check=False, env=environment, capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(done.stderr)
        else:
            head = bed.address(0)
            place = [f"--master-addr={head}", f"--master-port={_PORT + 1}", "--nnodes=2", "--nproc-per-node=1"]
            for one in bed.run_all(lambda node: [*launcher, *place, f"--node-rank={node}", *words]):
                if one.wait(180) != 0:
                    raise SystemExit(one.output)
        return {int(size): seconds for size, seconds in json.loads(out.read_text()).items()}


def median_rate(timing: Timing) -> float:
    return timing.bytes / statistics.median(timing.seconds)


def across(found: Probe) -> Exchange:
    """The exchange over all ranks."""
    links = found.hosts[0].links
    assert links is not None
    return max(links.exchanges, key=lambda one: one.ranks)


def disk_reads(found: Probe) -> list[DiskRead]:
    links = found.hosts[0].links
    assert links is not None
    return [one for one in links.reads if one.cold]


def error_rows(limit: str, ratios: Mapping[str, Sequence[float]]) -> list[list[object]]:
    """Errors of measurements over the truth: a line for each way to measure."""
    return [
        [limit, name, len(some), *(f"{100 * (of(some) - 1):+.1f} %" for of in (statistics.median, min, max))]
        for name, some in ratios.items()
    ]


ERROR_HEADS = ("limit", "measured by", "times", "median error", "lowest", "highest")


def shaped_links(rounds: int) -> str:
    """Streams and the largest all-reduce against the verified rate of the links."""
    rows = []
    for rate in RATES:
        errors: dict[str, list[float]] = {"one flow": [], "eight flows": [], "all-reduce": []}
        for _ in range(rounds):
            with Testbed(2, network=rate) as bed:
                truth = min(link.measured for link in bed.links)
                found = probed(bed, "streams,exchanges", 15)
            for host in found.hosts:
                for stream in host.links.streams if host.links is not None else ():
                    name = "one flow" if stream.flows == 1 else "eight flows"
                    errors[name].append(median_rate(stream.timings[0]) / truth)
            # Over two ranks the bus bandwidth is bytes over seconds: each sends its tensor once.
            errors["all-reduce"].append(median_rate(across(found).timings[-1]) / truth)
        rows += error_rows(rate, errors)
    return table(ERROR_HEADS, rows)


def small_messages(rounds: int) -> str:
    """The latency of one hop, from the smallest message, against the plain loop on the same two hosts."""
    rows = []
    with Testbed(2) as bed:
        for number in range(rounds):
            ours = _smallest(bed) if number % 2 == 0 else None  # first now one and now the other
            loop = reference(bed, [SIZES[0]])[SIZES[0]]
            ours = _smallest(bed) if ours is None else ours
            rows.append([f"{ours / 2 * 1e6:.0f} µs", f"{loop / 2 * 1e6:.0f} µs", f"{ours / loop:.2f}"])
    return table(["α by the probe", "α by the loop", "ratio"], rows)


def _smallest(bed: Testbed) -> float:
    return statistics.median(across(probed(bed, "exchanges", 6)).timings[0].seconds)


def limited_disk(rounds: int) -> str:
    """Cold reads of files written for it, against the limit of a control group."""
    rows = []
    for limit in DISKS:
        ratios: dict[str, list[float]] = {}
        asked = float(limit.removesuffix("MB/s")) * 1e6
        for _ in range(rounds):
            with Testbed(1, disk=limit) as bed:
                for one in disk_reads(probed(bed, "reads", 16)):
                    name = f"{one.pattern}{' direct' if one.direct else ''}, {one.readers} at once, by {one.reader}"
                    rate = read_rate(one)
                    assert rate is not None
                    ratios.setdefault(name, []).append(rate.value / asked)
        rows += error_rows(limit, ratios)
    return table(ERROR_HEADS, rows)


def slow_nodes(beds: int) -> str:
    """One of three nodes with half the network, and even ones: how often the reading finds them."""
    facts = load()
    named = {"one slow node": 0, "even": 0}
    for number in range(beds):
        for case in named:
            overrides = {number % 3: {"network": SLOW}} if case == "one slow node" else None
            with Testbed(3, network=FAST, overrides=overrides) as bed:
                found = probed(bed, "streams", 8)
            named[case] += any(finding.name == "uneven-nodes" for finding in read(found, facts).findings)
    return table(["cluster of three", "times", "called uneven"], [[case, beds, n] for case, n in named.items()])


def against_loop(rounds: int) -> str:
    """All-reduce over two ranks of this machine: ours and the plain loop, in turn."""
    ratios: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(rounds):
        found = probe(Cluster(2), budget=8, data=None, instance=None, what=frozenset({"exchanges"}))
        assert found is not None
        ours = {timing.bytes: statistics.median(timing.seconds) for timing in across(found).timings}
        loop = reference(None, SIZES)
        for size in SIZES:
            ratios[size].append(ours[size] / loop[size])
    rows = [[f"{size // 1024} KiB", str(rounds), span(some)] for size, some in ratios.items()]
    return table(["all-reduce of", "rounds", "seconds, probe over loop"], rows)


def against_iperf3(rounds: int) -> str:
    """Streams between two hosts of an unshaped and a shaped testbed: ours and iperf3's, in turn."""
    if shutil.which("iperf3") is None:
        return "iperf3 is not installed (Debian: apt install iperf3)"
    rows = []
    for rate in (None, FAST):
        ratios: dict[int, list[float]] = {1: [], 8: []}
        with Testbed(2, network=rate) as bed:
            for _ in range(rounds):
                links = probed(bed, "streams", 6).hosts[0].links
                assert links is not None
                for stream in links.streams:
                    ratios[stream.flows].append(median_rate(stream.timings[0]) / _iperf3(bed, stream.flows))
        rows += [[rate or "unshaped", str(flows), str(rounds), span(some)] for flows, some in ratios.items()]
    return table(["link", "flows", "rounds", "rate, probe over iperf3"], rows)


def _iperf3(bed: Testbed, flows: int) -> float:
    server = bed.run(["iperf3", "--server", "--one-off"], 1)
    client = bed.run(
        ["sh", "-c", f"sleep 0.5; iperf3 --json --omit 1 --time 2 --parallel {flows} --client {bed.address(1)}"], 0
    )
    client.wait(30)
    server.wait(30)
    return float(json.loads(client.output)["end"]["sum_received"]["bits_per_second"]) / 8


def against_fio(rounds: int) -> str:
    """Cold sequential reads of files of their own, through the page cache: our reader's and fio's, in turn."""
    if shutil.which("fio") is None:
        return "fio is not installed (Debian: apt install fio)"
    ratios = []
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for _ in range(rounds):
            chosen = disk_pieces.written(Path(folder) / "files", disk_pieces.PIECE_BYTES, 8, 30)
            assert chosen is not None
            first, second = chosen.halves()
            disk_pieces.evict(first)
            ours = equal_parts(disk_pieces.read(first, 30)[0], 1)
            assert ours is not None
            disk_pieces.evict(second)
            ratios.append(median_rate(ours) / _fio([piece.path for piece in second]))
            shutil.rmtree(Path(folder) / "files")
    return table(["read", "rounds", "rate, our reader over fio"], [["sequential, cold", str(rounds), span(ratios)]])


def _fio(paths: Sequence[Path]) -> float:
    """Bytes per second of reading some files once, by fio's own account."""
    argv = ["fio", "--name=one", "--readonly", "--rw=read", "--bs=1M", "--output-format=json"]
    argv += ["--filename=" + ":".join(map(str, paths)), f"--nrfiles={len(paths)}"]
    argv += ["--file_service_type=sequential", f"--size={sum(path.stat().st_size for path in paths)}"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]["read"]
    return float(job["io_bytes"]) / (float(job["runtime"]) / 1e3)


def main() -> None:
    chosen = arguments(
        __doc__,
        only=("", "tables whose title contains this"),
        rounds=(5, ""),
        beds=(20, "clusters of each case of slow nodes"),
    )
    print(machine(), flush=True)
    for title, make, times in (
        ("Shaped links: the probe against the verified rate", shaped_links, chosen.rounds),
        ("Small messages: the latency of a hop", small_messages, chosen.rounds),
        ("Limited disk: cold reads against the limit", limited_disk, chosen.rounds),
        ("Slow nodes: how often one is found", slow_nodes, chosen.beds),
        ("Peers: a plain all-reduce loop", against_loop, chosen.rounds),
        ("Peers: iperf3", against_iperf3, chosen.rounds),
        ("Peers: fio", against_fio, chosen.rounds),
    ):
        if chosen.only.lower() in title.lower():
            print(f"\n## {title}\n\n{make(times)}", flush=True)


if __name__ == "__main__":
    main()
