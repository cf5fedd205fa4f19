"""Windows of a watched run in experiment trackers: TensorBoard, Weights & Biases, MLflow, or any function.

A tracker that cannot be reached costs a bounded buffer and one warning, and gets what was kept once it answers again;
training and the record never wait for it. Names are the same everywhere: ``stash/input_seconds``.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from stash.core.errors import UserError
from stash.core.imports import require_package
from stash.monitor.records import Alert, Header, RecordLine, Window
from stash.report.tracker_runs import MlflowRun, TensorBoardRun, TrackedFigures, TrackerRun, WandbRun

_MAX_KEPT = 360
"""Windows that wait for a tracker: an hour of them."""
_ENDS_SECONDS = 10.0
STEP = "stash/step"
"""The axis of its own: the user's steps stay as they are."""


def figures(window: Window) -> dict[str, float]:
    """What a window is logged as."""
    known = {f"stash/{name}_seconds": value for name, value in window.stalls.items() if value is not None}
    worst = max((late.seconds for late in window.stragglers), default=0.0)
    return {"stash/step_seconds": window.step_seconds, **known, "stash/straggler_seconds": worst}


class Tracker:
    """Hands windows to a tracker's run; what fails is kept, and tried again with the next one.

    In a thread of its own: a client whose server is gone may try for minutes.
    """

    def __init__(self, name: str, run: TrackerRun) -> None:
        self._name, self._run = name, run
        self._kept: deque[tuple[int, TrackedFigures]] = deque(maxlen=_MAX_KEPT)
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
                self._run.log([self._kept[0]])
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
            self._run.end()
        except Exception as error:
            print(f"stash: {self._name}: {error}", file=sys.stderr)


def tracker(where: str, header: Header) -> Tracker:
    """The tracker that ``TOOL:WHERE`` names; raises UserError for another tool, or one that is not installed."""
    tool, _, place = where.partition(":")
    if tool not in _TOOLS or not place:
        raise UserError(f"--log {where}: write tensorboard:DIR, wandb:PROJECT or mlflow:EXPERIMENT")
    require_package(tool, f"--log {where}")
    name, open_run = _TOOLS[tool]
    return Tracker(name, open_run(place, header))


def _open_mlflow(experiment: str, header: Header) -> TrackerRun:
    client: Any = import_module("mlflow").MlflowClient()
    return MlflowRun(client, experiment, f"{header.job} watched", {"stash.id": header.id})


_TOOLS: Mapping[str, tuple[str, Callable[[str, Header], TrackerRun]]] = {
    "tensorboard": ("TensorBoard", lambda folder, header: TensorBoardRun(Path(folder))),
    "wandb": (
        "Weights & Biases",
        lambda project, header: WandbRun(project, header.id, f"{header.job} watched", axis=STEP),
    ),
    "mlflow": ("MLflow", _open_mlflow),
}
