"""Profiles as other tools keep them: MLflow, Weights & Biases, TensorBoard, OpenMetrics text.

What they get is the same everywhere: facts as text, figures as numbers, the verdict as a sentence. Names have a slash
where a tool groups by it: ``stall/prep_seconds``. What is unknown is left out, since none of the tools can hold it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stash.advice.rental import judge_rental
from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.analysis.comparison import recorded_facts
from stash.analysis.findings.probe_reading import every_link, read_probe
from stash.catalog.offers import Catalog
from stash.core.artefact import encode_artefact
from stash.core.printable import printable_line
from stash.core.records.host import Probe
from stash.core.records.profile import Profile
from stash.report.openmetrics import MetricFamily, format_exposition
from stash.report.tracker_runs import (
    MlflowRun,
    TensorBoardRun,
    TrackedFigures,
    WandbRun,
    mlflow_experiment,
)
from stash.store.storage import digest_of

_MAX_FACT = 250
"""Characters of a fact; MLflow's oldest servers take as many."""


@dataclass(frozen=True)
class ExportedRun:
    """One profile, ready to be handed over."""

    id: str
    """Of its content: the same profile is the same run, however often it is exported."""
    workload: str
    created: str
    """ISO 8601 in UTC."""
    facts: dict[str, str]
    """Of job, machines and software, as comparisons name them."""
    figures: dict[str, float]
    """Seconds per step, shares of it from 0 to 1, samples per second."""
    verdict: str
    artefact: bytes
    """The profile's own file."""

    @property
    def title(self) -> str:
        return f"{self.workload} {self.created[:16]}"


def make_export(profile: Profile) -> ExportedRun:
    """What is handed over; raises StashError if nothing can be derived."""
    breakdown = attribute(profile)
    content = encode_artefact(profile)
    known = {
        "step_seconds": breakdown.step_seconds,
        "step_low_seconds": breakdown.step.low,
        "step_high_seconds": breakdown.step.high,
        "samples_per_second": breakdown.samples_per_second,
    }
    for stall in breakdown.stalls:
        known[f"stall/{stall.name}_seconds"] = stall.seconds
        known[f"stall/{stall.name}_low_seconds"] = stall.low
        known[f"stall/{stall.name}_high_seconds"] = stall.high
        known[f"stall/{stall.name}_share"] = stall.share
    return ExportedRun(
        id=digest_of(content),
        workload=_fact(profile.workload.name),
        created=_fact(profile.created),
        facts={
            # letters that every tool takes
            re.sub(r"[^A-Za-z0-9./-]", "_", name)[:_MAX_FACT]: _fact(value)
            for name, value in recorded_facts(profile).items()
        },
        figures={name: value for name, value in known.items() if value is not None},
        verdict=printable_line(verdict(breakdown, profile).text),
        artefact=content,
    )


def _fact(text: str) -> str:
    return printable_line(text, _MAX_FACT)[:_MAX_FACT]


# MLflow's runs: facts as parameters, figures as metrics, rounds as their history, the profile itself as an artifact.
# A profile that an experiment has already (by its id, in a tag) is not logged twice.
_ID = "stash.id"


def log_to_mlflow(runs: Sequence[ExportedRun], experiment: str) -> int:
    """Log to the tracking server that MLflow chooses; how many were new.

    Raises ImportError without mlflow, and whatever mlflow raises.
    """
    mlflow: Any = import_module("mlflow")
    client = mlflow.MlflowClient()
    number = mlflow_experiment(client, experiment)
    new = [
        run
        for run in runs
        if not client.search_runs([number], f"tags.`{_ID}` = '{run.id}'", max_results=1)
    ]
    for run in new:
        made = MlflowRun(client, experiment, run.title)
        entities: Any = import_module("mlflow.entities")
        made.log([(0, _prefix_names(run.figures))])
        facts = [entities.Param(name, value) for name, value in run.facts.items()]
        for first in range(0, len(facts), 100):
            made.client.log_batch(made.id, params=facts[first : first + 100])
        with TemporaryDirectory() as place:
            file = Path(place) / f"{run.id}.stash.json"
            file.write_bytes(run.artefact)
            made.client.log_artifact(made.id, str(file))
        tags = {"mlflow.note.content": run.verdict, "stash.created": run.created, _ID: run.id}
        # Last: it is whole.
        made.client.log_batch(
            made.id, tags=[entities.RunTag(name, value) for name, value in tags.items()]
        )
        made.end()
    return len(new)


def _prefix_names(figures: TrackedFigures) -> TrackedFigures:
    return {f"stash/{name}": value for name, value in figures.items()}


