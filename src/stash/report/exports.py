"""Profiles as other tools keep them: MLflow, Weights & Biases, TensorBoard, OpenMetrics text.

What they get is the same everywhere: facts as text, figures as numbers, the verdict as a sentence. Names have a slash
where a tool groups by it: ``stall/prep_seconds``. What is unknown is left out, since none of the tools can hold it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown
from stash.analysis.comparison import recorded_facts
from stash.analysis.step_times import step_matrix
from stash.core.artefact import to_bytes
from stash.core.printable import printable_line
from stash.core.records.profile import Profile
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
    rounds: dict[str, tuple[float, ...]]
    """Seconds of a step under each rung, round after round."""
    verdict: str
    artefact: bytes
    """The profile's own file."""

    @property
    def title(self) -> str:
        return f"{self.workload} {self.created[:16]}"


def exported(profile: Profile) -> ExportedRun:
    """What is handed over; raises StashError if nothing can be derived."""
    breakdown, content = attribute(profile), to_bytes(profile)
    times = step_matrix(profile)
    return ExportedRun(
        id=digest_of(content),
        workload=_fact(profile.workload.name),
        created=_fact(profile.created),
        facts={_name(name): _fact(value) for name, value in recorded_facts(profile).items()},
        figures=dict(_figures(breakdown)),
        rounds={name: tuple(times.matrix[:, number].tolist()) for number, name in enumerate(times.rungs)},
        verdict=printable_line(verdict(breakdown, profile).text),
        artefact=content,
    )


def _figures(breakdown: Breakdown) -> Iterator[tuple[str, float]]:
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
    return ((name, value) for name, value in known.items() if value is not None)


def _fact(text: str) -> str:
    return printable_line(text, _MAX_FACT)[:_MAX_FACT]


def _name(name: str) -> str:
    """A fact's name in letters that every tool takes."""
    return "".join(each if each.isascii() and (each.isalnum() or each in "-./") else "_" for each in name)[:_MAX_FACT]


# MLflow's runs: facts as parameters, figures as metrics, rounds as their history, the profile itself as an artifact.
# A profile that an experiment has already (by its id, in a tag) is not logged twice.
_ID = "stash.id"


def to_mlflow(runs: Sequence[ExportedRun], experiment: str, url: str | None = None) -> int:
    """Log to the tracking server at ``url`` (else MLflow's own choice); how many were new.

    Raises ImportError without mlflow, and whatever mlflow raises.
    """
    mlflow: Any = import_module("mlflow")
    if url is not None:
        mlflow.set_tracking_uri(url)
    client = mlflow.MlflowClient()
    found = client.get_experiment_by_name(experiment)
    number = client.create_experiment(experiment) if found is None else found.experiment_id
    new = [run for run in runs if not client.search_runs([number], f"tags.`{_ID}` = '{run.id}'", max_results=1)]
    for run in new:
        _log(client, number, run)
    return len(new)


def _log(client: Any, experiment: str, run: ExportedRun) -> None:
    entities: Any = import_module("mlflow.entities")
    made = client.create_run(experiment, run_name=run.title)
    moment = made.info.start_time
    metrics = [entities.Metric(f"stash/{name}", value, moment, 0) for name, value in run.figures.items()]
    rounds = [
        entities.Metric(f"stash/rounds/{rung}_seconds", value, moment, number)
        for rung, values in run.rounds.items()
        for number, value in enumerate(values)
    ]
    for first in range(0, len(metrics + rounds), 1000):  # as many as a request may have
        client.log_batch(made.info.run_id, metrics=(metrics + rounds)[first : first + 1000])
    facts = [entities.Param(name, value) for name, value in run.facts.items()]
    for first in range(0, len(facts), 100):
        client.log_batch(made.info.run_id, params=facts[first : first + 100])
    with TemporaryDirectory() as place:
        file = Path(place) / f"{run.id}.stash.json"
        file.write_bytes(run.artefact)
        client.log_artifact(made.info.run_id, str(file))
    tags = {"mlflow.note.content": run.verdict, "stash.created": run.created, _ID: run.id}
    client.log_batch(
        made.info.run_id, tags=[entities.RunTag(name, value) for name, value in tags.items()]
    )  # last: it is whole
    client.set_terminated(made.info.run_id)


