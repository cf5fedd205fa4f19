"""What PyTorch's profiler and TraceML say of a case, each used as its documentation shows; judged by one rule.

The script gets what the tool's recipe asks for: the profiler a schedule and a table sorted by the processor's own
time, of which the first row is what it says; TraceML a context around each step and its launcher, of whose summary the
diagnosis is what it says. *Right* is an answer that has one of the words of ``truths.csv``, column ``peers``: the
operator that only the fault calls, or the kind of stall, however broadly. TraceML lies in ``build/traceml`` (``pip
install --no-deps --target build/traceml traceml-ai==0.5.0 msgspec nvidia-ml-py``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from bench.cases.answers import Ended, folder_of, plain_command, run
from bench.cases.truths import Case
from bench.machine import ROOT

TRACEML = ROOT / "build" / "traceml"
_PATIENCE = 600.0
_LETTERS = 90
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
    if _steps == 100:
        sys.exit(0)


register_optimizer_step_post_hook(_end)
"""


class LaunchError(Exception):
    """A launch that failed; its message is the line that the tool or the script ended with."""


def ask_tools(case: Case, keep: Path) -> list[object]:
    """A row of the table: what each tool says, and whether it is right; its output stays in ``keep``."""
    row: list[object] = [case.name]
    for name, ask in TOOLS.items():
        try:
            words = ask(case, keep / f"{case.name.replace('/', '-')}.{name}.txt")
            right = "yes" if case.peers and re.search(case.peers, words) else "no"
        except (LaunchError, OSError, LookupError) as problem:
            words, right = f"fails: {problem}", "–"
        row += [words.replace("|", "/")[:_LETTERS], right]
    return row


def _ask_profiler(case: Case, kept: Path) -> str:
    ended = _run(case, kept, insert_after_torch(case.path.read_text(), _PROFILER))
    return " ".join(_top_entry(ended.output))


def _ask_traceml(case: Case, kept: Path) -> str:
    if not TRACEML.is_dir():
        raise LaunchError(f"TraceML is not in {TRACEML.relative_to(ROOT)}")
    script = insert_after_torch(wrap_step(case.path.read_text()), _TRACEML)
    command = [sys.executable, f"{TRACEML}/bin/traceml", "run", case.path.name]
    ended = _run(case, kept, script, [*command, "--nproc-per-node", str(case.nproc)])
    found = re.findall(r"(?:Verdict|Why): (.*?)(?:  |\|)", ended.output)
    return f"{found[0]}: {found[1]}"


def _run(case: Case, kept: Path, script: str, command: list[str] | None = None) -> Ended:
    """Run what a tool made of a script; raises LaunchError."""
    with folder_of(case) as folder:
        (folder / case.path.name).write_text(script)
        search = f"{ROOT / 'src'}:{ROOT}:{TRACEML}"
        ended = run(
            command or plain_command(case, case.path.name), folder, _PATIENCE, PYTHONPATH=search
        )
        kept.write_text(ended.output, encoding="utf-8")
    if ended.code:
        raise LaunchError(_last_line(ended.output))
    return ended


def _last_line(output: str) -> str:
    """The line that names the error: the last that looks like one, else the last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line.split(":")[0] or line.startswith("error:")]
    return (errors or lines or ["(no output)"])[-1][:200]


def _top_entry(output: str) -> tuple[str, str]:
    """Name and share of the first row of the profiler's table that is not the step itself."""
    rows = iter(output.splitlines())
    for row in rows:
        if "Self CPU %" in row:
            break
    for row in rows:
        words = re.split(r"\s{2,}", row.strip())
        if len(words) > 2 and not words[0].startswith(("-", "ProfilerStep")):
            return words[0], words[1]
    raise LaunchError("the profiler printed no table")


def insert_after_torch(text: str, code: str) -> str:
    """A script with ``code`` behind its ``import torch``."""
    return text.replace("\nimport torch\n", f"\nimport torch\n{code}\n", 1)


def wrap_step(text: str) -> str:
    """A script whose step is inside TraceML's context: from where gradients are cleared to the optimizer's step."""
    found = re.search(
        r"^( *)(?:optimizer\.zero_grad\(\)|with quiet:)\n(?:\1.*\n)*?\1.*optimizer\.step\(\)\n(?:\1 .*\n)*",
        text,
        re.M,
    )
    if found is None:
        raise LookupError("no step in the script")
    step = re.sub(r"^", "    ", found[0], flags=re.M).rstrip(" ")
    return text.replace(found[0], f"{found[1]}with traceml.trace_step(model):\n{step}")


TOOLS: dict[str, Callable[[Case, Path], str]] = {
    "torch.profiler": _ask_profiler,
    "TraceML": _ask_traceml,
}
HEADS = ("case", *(head for name in TOOLS for head in (name, f"{name} right")))
