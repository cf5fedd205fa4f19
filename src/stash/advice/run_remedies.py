"""What would make each row between steps smaller: one function for each, with its forecast from the ledger's numbers.

A forecast is what a row takes less what would be left of it; where the ledger does not tell that, there is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from stash.advice.case import Case, Remedy
from stash.advice.loader_remedies import one_rank_sends
from stash.advice.run_words import steps_in_words, written_place
from stash.analysis.breakdown import SMALL_SHARE
from stash.analysis.run_account import RunRow
from stash.analysis.slow_lines import SlowLine
from stash.core.ledger_rows import (
    CHECKPOINT,
    COLLECTIVE,
    COLLECTOR,
    COMPILATION,
    EPOCH_END,
    EPOCH_START,
    EVALUATION,
    INPUT,
    INTERPRETER,
    LOOP,
)
from stash.core.units import format_seconds

SELDOM = 10
"""Steps of which one does what all did."""
_SEVERAL = 2
"""So many places near each other are one loop in Python."""
_CALLS = 2
"""Of one collective in a step, from which one call could do what they do."""
_SELDOM_SAVES = 1 - 1 / SELDOM
_FEW_STEPS = 2
"""Of an epoch: no loop over a loader ends so soon, but one that asks for a single batch."""
COLLECTED = 100
"""Steps after which garbage is collected where it is no longer done by itself."""
_COPIED = 1e9
"""Bytes a second of a checkpoint's copy in memory, at least, before it is written beside training."""
_TRAINS = re.compile(r"\.(backward|step|zero_grad)\(")
"""What no step does without."""
_COLLECTS = re.compile(r"\bcollect\(")
_RECEIVES = re.compile(r"\bi?recv\b")
_TO_HOST = re.compile(r"\.(item|tolist|numpy|cpu)\(")
_GRADIENT = re.compile(r"\.grad\b")
_UPDATES = re.compile(
    r"\.data(\[.*\])?\s*([-+*/]?=[^=]|\.(add|sub|mul|copy|addcmul|addcdiv|lerp)_\()"
)
"""Parameters, by an optimizer of the script's own."""
_AVERAGES = re.compile(
    r"\.lerp_?\(|\.mul_\(.*\.add_\(|\bema\b|\b(ema|average)\w*\.(update|step)\w*\(", re.I
)
"""Of parameters, one after the other."""
_METRIC = re.compile(
    r"metric|accuracy|auroc|auc|f1|recall|precision|\.update\(|\.compute\(|confusion", re.I
)
_WORKERS_WAITED_FOR = re.compile(r"select|poll|recv")
"""What the training thread is inside while it waits for a worker's first batch."""
_STEPS_ENVIRONMENT = re.compile(r"\benv\w*\.step\(", re.I)
_LOG = re.compile(
    r"(?<![a-z])(?<!torch\.)(?<!math\.)(?<!np\.)log(?!it|_?soft|_?sumexp|_?sig|_?prob|1p|2|10|\(\))"  # no logarithm
    r"|print|writer|wandb|mlflow|tensorboard|add_(scalar|image|histogram)|tqdm|savefig|plot",
    re.I,
)


def _seconds_without(row: RunRow, left_each_time: float) -> float | None:
    """Seconds of a step that a row loses if so many are left of each time; ``None`` if how often is unknown."""
    if row.each is None or not row.every:
        return None
    return max(0.0, row.each.value - left_each_time) / row.every


def _epoch_start_remedies(case: Case, row: RunRow) -> Iterator[Remedy]:
    loader, where = case.loader, case.name_place(EPOCH_START)
    batch = case.supply.made_seconds / loader.batches_per_step if case.supply and loader else 0.0
    saves = _seconds_without(row, batch)  # the first batch has still to be prepared
    if row.every is not None and row.every < _FEW_STEPS:
        once = f"Keep one iterator{where}, `batches = iter(loader)` once and `next(batches)` in each step"
        yield Remedy(once, saves, name="one-iterator", first=True)
    if loader is not None and loader.workers and loader.remade:
        once = f"Make the loader once, outside the loop over epochs{where}, with persistent_workers=True"
        yield Remedy(once, saves, name="one-loader", first=True)
    elif loader is not None and loader.workers and not loader.persistent_workers:
        keep = "Keep the loader's workers from epoch to epoch with persistent_workers=True"
        yield Remedy(keep, saves, name="persistent", knob="persistent", first=True)
        if loader.start_method != "fork":
            small = (
                "Let workers start faster: fork instead of spawn, where nothing forbids it; a data set that opens its "
                f"files in the worker instead of being pickled{where}"
            )
            yield Remedy(small, name="pickle", knob="start_method" if case.is_on_cpu else "")
    elif loader is not None and loader.kind == "iterable":
        fill = (
            f"Make what the stream does before an epoch's first batch cheaper{where}: fill a smaller "
            "buffer to shuffle in, or go on with one iterator from epoch to epoch"
        )
        yield Remedy(fill, saves, name="stream")
    else:
        draw = (
            f"Make what happens before an epoch's first batch cheaper{where}: draw the sampler's indices with "
            "vectorised code (`torch.randperm`, numpy), or once for several epochs"
        )
        yield Remedy(draw, saves, name="sampler")


