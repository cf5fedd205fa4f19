"""Speed and memory of ``stash trace`` beside HolisticTraceAnalysis and TraceLens, on traces made up for it.

``python -m bench.trace --hta /path/to/venv/bin/python --tracelens /path/to/another`` writes eight ranks' traces of
35 MB, one of 300 MB and one of 2 GB, reads them by all in turns, each in a process of its own, and prints seconds of
processor and peak memory, and both as multiples of Stash's. HTA is installed into an environment of its own, with
pandas below 2.2: newer ones make it fail on traces of this size. TraceLens is that of AMD-AGI on GitHub; the index's
package of that name is another one. Of 2 GB only Stash is asked.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from bench.machine import arguments
from bench.table import report, table

_EVENT_BYTES = 242
_HTA = """
import sys, warnings; warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis
names = dict(enumerate(sys.argv[1:]))
found = TraceAnalysis(trace_files=names, trace_dir="", include_last_profiler_step=True)
found.get_temporal_breakdown(visualize=False)
found.get_comm_comp_overlap(visualize=False)
"""
_TRACELENS = """
import sys
from TraceLens import TreePerfAnalyzer
for name in sys.argv[1:]:
    TreePerfAnalyzer.from_file(name, include_unlinked_kernels=True).get_df_gpu_timeline()
"""
_STASH = """
import sys
from stash.trace.command import read_job
read_job(sys.argv[1:])
"""


def write_trace(path: Path, rank: int, world: int, size: int) -> None:
    """One rank's trace of about so many bytes, laid out as Kineto does: of ten events six are operations, two are
    calls of the runtime, and two kernels, of which every 25th is an all-reduce."""
    draw = random.Random(rank)
    steps, per_step = 10, size // _EVENT_BYTES // 10 // 5
    info = {"backend": "nccl", "rank": rank, "world_size": world}
    clock, link, begun = 1000.0, 0, 1000.0
    with path.open("w") as file:
        file.write('{\n  "schemaVersion": 1,\n  "deviceProperties": [{"id": 0, "name": "H100"}],\n')
        file.write(
            f'  "distributedInfo": {json.dumps(info)},\n  "displayTimeUnit": "ms",\n  "traceEvents": [\n'
        )
        for step in range(steps):
            begun = clock
            for number in range(per_step):
                link += 1
                for op in ("aten::linear", "aten::addmm", "aten::empty"):
                    dims = (
                        '"Input Dims": [[4096, 1024], [1024]], "Input type": ["c10::BFloat16", ""]'
                    )
                    file.write(
                        _event("cpu_op", op, 1, clock, 4.2, f'"External id": {link}, {dims}')
                    )
                file.write(
                    _event(
                        "cuda_runtime",
                        "cudaLaunchKernel",
                        1,
                        clock + 2,
                        1.5,
                        f'"correlation": {link}',
                    )
                )
                is_exchange = number % 25 == 0
                name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
                name = (
                    name
                    if is_exchange
                    else f"void cutlass::Kernel2<cutlass_80_tensorop_bf16_{number % 40}>(Params)"
                )
                facts = '"Collective name": "allreduce", "In msg nelems": 1048576, "dtype": "BFloat16", "Group size": 8, '
                stream = 20 if is_exchange else 7
                long = draw.uniform(40, 60) if is_exchange else 8.0
                grid = '"grid": [264, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 42'
                args = f'{facts if is_exchange else ""}"stream": {stream}, "correlation": {link}, {grid}'
                file.write(_event("kernel", name, stream, clock + 8, long, args))
                clock += 10 + draw.random()
            file.write(
                _event(
                    "cuda_runtime", "cudaStreamSynchronize", 1, clock - 5, 3.0, '"correlation": 0'
                )
            )
            file.write(
                _event(
                    "user_annotation",
                    f"ProfilerStep#{step}",
                    1,
                    begun,
                    clock - begun - 1,
                    '"Ev Idx": 1',
                )
            )
        process = '"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "python"}'
        file.write(f"  {{{process}}}\n  ]\n}}\n")


def _event(kind: str, name: str, thread: int, start: float, long: float, args: str) -> str:
    return (
        f'  {{\n    "ph": "X", "cat": "{kind}", "name": "{name}", "pid": 0, "tid": {thread},\n'
        f'    "ts": {start:.3f}, "dur": {long:.3f},\n    "args": {{\n      {args}\n    }}\n  }},\n'
    )


def _run(program: list[str], files: list[Path]) -> tuple[float, float]:
    """Seconds of processor, and megabytes of the largest process."""
    wrapped = (
        "import resource, subprocess, sys; silent = dict.fromkeys(('stdout', 'stderr'), subprocess.DEVNULL); "
        "code = subprocess.run(sys.argv[1:], **silent).returncode; "
        "used = resource.getrusage(resource.RUSAGE_CHILDREN); "
        "print(code, used.ru_utime + used.ru_stime, used.ru_maxrss)"
    )
    words = [sys.executable, "-c", wrapped, *program, *map(str, files)]
    code, seconds, peak = subprocess.run(
        words, capture_output=True, text=True, check=True
    ).stdout.split()
    if int(code):
        raise SystemExit(f"{program[0]} failed with {code}")
    return float(seconds), float(peak) / 1024


def main() -> None:
    """Print the table."""
    options = arguments(
        __doc__,
        hta=("", "Python of an environment with HTA"),
        tracelens=("", "Python of one with TraceLens"),
        megabytes=(35, "of each of eight"),
        large=(300, "megabytes of one file"),
        huge=(2000, "megabytes of one file; 0: none"),
        rounds=(3, "each"),
    )
    tools = {"stash": [sys.executable, "-c", _STASH]}
    others = {"HTA": (options.hta, _HTA), "TraceLens": (options.tracelens, _TRACELENS)}
    tools |= {name: [python, "-c", code] for name, (python, code) in others.items() if python}
    rows = []
    with tempfile.TemporaryDirectory() as there:
        for count, megabytes in ((8, options.megabytes), (1, options.large), (1, options.huge)):
            if not megabytes:
                continue
            folder = Path(there) / f"{count}x{megabytes}"
            folder.mkdir()
            files = [folder / f"rank{rank}.json" for rank in range(count)]
            for rank, path in enumerate(files):
                write_trace(path, rank, count, megabytes * 1_000_000)
            asked = {"stash": tools["stash"]} if megabytes == options.huge else tools
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
            for _ in range(options.rounds):
                for name, program in asked.items():
                    found[name].append(_run(program, files))
            seconds = {name: median(run[0] for run in runs) for name, runs in found.items()}
            peaks = {name: max(run[1] for run in runs) for name, runs in found.items()}
            for name in asked:
                cost = seconds[name] / seconds["stash"], peaks[name] / peaks["stash"]
                rows.append(
                    (
                        f"{count} x {megabytes} MB",
                        name,
                        f"{seconds[name]:.2f} s",
                        f"{peaks[name]:.0f} MB",
                        f"{cost[0]:.1f} x",
                        f"{cost[1]:.2f} x",
                    )
                )
            shutil.rmtree(folder)
    report(table(("traces", "tool", "processor", "peak", "time", "memory"), rows))


if __name__ == "__main__":
    main()
