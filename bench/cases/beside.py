"""What PyTorch's profiler and TraceML say of a case, each used as its documentation shows; judged by one rule.

The script gets what the tool's recipe asks for: the profiler a schedule and a table sorted by the processor's own
time, of which the first row is what it says; TraceML a context around each step and its launcher, of whose summary the
diagnosis is what it says. *Right* is an answer that has one of the words of ``truths.csv``, column ``peers``: the
operator that only the fault calls, or the kind of stall, however broadly. TraceML lies in ``build/traceml`` (``pip
install --no-deps --target build/traceml traceml-ai==0.5.0 msgspec nvidia-ml-py``).
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.cases.answers import Ended, folder_of, plain_command, run
from bench.cases.truths import Case
from bench.machine import ROOT
from bench.peers.launch import LaunchError, last_line
from bench.peers.torch_profiler_hta import top_entry

TRACEML = ROOT / "build" / "traceml"
_PATIENCE = 600.0
_PROFILER = """
import os, sys
from torch.optim.optimizer import register_optimizer_step_post_hook
_profiler, _steps = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]), 0


def _profile(*_):
    global _steps
    _steps += 1
    if _steps == 5:
        _profiler.start()
    if _steps == 70:
        _profiler.stop()
        table = _profiler.key_averages().table(
            sort_by="self_cpu_time_total", row_limit=10, max_name_column_width=80)
        if os.environ.get("RANK", "0") == "0":
            print(table, flush=True)
        os._exit(0)


register_optimizer_step_post_hook(_profile)
"""
"""A window of 65 steps; then the script ends, as some go on without end."""
_TRACEML = """
import sys
import traceml_ai as traceml
from torch.optim.optimizer import register_optimizer_step_post_hook

traceml.init(mode="auto")
_steps = 0


def _end(*_):
    global _steps
    _steps += 1
    if _steps == 300:
        sys.exit(0)


register_optimizer_step_post_hook(_end)
"""


@dataclass(frozen=True)
class Said:
    """What a tool named; ``right`` is ``None`` where it failed."""

    words: str
    right: bool | None


def ask_tools(case: Case, keep: Path) -> dict[str, Said]:
    """By tool, what it says; its output stays in ``keep``."""
    return {name: _ask(case, name, ask, keep) for name, ask in TOOLS.items()}


def _ask(case: Case, name: str, ask: Callable[[Case, Path], str], keep: Path) -> Said:
    try:
        words = ask(case, keep / f"{case.name.replace('/', '-')}.{name}.txt")
    except (LaunchError, OSError, LookupError, ValueError) as problem:
        return Said(f"fails: {problem}"[:80], None)
    return Said(words, bool(case.peers) and re.search(case.peers, words) is not None)


def _ask_profiler(case: Case, kept: Path) -> str:
    ended = _run(case, kept, insert_after_torch(case.path.read_text(), _PROFILER))
    return " ".join(top_entry(ended.output))


def _ask_traceml(case: Case, kept: Path) -> str:
    if not TRACEML.is_dir():
        raise LaunchError(f"TraceML is not in {TRACEML.relative_to(ROOT)}")
    script = insert_after_torch(wrap_step(case.path.read_text()), _TRACEML)
    command = [str(TRACEML / "bin" / "traceml"), "run", case.path.name, "--logs-dir", "logs"]
    command += ["--run-name", "run", "--nproc-per-node", str(case.nproc)]
    _run(case, kept, script, [sys.executable, *command])
    found = json.loads(kept.with_suffix(".json").read_text())["primary_diagnosis"]
    return f"{found['kind']}: {found['summary']}"


def _run(case: Case, kept: Path, script: str, command: list[str] | None = None) -> Ended:
    """Run what a tool made of a script; raises LaunchError."""
    with folder_of(case) as folder:
        (folder / case.path.name).write_text(script)
        search = f"{ROOT / 'src'}:{ROOT}:{TRACEML}"
        ended = run(
            command or plain_command(case, case.path.name), folder, _PATIENCE, PYTHONPATH=search
        )
        kept.write_text(ended.output, encoding="utf-8")
        for summary in folder.glob("logs/run/final_summary.json"):
            kept.with_suffix(".json").write_text(summary.read_text())
    if ended.code:
        raise LaunchError(last_line(ended.output))
    return ended


def insert_after_torch(text: str, code: str) -> str:
    """A script with ``code`` behind its ``import torch``."""
    return text.replace("\nimport torch\n", f"\nimport torch\n{code}\n", 1)


def wrap_step(text: str) -> str:
    """A script whose step is inside TraceML's context: from its first line with the model to the optimizer's step."""
    first, last = min(_steps(ast.parse(text)), key=lambda step: step[1] - step[0])
    lines = text.splitlines()
    margin = re.match(r" *", lines[first - 1])
    indent = "" if margin is None else margin[0]
    inside = [f"    {line}" for line in lines[first - 1 : last]]
    wrapped = [*lines[: first - 1], f"{indent}with traceml.trace_step(model):", *inside]
    return "\n".join([*wrapped, *lines[last:], ""])


def _steps(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Lines of each loop's step, from the first to the last."""
    for loop in (node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While))):
        written = [(each, ast.unparse(each)) for each in loop.body]
        begins = [each for each, words in written if "model(" in words or "zero_grad(" in words]
        ends = [each for each, words in written if "optimizer.step(" in words]
        if begins and ends:
            yield begins[0].lineno, ends[-1].end_lineno or ends[-1].lineno


TOOLS = {"torch.profiler": _ask_profiler, "TraceML": _ask_traceml}