def _epoch_end_remedies(case: Case, row: RunRow) -> Iterator[Remedy]:
    place = case.place(EPOCH_END)
    what = written_place(place) if place else "what the script does from an epoch's end to the next"
    once = f"Do {what} once, before the loop over epochs, or every {SELDOM} epochs"
    yield Remedy(once, row.seconds * _SELDOM_SAVES, name="between-epochs", first=True)
    beside = f"Do it in a thread while the next epoch trains{case.name_place(EPOCH_END)}"
    yield Remedy(beside, name="epoch-end-thread")


def _evaluation_remedies(case: Case, row: RunRow) -> Iterator[Remedy]:
    if row.each is None:
        return
    place, where = case.place(EVALUATION), case.name_place(EVALUATION)
    ranks = len(case.profile.ranks)
    if row.rank is not None:
        shared = (
            f"Give each of the {ranks} ranks a share of the evaluation{where}, by a DistributedSampler, and "
            "add up their sums by one `all_reduce`"
        )
        saves = _seconds_without(row, row.each.value / ranks)
        yield Remedy(shared, saves, name="evaluation-shares")
    waits = place is not None and _WORKERS_WAITED_FOR.search(place.inside) is not None
    workers = "its workers" if waits else "workers, if it has any,"
    why = ": most of it waits for them" if waits else ""
    keep = (
        f"Build evaluation's loader once{where}, and keep {workers} by persistent_workers=True{why}"
    )
    knob = "evaluation" if waits else ""
    yield Remedy(keep, name="evaluation-workers", knob=knob, first=waits)
    less = f"Evaluate half as often{_half_as_often(row)}"
    yield Remedy(less, _seconds_without(row, row.each.value / 2), name="evaluate-less")
    yield Remedy("Evaluate larger batches inside `torch.inference_mode()`", name="inference-mode")


def _half_as_often(row: RunRow) -> str:
    return "" if not row.every else f", every {steps_in_words(2 * row.every)} steps"


def _checkpoint_remedies(case: Case, row: RunRow) -> Iterator[Remedy]:
    if row.each is None:
        return
    work = case.profile.workload
    beside = (
        f"Write checkpoints beside training{case.name_place(CHECKPOINT)}: `torch.distributed.checkpoint.async_save`, "
        "or copy the state and save it in a thread"
    )
    saves = None
    if work.parameter_bytes is not None:
        size = work.parameter_bytes + (work.optimizer_bytes or 0)
        saves = _seconds_without(row, size / _COPIED)
    cost = "meanwhile it takes memory for the copy, and a core"
    yield Remedy(beside, saves, cost, name="async-checkpoint")
    less = f"Save half as often{_half_as_often(row)}"
    saves = _seconds_without(row, row.each.value / 2)
    yield Remedy(less, saves, "a crash loses up to twice the work", name="save-less")


def _loop_remedies(case: Case, row: RunRow) -> Iterator[Remedy]:
    # a line that runs a whole step, like `trainer.train()`, cannot be done less often
    lines = case.epoch.lines
    loop = [place for place in lines.places if place.row == LOOP]
    places = [
        place
        for place in loop
        if _STEPS_ENVIRONMENT.search(place.text)
        or not (lines.runs_a_pass(place) or _TRAINS.search(place.text))
    ]
    if not places:
        text = (
            "Look at what the script does between the optimizer's step and the next batch (metrics, logging, "
            f"pictures), and do it every {SELDOM} steps"
        )
        yield Remedy(text, row.seconds * _SELDOM_SAVES, name="seldom")
    if any(place.prepares for place in places):
        yield from one_rank_sends(case)
    # places were looked at beside other work, which stretches them
    part = min(1.0, row.seconds / sum(place.seconds for place in loop)) if loop else 0.0
    for place in places:
        yield do_less_often(case, place, part * place.seconds)


