"""Windows of a watched run in experiment trackers: TensorBoard, Weights & Biases, MLflow, or any function.

A tracker that cannot be reached costs a bounded buffer and one warning, and gets what was kept once it answers again;
training and the record never wait for it. Names are the same everywhere: ``stash/input_seconds``.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from stash.core.errors import UserError
from stash.core.imports import require_package
from stash.monitor.records import Alert, Header, RecordLine, Window

_MAX_KEPT = 360
"""Windows that wait for a tracker: an hour of them."""
_ENDS_SECONDS = 10.0
STEP = "stash/step"
"""The axis of its own: the user's steps stay as they are."""

WindowFigures = dict[str, float]


def figures(window: Window) -> WindowFigures:
    """What a window is logged as."""
    known = {f"stash/{name}_seconds": value for name, value in window.stalls.items() if value is not None}
    worst = max((late.seconds for late in window.stragglers), default=0.0)
    return {"stash/step_seconds": window.step_seconds, **known, "stash/straggler_seconds": worst}


class Tracker:
    """Hands windows to ``log(step, figures)``; what fails is kept, and tried again with the next one.

    In a thread of its own: a client whose server is gone may try for minutes.
    """

    def __init__(
        self, name: str, log: Callable[[int, WindowFigures], None], end: Callable[[], None] = lambda: None
    ) -> None:
        self._name, self._log, self._end = name, log, end
        self._kept: deque[tuple[int, WindowFigures]] = deque(maxlen=_MAX_KEPT)
        self._warned = self._ended = False
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name=f"stash {name}")
        self._thread.start()

    def take(self, line: RecordLine) -> None:
        if isinstance(line, Window):
            self._kept.append((line.last_step, figures(line)))
        elif isinstance(line, Alert) and not line.ended:
            self._kept.append((line.step, {"stash/alert": 1.0}))
        self._news.set()

    def _work(self) -> None:
        ended = False
        while not ended:
            self._news.wait()
            self._news.clear()
            ended = self._ended
            self._hand_over()

    def _hand_over(self) -> None:
        while self._kept:
            try:
                self._log(*self._kept[0])
            except Exception as error:  # of a tool that Stash knows nothing about
                if not self._warned:
                    print(f"stash: {self._name} does not take windows ({error}); they are kept", file=sys.stderr)
                self._warned = True
                return
            self._warned = False
            self._kept.popleft()

    def close(self) -> None:
        """Hand over what is left, if that takes no longer than a few seconds."""
        self._ended = True
        self._news.set()
        self._thread.join(_ENDS_SECONDS)
        try:
            if self._thread.is_alive():
                raise TimeoutError("it does not answer, and lacks the last windows")
            self._end()
        except Exception as error:
            print(f"stash: {self._name}: {error}", file=sys.stderr)


def tracker(where: str, header: Header) -> Tracker:
    """The tracker that ``TOOL:WHERE`` names; raises UserError for another tool, or one that is not installed."""
    tool, _, place = where.partition(":")
    if tool not in _TOOLS or not place:
        raise UserError(f"--log {where}: write tensorboard:DIR, wandb:PROJECT or mlflow:EXPERIMENT")
    require_package(tool, f"--log {where}")
    return _TOOLS[tool](place, header)


def _tensorboard(folder: str, header: Header) -> Tracker:
    writers: Any = import_module("tensorboard.summary.writer.event_file_writer")
    events: Any = import_module("tensorboard.compat.proto.event_pb2")
    summaries: Any = import_module("tensorboard.compat.proto.summary_pb2")
    writer = writers.EventFileWriter(str(Path(folder)))

    def log(step: int, values: WindowFigures) -> None:
        one = [summaries.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        writer.add_event(events.Event(wall_time=time.time(), step=step, summary=summaries.Summary(value=one)))
        writer.flush()

    return Tracker("TensorBoard", log, writer.close)


def _wandb(project: str, header: Header) -> Tracker:
    wandb: Any = import_module("wandb")
    settings = wandb.Settings(console="off", silent=True)
    run = wandb.init(
        project=project, id=header.id, name=f"{header.job} watched", settings=settings, reinit="create_new"
    )
    run.define_metric(STEP)
    run.define_metric("stash/*", step_metric=STEP)
    return Tracker("Weights & Biases", lambda step, values: run.log({STEP: step, **values}), run.finish)


def _mlflow(experiment: str, header: Header) -> Tracker:
    mlflow: Any = import_module("mlflow")
    entities: Any = import_module("mlflow.entities")
    client = mlflow.MlflowClient()
    made: list[Any] = []

    def run() -> Any:
        if not made:
            found = client.get_experiment_by_name(experiment)
            number = client.create_experiment(experiment) if found is None else found.experiment_id
            made.append(client.create_run(number, run_name=f"{header.job} watched", tags={"stash.id": header.id}))
        return made[0].info.run_id

    def log(step: int, values: WindowFigures) -> None:
        moment = int(time.time() * 1000)
        client.log_batch(
            run(), metrics=[entities.Metric(name, value, moment, step) for name, value in values.items()]
        )

    return Tracker("MLflow", log, lambda: client.set_terminated(run()) if made else None)


_TOOLS: Mapping[str, Callable[[str, Header], Tracker]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}
