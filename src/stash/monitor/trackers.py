"""Windows of a watched run in experiment trackers: TensorBoard, Weights & Biases, MLflow.

A tracker that cannot be reached costs a bounded buffer and one warning, and gets what was kept once it answers again;
training and the record never wait for it. Names are the same everywhere: ``stash/input_seconds``.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from pathlib import Path
from queue import SimpleQueue

from stash.core.errors import UserError
from stash.core.imports import require_package
from stash.monitor.records import Alert, Header, RecordLine, Window
from stash.report.tracker_runs import (
    MlflowRun,
    TensorBoardRun,
    TrackedFigures,
    TrackerRun,
    WandbRun,
)

_MAX_KEPT = 360
"""Windows that wait for a tracker: an hour of them."""
_ENDS_SECONDS = 10.0


def window_figures(window: Window) -> dict[str, float]:
    """What a window is logged as."""
    known = {
        f"stash/{name}_seconds": value for name, value in window.stalls.items() if value is not None
    }
    worst = max((late.seconds for late in window.stragglers), default=0.0)
    return {"stash/step_seconds": window.step_seconds, **known, "stash/straggler_seconds": worst}


class Tracker:
    """Hands windows to a tracker's run; what fails is kept, and tried again with the next one.

    In a thread of its own: a client whose server is gone may try for minutes.
    """

    def __init__(self, name: str, run: TrackerRun) -> None:
        self._name = name
        self._run = run
        self._rows = SimpleQueue[tuple[int, TrackedFigures] | None]()
        self._thread = threading.Thread(target=self._log_rows, daemon=True, name=f"stash {name}")
        self._thread.start()

    def receive_line(self, line: RecordLine) -> None:
        if isinstance(line, Window):
            self._rows.put((line.last_step, window_figures(line)))
        elif isinstance(line, Alert) and not line.ended:
            self._rows.put((line.step, {"stash/alert": 1.0}))

    def _log_rows(self) -> None:
        kept = deque[tuple[int, TrackedFigures]](maxlen=_MAX_KEPT)
        is_down = False
        while (row := self._rows.get()) is not None:
            kept.append(row)
            try:
                while kept:
                    self._run.log([kept[0]])
                    kept.popleft()
                is_down = False
            except Exception as error:  # of a tool that Stash knows nothing about
                if not is_down:
                    print(
                        f"stash: {self._name} does not take windows ({error}); they are kept",
                        file=sys.stderr,
                    )
                is_down = True

    def close(self) -> None:
        """Hand over what is left, if that takes no longer than a few seconds."""
        self._rows.put(None)
        self._thread.join(_ENDS_SECONDS)
        try:
            if self._thread.is_alive():
                raise TimeoutError("it does not answer, and lacks the last windows")
            self._run.end()
        except Exception as error:
            print(f"stash: {self._name}: {error}", file=sys.stderr)


def open_tracker(where: str, header: Header) -> Tracker:
    """The tracker that ``TOOL:WHERE`` names; raises UserError for another tool, or one that is not installed."""
    tool, _, place = where.partition(":")
    if tool not in ("tensorboard", "wandb", "mlflow") or not place:
        raise UserError(f"--log {where}: write tensorboard:DIR, wandb:PROJECT or mlflow:EXPERIMENT")
    client = require_package(tool, f"--log {where}")
    title = f"{header.job} watched"
    if tool == "tensorboard":
        return Tracker("TensorBoard", TensorBoardRun(Path(place)))
    if tool == "wandb":
        return Tracker("Weights & Biases", WandbRun(place, header.id, title, axis="stash/step"))
    run = MlflowRun(client.MlflowClient(), place, title, {"stash.id": header.id})
    return Tracker("MLflow", run)
