"""Planted faults, and whether `stash probe` names each; how often it blames a quiet machine; what its milliseconds
are worth. On a machine that does nothing else, as root, in about ten minutes:

    python -m bench.probe            # all of it
    python -m bench.probe repeat     # how far figures of quiet probes lie apart, and verdicts on them: three minutes
    python -m bench.probe logic      # only what is made up: no machine is measured

Faults of cores, quotas, memory and links are real; those of GPUs are answers of NVML, made up as it documents them,
that go through the same readers.
Quiet probes are resampled, burst by burst, to count verdicts that blame a machine which nothing is wrong with;
`--keep FOLDER` keeps them, and takes those that are there instead of measuring again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from bench.machine import ROOT, STASH, arguments, run
from bench.noise.accounts import group
from bench.noise.disturbances import running
from bench.table import progress, report, show, table
from stash.advice.rental import RentalVerdict
from stash.analysis.findings.probe_reading import every_link
from stash.catalog.layers import merge
from stash.catalog.offers import Catalog
from stash.core.artefact import load_probe
from stash.core.records.host import Gpu, Host, Links, PartFigure, Probe
from stash.lab.testbed.bed import Testbed
from stash.measure.host.describe import allowed_nodes
from stash.measure.host.gpu_readings import make_asker, read_gpu, state_of
from stash.report.output import judged_probe

QUOTA_SHARE = 0.6
BUSY = (sys.executable, "-c", "while True: pass")
_EAT = "import numpy\na, b = numpy.ones(2**25), numpy.ones(2**25)\nwhile True: numpy.copyto(b, a)"
EATER = (sys.executable, "-c", _EAT)
JOB = """
import json, sys, time, torch
torch.manual_seed(0)
net = torch.nn.Sequential(*[m for _ in range(4) for m in (torch.nn.Linear(1024, 1024), torch.nn.ReLU())])
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
data = torch.utils.data.TensorDataset(torch.randn(16384, 1024))
times = []
for epoch in range(1000):
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=256):
        optimizer.zero_grad(); net(batch).square().mean().backward(); optimizer.step()
        times.append(time.perf_counter())
        if len(sys.argv) > 1 and len(times) > 20 and times[-1] - times[10] > float(sys.argv[1]):
            print(json.dumps((times[-1] - times[10]) / (len(times) - 11))); sys.exit()
"""
RESAMPLED = 1000
LOST = 0.8, 0.92
"""Of a core's copies: where less is left beside the eaters, memory is to be named; where more is, not."""


def probe(folder: Path, name: str, words: Sequence[str] = (), *options: str) -> Probe:
    """One quick probe of this machine."""
    file = folder / f"{name}.host.json"
    run(
        (*words, *STASH, "probe", "--quick", "--quiet", "--no-metadata", "-o", str(file), *options),
        folder,
        300,
    )
    return load_probe(file)


def judge(found: Probe, past: Sequence[Probe], known: Catalog) -> tuple[set[str], RentalVerdict]:
    """The names of its findings, and the verdict."""
    reading, verdict = judged_probe(found, known, past=past)
    return {finding.name for finding in reading.findings}, verdict


# Real faults: each begins before a probe and ends after it; the finding that names it, and who is not to be blamed


@contextlib.contextmanager
def eaters(folder: Path) -> Iterator[None]:
    with contextlib.ExitStack() as opened:
        for _ in range(os.cpu_count() or 1):
            opened.enter_context(running(EATER, folder))
        time.sleep(1)
        yield


def memory_left(folder: Path) -> float:
    """Of what a second of a core copies, what is left beside the eaters; in turns, by the time of this thread alone.

    Two virtual cores that their host puts far apart take nothing from each other: then there is nothing to name.
    """
    rates: dict[bool, list[float]] = {False: [], True: []}
    source, target = np.ones(2**24), np.ones(2**24)
    for is_eaten in [False, True] * 5:
        with eaters(folder) if is_eaten else contextlib.nullcontext():
            began = time.thread_time()
            for _ in range(8):
                np.copyto(target, source)
            rates[is_eaten].append(1 / (time.thread_time() - began))
    return float(np.median(rates[True]) / np.median(rates[False]))


@contextlib.contextmanager
def quota() -> Iterator[Sequence[str]]:
    with group(cores=QUOTA_SHARE * len(os.sched_getaffinity(0))) as limited:
        yield limited.words


def real_faults(folder: Path) -> Mapping[str, tuple[AbstractContextManager[object], set[str]]]:
    return {
        "a core taken by a busy loop": (running(BUSY, folder), {"busy-cores"}),
        "a quota of 60 % of the cores": (quota(), {"quota-used-up", "cpu-limit"}),
        "memory bandwidth eaten": (eaters(folder), {"busy-memory"}),
    }