def log_to_wandb(runs: Sequence[ExportedRun], project: str) -> int:
    """Log to ``project`` of the server that W&B chooses; how many.

    Facts are configuration, rounds history, figures the summary, the profile an artifact. The run has the profile's
    id, so that a profile exported again is the same run. Raises ImportError without wandb, and whatever wandb raises.
    """
    wandb: Any = import_module("wandb")
    for run in runs:
        made = WandbRun(project, run.id, run.title, config=run.facts, notes=run.verdict)
        with made.run as logged:
            logged.summary.update({**run.figures, "verdict": run.verdict, "created": run.created})
            kept = wandb.Artifact(f"stash-{run.id[:10]}", type="stash-profile")
            with kept.new_file(f"{run.id}.stash.json", mode="wb") as file:
                file.write(run.artefact)
            logged.log_artifact(kept)
    return len(runs)


def write_tensorboard(runs: Sequence[ExportedRun], folder: Path) -> None:
    """Write below ``folder``, for each run a folder with its figures, its rounds as curves and the verdict as text.

    A run that is there already is replaced. Raises ImportError without tensorboard.
    """
    texts: Any = import_module("tensorboard.plugins.text.summary_v2")
    for run in runs:
        place = folder / run.id[:10]
        for old in place.glob("events.out.tfevents.*"):
            old.unlink()
        made = TensorBoardRun(place, _seconds(run.created))
        made.log([(0, _prefix_names(run.figures))])
        text = "\n".join(
            [run.verdict, "", *(f"- {name}: {value}" for name, value in run.facts.items())]
        )
        made.add(0, texts.text_pb("stash/verdict", text).value)
        made.end()


def _seconds(created: str) -> float:
    """Seconds since 1970; 0 for a date that cannot be parsed."""
    try:
        return datetime.fromisoformat(created.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return 0.0


# OpenMetrics without timestamps and without ``info``: the node exporter's textfile collector refuses a file that has
# either.
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


_ARGUMENTS = "arguments"
"""The fact that is no label: a job's arguments hold names and paths, and everyone who may scrape reads labels."""


def probe_families(probes: Sequence[Probe], catalog: Catalog) -> list[MetricFamily]:
    """Of probes: each figure's rate, findings, and the verdict."""
    readings = [read_probe(probe, catalog) for probe in probes]
    verdicts = [
        ({"hostname": probe.hosts[0].hostname, "answer": judge_rental(probe, reading).answer}, 1.0)
        for probe, reading in zip(probes, readings, strict=True)
    ]
    names = ("hostname", "part", "group", "member", "unit")
    rates = [
        ({name: printable_line(str(getattr(link, name))) for name in names}, link.rate.value)
        for probe in probes
        for link in every_link(probe.hosts)
    ]
    findings = [
        ({"hostname": each.hostname or "", "finding": each.name}, 1.0)
        for reading in readings
        for each in reading.findings
    ]
    families = [
        MetricFamily("stash_probe_rate", "Measured rate of a part or a link, in its unit", rates),
        MetricFamily("stash_probe_finding", "A finding of a probe", findings),
        MetricFamily("stash_probe_verdict", "What to do with the machines of a probe", verdicts),
    ]
    return [family for family in families if family.samples or family.name != "stash_probe_finding"]


def openmetrics(runs: Sequence[ExportedRun], probes: Sequence[MetricFamily] = ()) -> str:
    """The text of all runs, and of what was probed, ending as the format wants."""
    about: list[tuple[dict[str, str], float]] = []
    samples: dict[str, list[tuple[dict[str, str], float]]] = {family: [] for family in _MEANING}
    for run in runs:
        own = {"run": run.id, "workload": run.workload}
        facts = {
            f"fact_{re.sub('[^a-z0-9]', '_', name.lower())}": value
            for name, value in run.facts.items()
            if name != _ARGUMENTS
        }
        about.append(({**own, "created": run.created, **facts}, 1))
        for name, value in run.figures.items():
            group, _, rest = name.rpartition("/")
            stall, _, kind = rest.partition("_")
            if group:
                samples[f"{group}_{kind}"].append(({**own, "stall": stall}, value))
            else:
                samples[name].append((own, value))
    families = [
        MetricFamily(f"stash_{name}", _MEANING[name], found)
        for name, found in samples.items()
        if found
    ]
    info = (
        [MetricFamily("stash_run_info", "What was profiled, and on what", about)] if about else []
    )
    return format_exposition([*info, *families, *probes])
