"""What would make each row between steps smaller: one function for each, with its forecast from the ledger's numbers.

A forecast is what a row takes less what would be left of it; where the ledger does not tell that, there is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from stash.advice.case import Case, Remedy
from stash.advice.loader_remedies import one_rank_sends
from stash.advice.run_words import steps_in_words, written_place
from stash.analysis.breakdown import SMALL_SHARE
from stash.analysis.run_account import RunRow, SlowLine
from stash.core.ledger_rows import (
    BACKWARD,
    CHECKPOINT,
    COLLECTOR,
    COMPILATION,
    EPOCH_END,
    EPOCH_START,
    EVALUATION,
    FORWARD,
    INTERPRETER,
    LOOP,
)
from stash.core.units import format_seconds

SELDOM = 10
"""Steps of which one does what all did."""
_FEW_STEPS = 2
"""Of an epoch: no loop over a loader ends so soon, but one that asks for a single batch."""
COLLECTED = 100
"""Steps after which garbage is collected where it is no longer done by itself."""
_COPIED = 1e9
"""Bytes a second of a checkpoint's copy in memory, at least, before it is written beside training."""
_TRAINS = re.compile(r"\.(backward|step|zero_grad)\(")
"""What no step does without."""
_COLLECTS = re.compile(r"\bcollect\(")
_TO_HOST = re.compile(r"\.(item|tolist|numpy|cpu)\(")
_GRADIENT = re.compile(r"\.grad\b")
_AVERAGES = re.compile(
    r"\.lerp_?\(|\.mul_\(.*\.add_\(|\bema\b|\b(ema|average)\w*\.(update|step)\w*\(", re.I
)
"""Of parameters, one after the other."""
_METRIC = re.compile(
    r"metric|accuracy|auroc|auc|f1|recall|precision|\.update\(|\.compute\(|confusion", re.I
)
_WORKERS_WAITED_FOR = re.compile(r"select|poll|recv")
"""What the training thread is inside while it waits for a worker's first batch."""
_LOG = re.compile(
    r"log|print|writer|wandb|mlflow|tensorboard|add_(scalar|image|histogram)|tqdm|savefig|plot",
    re.I,
)


def _find_row(case: Case, name: str) -> RunRow | None:
    return None if case.breakdown.run is None else case.breakdown.run.row(name)


def _find_place(case: Case, name: str) -> SlowLine | None:
    return None if case.breakdown.run is None else case.breakdown.run.place(name)


def _format_place(place: SlowLine | None) -> str:
    return "" if place is None else f" ({place.where})"


def _seconds_without(row: RunRow, left_each_time: float) -> float | None:
    """Seconds of a step that a row loses if so many are left of each time; ``None`` if how often is unknown."""
    if row.each is None or not row.every:
        return None
    return max(0.0, row.each.value - left_each_time) / row.every


def epoch_start_remedies(case: Case) -> list[Remedy]:
    row, loader, place = _find_row(case, EPOCH_START), case.loader, _find_place(case, EPOCH_START)
    if row is None:
        return []
    batch = case.supply.made_seconds / loader.batches_per_step if case.supply and loader else 0.0
    saves = _seconds_without(row, batch)  # the first batch has still to be prepared
    found = []
    if row.every is not None and row.every < _FEW_STEPS:
        once = f"Keep one iterator{_format_place(place)}, `batches = iter(loader)` once and `next(batches)` in each step"
        found.append(Remedy(once, saves, name="one-iterator", of_run=True, first=True))
    if loader is not None and loader.workers and loader.remade:
        once = f"Make the loader once, outside the loop over epochs{_format_place(place)}, with persistent_workers=True"
        return [*found, Remedy(once, saves, name="one-loader", of_run=True, first=True)]
    if loader is not None and loader.workers and not loader.persistent_workers:
        keep = "Keep the loader's workers from epoch to epoch with persistent_workers=True"
        found.append(
            Remedy(keep, saves, name="persistent", knob="persistent", of_run=True, first=True)
        )
        if loader.start_method == "fork":
            return found
        small = (
            "Let workers start faster: fork instead of spawn, where nothing forbids it; a data set that opens its "
            f"files in the worker instead of being pickled{_format_place(place)}"
        )
        return [
            *found,
            Remedy(
                small, name="pickle", knob="start_method" if case.is_on_cpu else "", of_run=True
            ),
        ]
    if loader is not None and loader.kind == "iterable":
        fill = (
            f"Make what the stream does before an epoch's first batch cheaper{_format_place(place)}: fill a smaller "
            "buffer to shuffle in, or go on with one iterator from epoch to epoch"
        )
        return [*found, Remedy(fill, saves, name="stream", of_run=True)]
    draw = (
        f"Make what happens before an epoch's first batch cheaper{_format_place(place)}: draw the sampler's "
        f"indices with "
        "vectorised code (`torch.randperm`, numpy), or once for several epochs"
    )
    return [*found, Remedy(draw, saves, name="sampler", of_run=True)]