def links_probe(folder: Path, name: str, rates: Sequence[str]) -> Probe:
    """Four hosts in network namespaces, probed with their links at these rates."""
    file, place = folder / f"{name}.host.json", ""
    with Testbed(len(rates), network=rates[0], verify=False) as bed:
        for node, rate in enumerate(rates):
            bed.set_network(node, rate)
        place = f"{bed.address(0)}:29544"
        words = (
            *STASH,
            "probe",
            "--only",
            "streams",
            "--budget",
            "8",
            "--quiet",
            "--no-metadata",
            "-o",
            str(file),
        )
        started = bed.run_all(
            lambda node: [
                *words,
                "--nproc-per-node",
                "1",
                "--nnodes",
                str(len(rates)),
                "--node-rank",
                str(node),
                "--rdzv-endpoint",
                place,
            ],
            env={"PYTHONPATH": str(ROOT / "src")},
        )
        codes = [each.wait(120) for each in started]
    if any(codes):
        raise RuntimeError(started[0].output[-500:])
    return load_probe(file)


# Made-up faults: what NVML and /sys would say, through the readers that a GPU machine uses


class ScriptedGpu:
    """NVML's answers of one GPU; what it is not told it does not know."""

    def __init__(self, **answers: object) -> None:
        usual: dict[str, object] = {
            "ClockInfo": 1395,
            "MaxClockInfo": 1410,
            "CurrentClocksEventReasons": 0x4,
            "PowerUsage": 391_000,
            "EnforcedPowerLimit": 400_000,
            "Temperature": 61,
            "TotalEccErrors": 0,
            "RemappedRows": (0, 0, 0, 0),
            "NvLinkState": 1,
            "NvLinkErrorCounter": 0,
            "PcieReplayCounter": 0,
        }
        self._answers = {**usual, **answers}

    def __getattr__(self, question: str) -> object:
        name = question.removeprefix("nvmlDeviceGet")
        if name not in self._answers:
            raise OSError("not supported")
        return lambda *asked: self._answers[name]