def do_less_often(case: Case, place: SlowLine, seconds: float) -> Remedy:
    """What the line itself suggests; done every ``SELDOM`` steps, so much of its ``seconds`` is left."""
    saves, where = seconds * _SELDOM_SAVES, written_place(place)
    if case.profile.workload.exchange_hook and case.epoch.lines.is_in_hook(place):
        text = (
            f"Exchange gradients without the communication hook, or make {where} cheaper: it runs for every bucket of "
            "gradients in each backward pass"
        )
        return Remedy(text, name="without-hook", first=True)
    near = [each.text for each in case.epoch.lines.near(place)]
    if any(_UPDATES.search(line) and not _AVERAGES.search(line) for line in near):
        text = (
            f"Update all parameters at once at {where}: by an optimizer of `torch.optim` with fused=True, or by "
            "`torch._foreach_add_` and the like over lists of them"
        )
        return Remedy(text, name="own-optimizer")
    if _GRADIENT.search(place.text) and not _LOG.search(place.text):
        text = (
            f"Treat all gradients at once at {where} (`torch.nn.utils.clip_grad_norm_`, `get_total_norm`) instead of "
            f"one by one, or only every {SELDOM} steps"
        )
        return Remedy(text, saves, name="gradients")
    if any(map(_STEPS_ENVIRONMENT.search, near)):
        text = (
            f"Step more environments by each call of the policy at {where}, or each in a process of its own "
            "(`gymnasium.vector.AsyncVectorEnv`)"
        )
        return Remedy(text, name="environments")
    if _TO_HOST.search(place.text) and not case.is_on_cpu:
        text = f"Keep the number on the device at {where} (`.detach()`), and read it every {SELDOM} steps"
        return Remedy(text, saves, name="item", knob="items")
    if _AVERAGES.search(place.text):
        text = (
            f"Average all parameters at once at {where}: `torch._foreach_lerp_`, or "
            "`torch.optim.swa_utils.AveragedModel` with `get_ema_multi_avg_fn`"
        )
        return Remedy(text, name="average")
    if _METRIC.search(place.text):
        text = f"Update the metric at {where} on the device, every {SELDOM} steps, and compute it once an epoch"
        return Remedy(text, saves, name="metric")
    if _LOG.search(place.text):
        return Remedy(f"Do what {where} logs every {SELDOM} steps", saves, name="log")
    if place.prepares and case.loader is None:
        ahead = f"Prepare batches before {where} asks for them: a DataLoader with workers, or several threads"
        return Remedy(ahead, name="prefetch")
    if place.prepares:
        ahead = (
            f"Move {where} into the data set or its `collate_fn`, where workers prepare batches ahead of the step, "
            "or do it once for all epochs"
        )
        return Remedy(ahead, name="prepare-ahead")
    text = f"Do {where} every {SELDOM} steps, or in a thread of its own"
    if len(near) >= _SEVERAL:
        text += "; a loop in Python rather on whole arrays (NumPy, tensors), or in a process"
    return Remedy(text, saves, name="seldom")


def _collector_remedies(case: Case, row: RunRow) -> Iterator[Remedy]:
    place = case.place(COLLECTOR)
    if place is not None and _COLLECTS.search(place.text):
        call = (
            f"Leave out {written_place(place)}, or call it every {COLLECTED} steps: Python frees most objects at "
            "once, and collects the others by itself"
        )
        yield Remedy(call, row.seconds * (1 - 1 / COLLECTED), name="gc-call", first=True)
        return
    freeze = "Call `gc.collect()` and `gc.freeze()` once model and data are built: Python then looks at newer objects only"
    yield Remedy(freeze, row.seconds, name="gc-freeze", knob="collector", first=True)
    one = "" if row.each is None else f" ({format_seconds(row.each.value)} each time now)"
    left = 0.0 if row.each is None else row.each.value / COLLECTED
    every = (
        f"Call `gc.disable()`, and `gc.collect()` every {COLLECTED} steps on all ranks at once{one}"
    )
    yield Remedy(every, max(0.0, row.seconds - left), name="gc-every", knob="collector")


