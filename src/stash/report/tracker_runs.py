"""Runs in experiment trackers, TensorBoard, Weights & Biases and MLflow: figures by step, of profiles and of watches.

A run is opened, given figures, and ended. Names have a slash where a tool groups by it: ``stash/stall/prep_seconds``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

TrackedFigures = Mapping[str, float]
_MOST_METRICS = 1000
"""Of MLflow, as many as a request may have."""


class TrackerRun(Protocol):
    """Raises whatever the tool raises."""

    def log(self, rows: Iterable[tuple[int, TrackedFigures]]) -> None:
        """Add figures, each under its step."""

    def end(self) -> None:
        """Close it: nothing follows."""


class TensorBoardRun:
    """An event file in ``folder``, of events that happened at ``moment``; raises ImportError without tensorboard.

    Written by tensorboard's own writer, which needs neither TensorFlow nor PyTorch.
    """

    def __init__(self, folder: Path, moment: float | None = None) -> None:
        self._events: Any = import_module("tensorboard.compat.proto.event_pb2")
        self._summaries: Any = import_module("tensorboard.compat.proto.summary_pb2")
        writers: Any = import_module("tensorboard.summary.writer.event_file_writer")
        self._writer = writers.EventFileWriter(str(folder))
        self._moment = moment
        self.end = self._writer.close

    def log(self, rows: Iterable[tuple[int, TrackedFigures]]) -> None:
        for step, figures in rows:
            self.add(
                step,
                [self._summaries.Summary.Value(tag=k, simple_value=v) for k, v in figures.items()],
            )
        self._writer.flush()

    def add(self, step: int, values: Sequence[Any]) -> None:
        """Add values of tensorboard's own."""
        moment = time.time() if self._moment is None else self._moment
        summary = self._summaries.Summary(value=values)
        self._writer.add_event(self._events.Event(wall_time=moment, step=step, summary=summary))


class WandbRun:
    """A run of ``project``; with ``axis`` steps are a figure of that name, and the user's own stay as they are.

    With ``WANDB_MODE=offline`` nothing is sent: ``wandb sync`` does that later.
    """

    def __init__(self, project: str, id: str, name: str, axis: str = "", **more: Any) -> None:
        wandb: Any = import_module("wandb")
        settings = wandb.Settings(console="off", silent=True)
        again = (
            {"reinit": "create_new"}
            if axis
            else {"resume": "allow" if settings.mode != "offline" else None}
        )
        self.run = wandb.init(project=project, id=id, name=name, settings=settings, **again, **more)
        self._axis = axis
        if axis:
            self.run.define_metric(axis)
            self.run.define_metric(f"{axis.partition('/')[0]}/*", step_metric=axis)
        self.end = self.run.finish

    def log(self, rows: Iterable[tuple[int, TrackedFigures]]) -> None:
        for step, figures in rows:
            if self._axis:
                self.run.log({self._axis: step, **figures})
            else:
                self.run.log(dict(figures), step=step)


class MlflowRun:
    """A run of an experiment, made when it is needed first: its server may not answer yet."""

    def __init__(
        self, client: Any, experiment: str, name: str, tags: Mapping[str, str] | None = None
    ) -> None:
        self.client = client
        self._experiment = experiment
        self._name = name
        self._tags = tags
        self._made: Any = None

    @property
    def id(self) -> str:
        """Its own; the run is made by then."""
        if self._made is None:
            number = mlflow_experiment(self.client, self._experiment)
            self._made = self.client.create_run(number, run_name=self._name, tags=self._tags)
        return str(self._made.info.run_id)

    def log(self, rows: Iterable[tuple[int, TrackedFigures]]) -> None:
        metric: Any = import_module("mlflow.entities").Metric
        moment = int(time.time() * 1000)
        metrics = (
            metric(name, value, moment, step)
            for step, figures in rows
            for name, value in figures.items()
        )
        while part := [*islice(metrics, _MOST_METRICS)]:
            self.client.log_batch(self.id, metrics=part)

    def end(self) -> None:
        if self._made is not None:
            self.client.set_terminated(self.id)


def mlflow_experiment(client: Any, name: str) -> str:
    """The number of the experiment called so; it is made where there is none."""
    found = client.get_experiment_by_name(name)
    return str(client.create_experiment(name) if found is None else found.experiment_id)