def scripted_machine(
    faulty: ScriptedGpu, nvlinks: int = 12, slow: float = 1.0, **about: object
) -> Probe:
    """Eight A100s, of which GPU 3 is as scripted."""
    chance, states, figures, gpus = random.Random(0), [], [], []
    for index in range(8):
        ask = make_asker(faulty if index == 3 else ScriptedGpu(), 0)
        states.append(state_of([read_gpu(ask, f"cuda:{index}")], ask))
        rate = 250e12 * chance.gauss(1, 0.005) * (slow if index == 3 else 1)
        name = "gemm bfloat16 8192x8192x8192"
        seconds = tuple((1e12 / rate,) * 5 for _ in range(3))
        figures.append(
            PartFigure(
                device=f"cuda:{index}",
                name=name,
                unit="FLOP/s",
                work=1e12,
                together=True,
                bursts=seconds,
            )
        )
        lanes = nvlinks if index == 3 else 12
        gpus.append(
            Gpu(index=index, name="NVIDIA A100-SXM4-40GB", nvlinks=lanes, numa_node=index // 4)
        )
    links = Links(
        created="2026-11-29T00:00:00",
        elapsed_seconds=1.0,
        figures=tuple(figures),
        states=tuple(states),
    )
    host = Host(hostname="scripted", gpus=tuple(gpus), links=links, **about)
    return Probe(
        stash_version="",
        created="2026-11-29T00:00:00",
        hosts=(host,),
        budget_seconds=1.0,
        elapsed_seconds=1.0,
    )


def wrong_node(folder: Path) -> tuple[int, ...] | None:
    """The nodes of a process that may only use cores of node 1, from a made-up tree of files."""
    for node, cores in ((0, "0-47"), (1, "48-95")):
        place = folder / f"sys/devices/system/node/node{node}"
        place.mkdir(parents=True)
        (place / "cpulist").write_text(cores)
    (folder / "sys/devices/system/cpu").mkdir(parents=True)
    (folder / "sys/devices/system/cpu/online").write_text("0-95")
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/status").write_text("Cpus_allowed_list:\t48-95\n")
    return allowed_nodes(folder)


def scripted_faults(folder: Path) -> Mapping[str, tuple[Probe, set[str]]]:
    """By what is wrong, the probe and the finding that names it; nothing wrong has none."""
    held = ScriptedGpu(ClockInfo=1185, CurrentClocksEventReasons=0x80)
    hot = ScriptedGpu(ClockInfo=900, CurrentClocksEventReasons=0x40, Temperature=91)
    return {
        "made up: healthy": (scripted_machine(ScriptedGpu()), set()),
        "made up: power brake": (scripted_machine(held, slow=0.89), {"held-clock", "slow-part"}),
        "made up: heat": (scripted_machine(hot, slow=0.65), {"held-clock", "slow-part"}),
        "made up: 11 % slower, no reason": (
            scripted_machine(ScriptedGpu(), slow=0.89),
            {"slow-part"},
        ),
        "made up: lost NVLinks": (scripted_machine(ScriptedGpu(), nvlinks=10), {"lost-nvlinks"}),
        "made up: ECC": (scripted_machine(ScriptedGpu(TotalEccErrors=2)), {"memory-errors"}),
        "made up: row remapping failed": (
            scripted_machine(ScriptedGpu(RemappedRows=(0, 1, 0, 1))),
            {"repair-due"},
        ),
        "made up: NVLink errors": (
            scripted_machine(ScriptedGpu(NvLinkErrorCounter=40)),
            {"link-errors"},
        ),
        "made up: wrong NUMA node": (
            scripted_machine(ScriptedGpu(), allowed_nodes=wrong_node(folder)),
            {"far-numa"},
        ),
    }


# How much the figures and verdicts of a quiet machine scatter


def repeatability(quiet: Sequence[Probe]) -> Iterator[tuple[str, str, str]]:
    """Of each figure: the coefficient of variation over quiet probes, and the largest deviation from their median."""
    rates: dict[str, list[float]] = {}
    for each in quiet:
        for link in every_link(each.hosts):
            rates.setdefault(link.group, []).append(link.rate.value)
    for name, values in rates.items():
        if len(values) > 2:
            middle = float(np.median(values))
            worst = max(abs(value / middle - 1) for value in values)
            yield name, f"{np.std(values, ddof=1) / middle:.1%}", f"{worst:.1%}"


def resample(one: Probe, chance: random.Random) -> Probe:
    """The same probe with its bursts drawn again, with replacement, and so the repetitions of each, and exchanges."""
    host = one.hosts[0]
    assert host.links is not None

    def again(seconds: Sequence[float]) -> tuple[float, ...]:
        return tuple(chance.choices(seconds, k=len(seconds)))

    figures = []
    for figure in host.links.figures:
        drawn = chance.choices(range(len(figure.bursts)), k=len(figure.bursts))
        own = tuple(figure.cpu_seconds[at] for at in drawn) if figure.cpu_seconds else ()
        bursts = tuple(again(figure.bursts[at]) for at in drawn)
        figures.append(figure.model_copy(update={"bursts": bursts, "cpu_seconds": own}))
    exchanges = tuple(
        each.model_copy(
            update={
                "timings": tuple(
                    t.model_copy(update={"seconds": again(t.seconds)}) for t in each.timings
                )
            }
        )
        for each in host.links.exchanges
    )
    links = host.links.model_copy(update={"figures": tuple(figures), "exchanges": exchanges})
    return one.model_copy(update={"hosts": (host.model_copy(update={"links": links}),)})


def false_blame(quiet: Sequence[Probe], known: Catalog) -> tuple[int, Counter[str]]:
    """Verdicts "give back" of resampled quiet probes, each held against the others; and the figures found slow."""
    chance, blamed, slow = random.Random(0), 0, Counter[str]()
    for _ in range(RESAMPLED):
        number = chance.randrange(len(quiet))
        others = [resample(each, chance) for at, each in enumerate(quiet) if at != number]
        reading, verdict = judged_probe(resample(quiet[number], chance), known, past=others)
        blamed += verdict.answer == "give back"
        slow.update(f"{each.group} (quiet {number})" for each in reading.standings if each.slow)
    return blamed, slow


def promises(folder: Path, quiet: Path) -> tuple[str, str, str, str]:
    """Milliseconds that a quota costs a step: as promised from a healthy profile, and by a stopwatch in the job."""
    script, profile = folder / "job.py", folder / "job.stash.json"
    script.write_text(JOB)
    store = folder / "store"
    run(
        (
            *STASH,
            "store",
            "add",
            *(str(each) for each in quiet.glob("quiet*.host.json")),
            "--store",
            str(store),
        )
    )
    run(
        (
            *STASH,
            "profile",
            "--budget",
            "25",
            "--quiet",
            "--nproc-per-node",
            "1",
            "-o",
            str(profile),
            str(script),
        ),
        folder,
        300,
        OMP_NUM_THREADS=str(os.cpu_count()),
    )
    job = (sys.executable, str(script), "12")
    healthy = json.loads(run(job, folder, OMP_NUM_THREADS=str(os.cpu_count())))
    with quota() as words:
        faulty = json.loads(run((*words, *job), folder, OMP_NUM_THREADS=str(os.cpu_count())))
        file = folder / "promised.host.json"
        text = run(
            (
                *words,
                *STASH,
                "probe",
                "--quick",
                "--quiet",
                "--json",
                "--no-metadata",
                "--for",
                str(profile),
                "--store",
                str(store),
                "-o",
                str(file),
            ),
            folder,
            300,
        )
    verdict = json.loads(text)["verdict"]
    promised, lost = verdict["lost_seconds"], faulty - healthy
    off = "unknown" if promised is None else f"{promised / lost - 1:+.0%}"
    return (
        f"{healthy * 1e3:.1f}",
        f"{lost * 1e3:.1f}",
        "unknown" if promised is None else f"{promised * 1e3:.1f}",
        off,
    )


def main() -> int:
    options = arguments(
        __doc__,
        what=(
            ["real", "repeat", "logic"],
            "real: this machine's faults; repeat: quiet; logic: made-up answers.",
        ),
        quiet=(8, "quiet probes"),
        repeats=(4, "times each real fault is planted"),
        keep=("", "folder of quiet probes: of those that are there, and of new ones"),
    )
    known = merge(None, None)
    report("")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if "logic" in options.what:
            show(HEADS, _judge_scripted(folder / "tree", known))
        quiet = []
        if {"real", "repeat"} & {*options.what}:
            quiet = list(_quiet(Path(options.keep or folder), options.quiet))
        if "real" in options.what:
            print()
            show(HEADS, _real(folder, options.repeats, quiet, known))
        if "repeat" in options.what:
            print(
                table(
                    ("figure of a quiet machine", "standard deviation", "largest deviation"),
                    repeatability(quiet),
                )
            )
            blamed, slow = false_blame(quiet, known)
            found = "; ".join(f"{count} {name}" for name, count in slow.most_common()) or "none"
            print(
                f"Quiet probes, resampled: {blamed} of {RESAMPLED} say give back (1 in 200 is the most they may)."
            )
            print(f"Figures called slow: {found}", flush=True)
        if "real" in options.what:
            print()
            heads = ("step, ms", "a quota of 60 % costs, ms (stopwatch)", "promised, ms", "off by")
            show(heads, [promises(folder, Path(options.keep or folder))])
    return 0


HEADS = ("fault", "named right", "findings", "verdict")


def _judge_scripted(folder: Path, known: Catalog) -> Iterator[tuple[str, str, str, str]]:
    for name, (found, wanted) in scripted_faults(folder).items():
        names, verdict = judge(found, (), known)
        right = wanted <= names if wanted else not names
        yield name, f"{int(right)} of 1", ", ".join(sorted(names)) or "nothing", verdict.answer


def _quiet(folder: Path, count: int) -> Iterator[Probe]:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        began, file = time.monotonic(), folder / f"quiet{number}.host.json"
        found = load_probe(file) if file.exists() else probe(folder, f"quiet{number}")
        programs = ", ".join(
            f"{each.cores:.1f} cores of {each.name}" for each in found.hosts[0].programs
        )
        progress(
            "quiet", number, f"{time.monotonic() - began:.0f} s", programs or "nothing else ran"
        )
        yield found


def _real(
    folder: Path, repeats: int, quiet: Sequence[Probe], known: Catalog
) -> Iterator[tuple[str, str, str, str]]:
    for name, (_, wanted) in real_faults(folder).items():
        right, seen, answers, note = 0, set[str](), set[str](), ""
        for number in range(repeats):
            fault, _ = real_faults(folder)[name]
            with fault as words:
                found = probe(
                    folder, f"{name.split()[-1]}{number}", words if isinstance(words, tuple) else ()
                )
            names, verdict = judge(found, quiet, known)
            if wanted == {"busy-memory"}:
                left = memory_left(folder)
                note += f", {left:.0%} left"
                named = "busy-memory" in names or left > LOST[0]
                is_right = (
                    named
                    and not ("busy-memory" in names and left > LOST[1])
                    and "busy-cores" in names
                )
            else:
                is_right = wanted <= names
            right += is_right and verdict.answer != "give back"
            seen |= names
            answers.add(verdict.answer)
        yield (
            name + note,
            f"{right} of {repeats}",
            ", ".join(sorted(seen)),
            ", ".join(sorted(answers)),
        )
    right, answers, nodes = 0, set[str](), 4
    for number in range(repeats):
        odd = number % nodes
        found = links_probe(
            folder, f"links{number}", ["100mbit" if n == odd else "200mbit" for n in range(nodes)]
        )
        reading, verdict = judged_probe(found, known)
        texts = [each.text for each in reading.findings if each.name == "uneven-nodes"]
        right += any(text.startswith(f"node {odd} ") for text in texts)
        answers.add(verdict.answer)
    yield (
        "the link of one of 4 nodes at half",
        f"{right} of {repeats}",
        "uneven-nodes",
        ", ".join(sorted(answers)),
    )


if __name__ == "__main__":
    sys.exit(main())
