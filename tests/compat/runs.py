"""One project's runs: plain, profiled, plain again, with the same command; and what came of them.

Plain steps are timed by ``stopwatch/``, which knows nothing of Stash. Files that were there before the profile are
compared with what they are after it.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import shlex
import subprocess
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev

import psutil

from stash.core.artefact import load

_HERE = Path(__file__).parent
_PLAIN_SECONDS = 8.0
_LEAD_IN = 4
_MAX_SECONDS = 300


@dataclass(frozen=True)
class Row:
    """What the table says of a project; seconds throughout."""

    project: str
    version: str
    command: str
    day: str = ""
    plain: tuple[float, ...] = ()
    profiled: float | None = None
    replayed: float | None = None
    """A plain step whose loaders give their first batch over and over; None where no loader of PyTorch is seen."""
    prep: tuple[float, float, float] | None = None
    """What Stash says that a step waits for batches that are made: seconds, and the interval's ends."""
    half_width: float | None = None
    """Of the profiled step: two standard errors of its blocks' means."""
    typed: float | None = None
    """By how much of a measured step the first steps, as typed, were longer; 0 within both intervals."""
    verdict: str = ""
    rungs: tuple[str, ...] = ()
    unknown: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    trouble: tuple[str, ...] = ()


def run(project, where, data, work, budget):
    """All runs of one project; whatever goes wrong is in the row."""
    out = work / "out"
    out.mkdir(parents=True, exist_ok=True)
    places = {"data": str(data), "out": str(out / project.key), "scripts": str(_HERE / "scripts")}
    words = tuple(word.format(**places) for word in project.command)
    # On a busy machine threads that spin for each other would be most of a step.
    variables = {
        **where.variables(),
        "OMP_NUM_THREADS": "1",
        **{name: value.format(**places) for name, value in project.variables},
    }
    shown = " ".join(Path(word).name if "/" in word else word for word in words)
    version = f"{project.package} {where.version(project.package)}"
    begun = Row(project.key, version, shown, datetime.date.today().isoformat())

    plain = [plain_step(words, where, variables, work, "before")]
    before = _contents(out)
    profile = work / "profile.stash.json"
    profile.unlink(missing_ok=True)
    measuring = ("--budget", str(budget), "--output", str(profile))
    try:
        done = _call(
            [where.python, "-m", "stash", "profile", *measuring, *words],
            variables,
            work,
            "profiled",
        )
        trouble = [] if done == 0 else [_last_words(work / "profiled.stderr")]
    except psutil.TimeoutExpired:
        trouble = [f"did not end within {_MAX_SECONDS} s"]
    changed = [name for name, content in before.items() if _contents(out).get(name) != content]
    trouble += [f"{name} changed" for name in changed]
    replayed = plain_step(words, where, {**variables, "COMPAT_REPLAY": "1"}, work, "replayed")
    plain.append(plain_step(words, where, variables, work, "after"))
    trouble += [f"plain: {_last_words(work / 'before.stderr')}"] if None in plain else []
    times = tuple(seconds for seconds in plain if seconds is not None)
    found = {**vars(begun), "plain": times, "replayed": replayed, "trouble": tuple(trouble)}
    return _read(Row(**found), where, profile)


def plain_step(words, where, variables, work, name):
    """Mean step of the command as Stash would start it, without Stash; None if it never stepped."""
    asked = [where.python, "-m", "stash", "profile", "--dry-run", *words]
    output = subprocess.run(
        asked, env=variables, capture_output=True, text=True, check=False, cwd=work
    ).stdout
    parts = shlex.split(output)
    command = [part for index, part in enumerate(parts) if not _assigns(parts[: index + 1])]
    settings = dict(part.split("=", 1) for part in parts[: len(parts) - len(command)])
    moments = work / f"{name}.json"
    moments.unlink(missing_ok=True)
    watching = {
        **settings,
        "PYTHONPATH": str(_HERE / "stopwatch"),
        "COMPAT_MOMENTS": str(moments),
        "COMPAT_SECONDS": str(_PLAIN_SECONDS),
    }
    watching.pop("STASH_ORDERS", None)
    try:
        _call(command, {**variables, **watching}, work, name)
    except psutil.TimeoutExpired:
        return None
    if not moments.exists():
        return None
    ends = json.loads(moments.read_text())[_LEAD_IN:]
    return _trimmed([later - earlier for earlier, later in pairwise(ends)])


def _assigns(parts):
    """Whether all of them are settings that stand before a command."""
    return all("=" in part and part.partition("=")[0].isidentifier() for part in parts)


def _call(command, variables, work, name):
    with (work / f"{name}.stdout").open("w") as out, (work / f"{name}.stderr").open("w") as errors:
        process = psutil.Popen(command, env=variables, cwd=work, stdout=out, stderr=errors)
        try:
            return int(process.wait(_MAX_SECONDS))
        finally:
            if process.is_running():  # past its time, or we are interrupted
                for each in [*process.children(recursive=True), process]:
                    each.kill()


def _trimmed(seconds):
    """The mean without a tenth at either end: steps that hold a validation loop or a checkpoint are no steps."""
    cut = len(seconds) // 10
    kept = sorted(seconds)[cut : len(seconds) - cut]
    return fmean(kept) if kept else None


def _last_words(path):
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "ended without a word"


def _contents(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def _read(row, where, profile):
    """The row with what the profile says, if there is one."""
    if not profile.exists():
        return row
    asked = [where.python, "-m", "stash", "show", "--json", str(profile)]
    document = json.loads(
        subprocess.run(
            asked, capture_output=True, text=True, check=True, env=where.variables()
        ).stdout
    )
    compared = "warm" if "warm" in document["rungs"] else document["rungs"][-1]
    blocks = [block for block in load(profile).blocks if block.rank == 0 and block.rung == compared]
    steps = [seconds for block in blocks for seconds in block.step_seconds]
    means = [fmean(block.step_seconds) for block in blocks]
    prep = next((stall for stall in document["stalls"] if stall["name"] == "prep"), None)
    return Row(
        **{
            **vars(row),
            "profiled": _trimmed(steps),
            "half_width": 2 * stdev(means) / len(means) ** 0.5 if len(means) > 1 else None,
            "prep": prep
            and tuple(
                prep["seconds"] if prep[name] is None else prep[name]
                for name in ("seconds", "low", "high")
            ),
            "typed": document["as_typed"] and document["as_typed"]["share"],
            "verdict": document["verdict"]["stall"] or "cannot tell",
            "rungs": tuple(document["rungs"]),
            "unknown": {skipped["name"]: skipped["why"] for skipped in document["skipped"]},
            "notes": tuple(document["notes"]),
        }
    )