def epoch_end_remedies(case: Case) -> list[Remedy]:
    row, place = _find_row(case, EPOCH_END), _find_place(case, EPOCH_END)
    if row is None:
        return []
    what = (
        "what the script does from an epoch's end to the next"
        if place is None
        else written_place(place)
    )
    once = f"Do {what} once, before the loop over epochs, or every {SELDOM} epochs"
    return [
        Remedy(
            once, row.seconds * (1 - 1 / SELDOM), name="between-epochs", of_run=True, first=True
        ),
        Remedy(
            f"Do it in a thread while the next epoch trains{_format_place(place)}",
            name="epoch-end-thread",
            of_run=True,
        ),
    ]


def evaluation_remedies(case: Case) -> list[Remedy]:
    row, place = _find_row(case, EVALUATION), _find_place(case, EVALUATION)
    if row is None or row.each is None:
        return []
    waits = place is not None and _WORKERS_WAITED_FOR.search(place.inside) is not None
    workers, why = (
        ("its workers", ": most of it waits for them") if waits else ("workers, if it has any,", "")
    )
    keep = f"Build evaluation's loader once{_format_place(place)}, and keep {workers} by persistent_workers=True{why}"
    often = "" if not row.every else f", every {steps_in_words(2 * row.every)} steps"
    ranks = len(case.profile.ranks)
    shared = Remedy(
        f"Give each of the {ranks} ranks a share of the evaluation{_format_place(place)}, by a DistributedSampler, and "
        "add up their sums by one `all_reduce`",
        _seconds_without(row, row.each.value / ranks),
        name="evaluation-shares",
        of_run=True,
    )
    return [
        *([shared] if row.rank is not None else []),
        Remedy(
            keep,
            name="evaluation-workers",
            knob="evaluation" if waits else "",
            of_run=True,
            first=waits,
        ),
        Remedy(
            f"Evaluate half as often{often}",
            _seconds_without(row, row.each.value / 2),
            name="evaluate-less",
            of_run=True,
        ),
        Remedy(
            "Evaluate larger batches inside `torch.inference_mode()`",
            name="inference-mode",
            of_run=True,
        ),
    ]


def checkpoint_remedies(case: Case) -> list[Remedy]:
    row, work, place = (
        _find_row(case, CHECKPOINT),
        case.profile.workload,
        _find_place(case, CHECKPOINT),
    )
    if row is None or row.each is None:
        return []
    size = (
        None if work.parameter_bytes is None else work.parameter_bytes + (work.optimizer_bytes or 0)
    )
    beside = (
        f"Write checkpoints beside training{_format_place(place)}: `torch.distributed.checkpoint.async_save`, or "
        f"copy the "
        "state and save it in a thread"
    )
    often = "" if not row.every else f", every {steps_in_words(2 * row.every)} steps"
    return [
        Remedy(
            beside,
            None if size is None else _seconds_without(row, size / _COPIED),
            cost="meanwhile it takes memory for the copy, and a core",
            name="async-checkpoint",
            of_run=True,
        ),
        Remedy(
            f"Save half as often{often}",
            _seconds_without(row, row.each.value / 2),
            cost="a crash loses up to twice the work",
            name="save-less",
            of_run=True,
        ),
    ]


def loop_remedies(case: Case) -> list[Remedy]:
    run, row = case.breakdown.run, _find_row(case, LOOP)
    if run is None or row is None:
        return []
    # a line that runs a whole step, like `trainer.train()`, cannot be done less often
    whole = {(place.file, place.line) for place in run.places if place.row in (FORWARD, BACKWARD)}
    places = [
        place
        for place in run.places
        if place.row == LOOP
        and (place.file, place.line) not in whole
        and not _TRAINS.search(place.text)
    ]
    if not places:
        text = (
            "Look at what the script does between the optimizer's step and the next batch (metrics, logging, "
            f"pictures), and do it every {SELDOM} steps"
        )
        return [Remedy(text, row.seconds * (1 - 1 / SELDOM), name="seldom", of_run=True)]
    seen = sum(place.seconds for place in run.places if place.row == LOOP)
    # places were looked at beside other work, which stretches them
    part = min(1.0, row.seconds / seen)
    sends = one_rank_sends(case) if any(place.prepares for place in places) else []
    return [*sends, *(_less_often(case, place, part * place.seconds) for place in places)]


