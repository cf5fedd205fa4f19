"""TensorBoard's event files: a folder for each run, with its figures, its rounds as curves, and the verdict as text.

Written by tensorboard's own writer, which needs neither TensorFlow nor PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from stash.report.export.exported_runs import ExportedRun


def write(runs: Sequence[ExportedRun], folder: Path) -> None:
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
    for name, value in run.figures.items():
        yield 0, _scalar(f"stash/{name}", value)
    for rung, values in run.rounds.items():
        for number, value in enumerate(values):
            yield number, _scalar(f"stash/rounds/{rung}_seconds", value)
    facts = "\n".join(f"- {name}: {value}" for name, value in run.facts.items())
    yield 0, _text("stash/verdict", f"{run.verdict}\n\n{facts}")


def _scalar(tag: str, value: float) -> Any:
    summaries: Any = import_module("tensorboard.compat.proto.summary_pb2")
    return summaries.Summary(value=[summaries.Summary.Value(tag=tag, simple_value=value)])


def _text(tag: str, text: str) -> Any:
    """A text as TensorBoard's plugin for them reads it."""
    summaries: Any = import_module("tensorboard.compat.proto.summary_pb2")
    tensors: Any = import_module("tensorboard.compat.proto.tensor_pb2")
    shapes: Any = import_module("tensorboard.compat.proto.tensor_shape_pb2")
    plugin = summaries.SummaryMetadata.PluginData(plugin_name="text")
    value = summaries.Summary.Value(
        tag=tag,
        metadata=summaries.SummaryMetadata(plugin_data=plugin),
        tensor=tensors.TensorProto(
            dtype="DT_STRING", string_val=[text.encode()], tensor_shape=shapes.TensorShapeProto()
        ),
    )
    return summaries.Summary(value=[value])


def _seconds(created: str) -> float:
    """Seconds since 1970; 0 for a date that cannot be parsed."""
    try:
        return datetime.fromisoformat(created.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return 0.0