def _compilation_remedies(case: Case, row: RunRow) -> Iterator[Remedy]:
    often = "" if row.each is None else f" ({format_seconds(row.each.value)} each time)"
    shapes = (
        "Give the compiled model shapes and values that stay: pad batches to a few lengths, drop_last=True, or "
        f"`torch.compile(dynamic=True)`{often}; TORCH_LOGS=recompiles says what changed"
    )
    yield Remedy(shapes, row.seconds, name="recompiles", first=True)


def _collective_remedies(case: Case, row: RunRow) -> Iterator[Remedy]:
    place = case.place(COLLECTIVE)
    what = written_place(place) if place else "the script by itself"
    if place is not None and _RECEIVES.search(place.inside + place.text):
        ahead = (
            f"Make what the other rank does until it sends to {what} cheaper, or let it work ahead: `isend` and `irecv` of "
            "the next while this one is trained on, or several ranks in parallel"
        )
        yield Remedy(ahead, name="work-ahead", first=True)
    text = (
        f"Send what {what} exchanges once, before the loop, if it stays the same, or every {SELDOM} steps, and as one "
        "tensor instead of several; if it is batches, let every rank read its own"
    )
    yield Remedy(text, row.seconds * _SELDOM_SAVES, name="fewer-collectives")


def own_collective_remedies(case: Case, stall: str) -> Iterator[Remedy]:
    """Against what the ``stall`` contains of collectives that the script calls beside the exchange of gradients."""
    places = case.epoch.lines.own_collectives
    seconds = min(case.seconds(stall), sum(place.seconds for place in places))
    if not places or seconds < SMALL_SHARE * case.breakdown.step_seconds:
        return
    if _GRADIENT.search(places[0].text):
        text = (
            f"Average all gradients by one `all_reduce` of one flat tensor at {written_place(places[0])}, or wrap the "
            "model in DistributedDataParallel, which exchanges them while the backward pass goes on"
        )
        yield Remedy(text, name="flat-gradients", first=True)
    elif "barrier" in places[0].inside + places[0].text:
        # without a promise: who is late is waited for elsewhere
        text = f"Leave out {written_place(places[0])}: ranks wait for each other wherever they exchange"
        yield Remedy(text, name="own-barrier", first=True)
    else:
        smaller = "and as one tensor: a single `all_reduce` of all numbers instead of a collective for each"
        if case.profile.workload.collectives_per_step.get(places[0].inside, _CALLS) < _CALLS:
            smaller = "or only what has changed since"
        text = f"Send what {written_place(places[0])} exchanges every {SELDOM} steps, {smaller}"
        yield Remedy(text, seconds * _SELDOM_SAVES, name="own-collectives", first=True)


def _interpreter_remedies(case: Case, row: RunRow) -> Iterator[Remedy]:
    place = case.place(INTERPRETER)
    what = written_place(place) if place else "the other thread"
    text = f"Move what {what} computes to a process of its own (`multiprocessing`), which has an interpreter of its own"
    yield Remedy(text, row.seconds, name="own-process")


def _input_remedies(case: Case, row: RunRow) -> Iterator[Remedy]:
    if case.loader is not None and not case.loader.workers:
        text = "Prepare batches while steps train, by num_workers of the DataLoader (0 now)"
        yield Remedy(text, name="workers", knob="workers", first=True)
    cheaper = (
        f"Make samples cheaper to prepare{case.name_place(INPUT)}: decode and resize them once and store that, or "
        "augment on the device"
    )
    yield Remedy(cheaper, name="cheaper-samples")


_OF_ROWS: Mapping[str, Callable[[Case, RunRow], Iterator[Remedy]]] = {
    LOOP: _loop_remedies,
    COLLECTOR: _collector_remedies,
    COLLECTIVE: _collective_remedies,
    COMPILATION: _compilation_remedies,
    INTERPRETER: _interpreter_remedies,
    INPUT: _input_remedies,
    EPOCH_START: _epoch_start_remedies,
    EPOCH_END: _epoch_end_remedies,
    EVALUATION: _evaluation_remedies,
    CHECKPOINT: _checkpoint_remedies,
}


def _list_row_remedies(name: str, case: Case) -> Iterator[Remedy]:
    row = case.epoch.row(name)
    if row is not None:
        yield from (replace(remedy, of_run=True) for remedy in _OF_ROWS[name](case, row))


RUN_REMEDIES: Mapping[str, Callable[[Case], Iterator[Remedy]]] = {
    name: partial(_list_row_remedies, name) for name in _OF_ROWS
}
