"""OpenMetrics text, as Prometheus and its like read it: https://openmetrics.io (1.0.0).

Families one after the other, with every run's samples in each. No timestamps, and no type that Prometheus' older text
format lacks (``info``): the node exporter's textfile collector reads that and refuses a file that has either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stash.report.export.exported_runs import ExportedRun

_MEANING = {
    "step_seconds": "One step of the whole job",
    "step_low_seconds": "Lower end of its 95 % interval",
    "step_high_seconds": "Upper end of its 95 % interval",
    "samples_per_second": "Of the whole job",
    "stall_seconds": "What a stall adds to a step",
    "stall_low_seconds": "Lower end of its 95 % interval",
    "stall_high_seconds": "Upper end of its 95 % interval",
    "stall_share": "Of the step, from 0 to 1",
}


def render(runs: Sequence[ExportedRun]) -> str:
    """The text of all runs, ending as the format wants."""
    lines = ["# TYPE stash_run_info gauge", "# HELP stash_run_info What was profiled, and on what."]
    for run in runs:
        facts = {f"fact_{_label(name)}": value for name, value in run.facts.items()}
        lines.append(sample("stash_run_info", {**_of(run), "created": run.created, **facts}, 1))
    for family, meaning in _MEANING.items():
        samples = [line for run in runs for line in _samples(run, family)]
        if samples:
            unit = [f"# UNIT stash_{family} seconds"] if family.endswith("_seconds") else []
            lines += [f"# TYPE stash_{family} gauge", *unit, f"# HELP stash_{family} {meaning}.", *samples]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _samples(run: ExportedRun, family: str) -> Iterator[str]:
    for name, value in run.figures.items():
        group, _, rest = name.rpartition("/")
        stall, _, kind = rest.partition("_")
        if not group and name == family:
            yield sample(f"stash_{family}", _of(run), value)
        elif group and family == f"{group}_{kind}":
            yield sample(f"stash_{family}", {**_of(run), "stall": stall}, value)


def _of(run: ExportedRun) -> dict[str, str]:
    return {"run": run.id, "workload": run.workload}


def sample(name: str, labels: dict[str, str], value: float) -> str:
    """One line: a family's name, labels and value."""
    shown = ",".join(f"{label}={_quoted(text)}" for label, text in labels.items())
    return f"{name}{{{shown}}} {value!r}" if shown else f"{name} {value!r}"


def _label(name: str) -> str:
    return "".join(each if each.isalnum() else "_" for each in name)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