# Weights & Biases' runs: facts as configuration, rounds as history, figures as summary, the profile as an artifact.
# The run has the profile's id, so that a profile exported again is the same run. With ``WANDB_MODE=offline`` nothing
# is sent: ``wandb sync`` does that later.


def to_wandb(runs: Sequence[ExportedRun], project: str, url: str | None = None) -> int:
    """Log to ``project``, of the server at ``url`` (else W&B's own choice); how many.

    Raises ImportError without wandb, and whatever wandb raises.
    """
    wandb: Any = import_module("wandb")
    for run in runs:
        settings = wandb.Settings(console="off", silent=True, **({} if url is None else {"base_url": url}))
        with wandb.init(
            project=project, id=run.id, name=run.title, config=run.facts, notes=run.verdict, settings=settings,
            resume="allow" if settings.mode != "offline" else None,
        ) as logged:  # fmt: skip
            for number, values in enumerate(zip_longest(*run.rounds.values())):
                each = zip(run.rounds, values, strict=True)
                logged.log(
                    {f"rounds/{rung}_seconds": value for rung, value in each if value is not None}, step=number
                )
            logged.summary.update({**run.figures, "verdict": run.verdict, "created": run.created})
            kept = wandb.Artifact(f"stash-{run.id[:10]}", type="stash-profile")
            with kept.new_file(f"{run.id}.stash.json", mode="wb") as file:
                file.write(run.artefact)
            logged.log_artifact(kept)
    return len(runs)


# TensorBoard's event files: a folder for each run, with its figures, its rounds as curves, and the verdict as text.
# Written by tensorboard's own writer, which needs neither TensorFlow nor PyTorch.


def to_tensorboard(runs: Sequence[ExportedRun], folder: Path) -> None:
    """Write below ``folder``; a run that is there already is replaced. Raises ImportError without tensorboard."""
    events: Any = import_module("tensorboard.compat.proto.event_pb2")
    writers: Any = import_module("tensorboard.summary.writer.event_file_writer")
    for run in runs:
        place = folder / run.id[:10]
        for old in place.glob("events.out.tfevents.*"):
            old.unlink()
        writer = writers.EventFileWriter(str(place))
        moment = _seconds(run.created)
        for step, summary in _summaries(run):
            writer.add_event(events.Event(wall_time=moment, step=step, summary=summary))
        writer.close()


def _summaries(run: ExportedRun) -> Iterator[tuple[int, Any]]:
    """(step, summary): figures and text at step 0, each rung's rounds as a curve."""
    proto: Any = import_module("tensorboard.compat.proto.summary_pb2")
    tensors: Any = import_module("tensorboard.compat.proto.tensor_pb2")
    shapes: Any = import_module("tensorboard.compat.proto.tensor_shape_pb2")

    def summary(tag: str, **value: Any) -> Any:
        return proto.Summary(value=[proto.Summary.Value(tag=f"stash/{tag}", **value)])

    for name, figure in run.figures.items():
        yield 0, summary(name, simple_value=figure)
    for rung, values in run.rounds.items():
        for number, seconds in enumerate(values):
            yield number, summary(f"rounds/{rung}_seconds", simple_value=seconds)
    text = "\n".join([run.verdict, "", *(f"- {name}: {value}" for name, value in run.facts.items())])
    held = {"dtype": "DT_STRING", "string_val": [text.encode()], "tensor_shape": shapes.TensorShapeProto()}
    shown_as = proto.SummaryMetadata(plugin_data=proto.SummaryMetadata.PluginData(plugin_name="text"))
    yield 0, summary("verdict", metadata=shown_as, tensor=tensors.TensorProto(**held))


def _seconds(created: str) -> float:
    """Seconds since 1970; 0 for a date that cannot be parsed."""
    try:
        return datetime.fromisoformat(created.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return 0.0


# OpenMetrics text (https://openmetrics.io, 1.0.0), without timestamps and without ``info``: the node exporter's
# textfile collector refuses a file that has either.
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


def openmetrics(runs: Sequence[ExportedRun]) -> str:
    """The text of all runs, ending as the format wants."""
    lines = ["# TYPE stash_run_info gauge", "# HELP stash_run_info What was profiled, and on what."]
    for run in runs:
        facts = {f"fact_{_label(name)}": value for name, value in run.facts.items() if name != _ARGUMENTS}
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
    return "".join(each if each.isalnum() else "_" for each in name.lower())


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