def _less_often(case: Case, place: SlowLine, seconds: float) -> Remedy:
    """What the line itself suggests; done every ``SELDOM`` steps, so much of its ``seconds`` is left."""
    saves, where = seconds * (1 - 1 / SELDOM), written_place(place)
    if _GRADIENT.search(place.text) and not _LOG.search(place.text):
        text = (
            f"Treat all gradients at once at {where} (`torch.nn.utils.clip_grad_norm_`, `get_total_norm`) instead of "
            f"one by one, or only every {SELDOM} steps"
        )
        return Remedy(text, saves, name="gradients", of_run=True)
    if _TO_HOST.search(place.text) and not case.is_on_cpu:
        text = f"Keep the number on the device at {where} (`.detach()`), and read it every {SELDOM} steps"
        return Remedy(text, saves, name="item", knob="items", of_run=True)
    if _AVERAGES.search(place.text):
        text = (
            f"Average all parameters at once at {where}: `torch._foreach_lerp_`, or "
            "`torch.optim.swa_utils.AveragedModel` with `get_ema_multi_avg_fn`"
        )
        return Remedy(text, name="average", of_run=True)
    if _METRIC.search(place.text):
        text = f"Update the metric at {where} on the device, every {SELDOM} steps, and compute it once an epoch"
        return Remedy(text, saves, name="metric", of_run=True)
    if _LOG.search(place.text):
        return Remedy(f"Do what {where} logs every {SELDOM} steps", saves, name="log", of_run=True)
    if place.prepares and case.loader is None:
        ahead = f"Prepare batches before {where} asks for them: a DataLoader with workers, or several threads"
        return Remedy(ahead, name="prefetch", of_run=True)
    if place.prepares:
        ahead = (
            f"Move {where} into the data set or its `collate_fn`, where workers prepare batches ahead of the step, "
            "or do it once for all epochs"
        )
        return Remedy(ahead, name="prepare-ahead", of_run=True)
    return Remedy(
        f"Do {where} every {SELDOM} steps, or in a thread of its own",
        saves,
        name="seldom",
        of_run=True,
    )


def collector_remedies(case: Case) -> list[Remedy]:
    row, place = _find_row(case, COLLECTOR), _find_place(case, COLLECTOR)
    if row is None:
        return []
    if place is not None and _COLLECTS.search(place.text):
        call = (
            f"Leave out {written_place(place)}, or call it every {COLLECTED} steps: Python frees most objects at "
            "once, and collects the others by itself"
        )
        return [
            Remedy(call, row.seconds * (1 - 1 / COLLECTED), name="gc-call", of_run=True, first=True)
        ]
    freeze = "Call `gc.collect()` and `gc.freeze()` once model and data are built: Python then looks at newer objects only"
    one = "" if row.each is None else f" ({format_seconds(row.each.value)} each time now)"
    left = 0.0 if row.each is None else row.each.value / COLLECTED
    every = (
        f"Call `gc.disable()`, and `gc.collect()` every {COLLECTED} steps on all ranks at once{one}"
    )
    return [
        Remedy(freeze, row.seconds, name="gc-freeze", knob="collector", of_run=True, first=True),
        Remedy(every, max(0.0, row.seconds - left), name="gc-every", knob="collector", of_run=True),
    ]


def compilation_remedies(case: Case) -> list[Remedy]:
    row = _find_row(case, COMPILATION)
    if row is None:
        return []
    often = "" if row.each is None else f" ({format_seconds(row.each.value)} each time)"
    shapes = (
        "Give the compiled model shapes and values that stay: pad batches to a few lengths, drop_last=True, or "
        f"`torch.compile(dynamic=True)`{often}; TORCH_LOGS=recompiles says what changed"
    )
    return [Remedy(shapes, row.seconds, name="recompiles", of_run=True, first=True)]


def own_collective_remedies(case: Case, stall: str) -> list[Remedy]:
    """Against what the ``stall`` contains of collectives that the script calls beside the exchange of gradients."""
    run = case.breakdown.run
    if run is None or not run.own_collectives:
        return []
    seconds = min(case.seconds(stall), sum(place.seconds for place in run.own_collectives))
    if seconds < SMALL_SHARE * case.breakdown.step_seconds:
        return []
    text = (
        f"Send what {written_place(run.own_collectives[0])} exchanges every {SELDOM} steps, and as one tensor: a "
        "single `all_reduce` of all numbers instead of a collective for each"
    )
    return [Remedy(text, seconds * (1 - 1 / SELDOM), name="own-collectives", first=True)]


def interpreter_remedies(case: Case) -> list[Remedy]:
    row, place = _find_row(case, INTERPRETER), _find_place(case, INTERPRETER)
    if row is None:
        return []
    what = (
        "what the other thread computes"
        if place is None
        else f"what {written_place(place)} computes"
    )
    text = f"Move {what} to a process of its own (`multiprocessing`), which has an interpreter of its own"
    return [Remedy(text, row.seconds, name="own-process", of_run=True)]


RUN_REMEDIES: Mapping[str, Callable[[Case], list[Remedy]]] = {
    LOOP: loop_remedies,
    COLLECTOR: collector_remedies,
    COMPILATION: compilation_remedies,
    INTERPRETER: interpreter_remedies,
    EPOCH_START: epoch_start_remedies,
    EPOCH_END: epoch_end_remedies,
    EVALUATION: evaluation_remedies,
    CHECKPOINT: checkpoint_remedies,
}
