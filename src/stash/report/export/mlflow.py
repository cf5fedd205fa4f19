"""MLflow's runs: facts as parameters, figures as metrics, rounds as their history, the profile itself as an artifact.

A profile that an experiment has already (by its id, in a tag) is not logged twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stash.report.export.exported_runs import ExportedRun

_ID = "stash.id"


def write(runs: Sequence[ExportedRun], experiment: str, url: str | None = None) -> int:
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
