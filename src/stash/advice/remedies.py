"""What would make each stall smaller, by its name; here against compute, transfer, contention and bubbles.

What a remedy saves is the answer of ``stash whatif`` to the same question; ``None`` means unknown. What the job is
known to do already is not advised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from stash.advice.case import LARGER_BATCH, Case, Remedy
from stash.advice.exchange_remedies import (
    interconnect_remedies,
    network_remedies,
    unequal_batch_remedies,
)
from stash.advice.loader_remedies import CROWDED, fetch_remedies, prep_remedies
from stash.advice.run_remedies import RUN_REMEDIES, SELDOM, do_less_often
from stash.advice.run_words import written_place
from stash.analysis.breakdown import SMALL_SHARE
from stash.analysis.pipeline_changes import balance_layers, layers_of, stage_costs
from stash.analysis.pipeline_schedule import EVEN
from stash.analysis.seen import expert_loads
from stash.core.formatting import join_names
from stash.core.ledger_rows import FORWARD, OPTIMIZER
from stash.core.units import format_bytes, format_count, format_rate, format_seconds
from stash.predict.changes import BALANCED, Alteration
from stash.predict.precision import training_precision

BUSY = 0.9
"""Of the time, from which an accelerator is busy."""
_DELAYED = 0.25
"""Of a block, what its training thread waited for a core."""
_LONG_OPTIMIZER = 0.2
"""Of a step, from which the optimizer is worth a sentence."""
_MANY_PARAMETERS = 50
_FEW_ROWS = 0.1
"""Of an embedding's rows, at most, that a step looks up where gradients of all are a waste."""
_LARGE_TABLES = 0.5
"""Of all parameters' bytes, from which such tables matter."""
_MANY_OPERATORS = 500
"""In a step, from which calling them may be what takes it long."""
_CALL_SECONDS = 5e-6
"""Of a core, to call an operator in eager mode, at least (2026-11-30, torch 2.13: 4 to 10 us)."""
_FLOPS, _BYTES = 1e10, 1e10
"""A second, that any core does at least."""


def compute_remedies(case: Case) -> Iterator[Remedy]:
    work = case.profile.workload
    if case.breakdown.waits_for_host:
        # fewer, larger kernels, or devices that cost less
        yield Remedy(
            'Submit fewer kernels: `torch.compile(model, mode="reduce-overhead")`, an optimizer with fused=True; '
            "a faster device would wait as long"
        )
        yield Remedy(
            "Try a larger batch per device, whose kernels take longer to run and no longer to submit",
            cost=LARGER_BATCH,
        )
        yield Remedy("Or price a cheaper device, with cores as fast")
        return
    yield from _costly_settings(case)
    if work.recomputes:
        text = (
            "Leave out activation checkpointing (`torch.utils.checkpoint`, `gradient_checkpointing`) where memory allows, "
            "or use it for fewer layers: the backward pass computes forward passes again, about a quarter of a step"
        )
        cost = "activations are kept in memory until the backward pass"
        yield Remedy(text, cost=cost, name="recompute")
    if case.is_on_cpu:
        yield from _compute_on_cpus(case)
        return
    if training_precision(work) == "fp32":
        yield Remedy(
            'Compute the loss inside `with torch.autocast("cuda", torch.bfloat16):` (of GPUs before Ampere '
            "torch.float16, with a GradScaler), if not done yet"
        )
    yield from _optimizer_remedies(case)
    yield Remedy(_COMPILE)
    yield Remedy("Try a larger batch per device, or price a cheaper device", cost=LARGER_BATCH)
    lowest = [block.gpu for block in case.profile.blocks if block.rung == case.breakdown.rungs[0]]
    busy = [share for share in lowest if share is not None]
    if busy and sum(busy) >= BUSY * len(busy):
        share = sum(busy) / len(busy)
        yield Remedy(f"Rent devices that compute faster: these are busy {share:.0%} of the time")
    hidden = case.breakdown.communication.hidden_seconds
    if hidden is not None and hidden >= 0.03 * case.breakdown.step_seconds:
        yield Remedy(
            f"Before renting faster devices, mind that {format_seconds(hidden)} of gradient exchange "
            "hide behind the backward pass now and would surface"
        )


_COMPILE = "Try `model = torch.compile(model)`, which fuses small operations"


def _costly_settings(case: Case) -> Iterator[Remedy]:
    """Known from the job itself, whatever the noise: what few mean to leave on."""
    work = case.profile.workload
    if work.anomaly_mode:
        text = (
            "Leave out `torch.autograd.set_detect_anomaly(True)` (`detect_anomaly` of trainers): each operation "
            "keeps a stack, and each gradient is searched for NaN, which often doubles the step"
        )
        yield Remedy(text, name="anomaly-mode", first=True)
    if work.unused_gradients:
        text = (
            f"Compute no gradients that are cleared unused, as those of {work.unused_gradients:,} numbers are: "
            "`.detach()` or `torch.no_grad()` where another network's samples are made, and `requires_grad_(False)` for "
            "a network while another one learns from it"
        )
        yield Remedy(text, name="unused-gradients", first=True)
    if work.precision == "float64":
        text = (
            "Train in float32, with `model.float()` and batches of float32 (numpy's arrays are float64 by default): "
            "parameters are float64 now, which takes twice the time at least, and twice the memory"
        )
        digits = "numbers have 7 digits instead of 16"
        yield Remedy(text, cost=digits, name="float32", first=True)
    yield from _fewer_threads(case)
    # Embeddings whose gradients and updates are of all rows, of which a step looks up few.
    tables = [
        table
        for table in work.embeddings
        if not table.sparse and table.gradient_bytes and table.distinct < _FEW_ROWS * table.rows
    ]
    size = sum(table.gradient_bytes for table in tables)
    if size >= _LARGE_TABLES * (work.parameter_bytes or math.inf):
        text = (
            f"Give large embeddings sparse gradients, `nn.Embedding(..., sparse=True)` with `torch.optim.SparseAdam` or "
            f"SGD: a step looks up {sum(table.distinct for table in tables):,} of "
            f"{sum(table.rows for table in tables):,} rows, but the optimizer updates all {format_bytes(size)}"
        )
        cost = "the optimizer's averages no longer move in rows without a gradient"
        yield Remedy(text, cost=cost, name="sparse", first=True)


def _fewer_threads(case: Case) -> Iterator[Remedy]:
    """Threads of parallel loops beyond the cores, of which each loop waits for the last."""
    cores = case.cores_per_rank
    if not case.is_on_cpu or cores is None or not case.profile.blocks:
        return
    last = case.profile.blocks[-1]
    is_delayed = sum(last.step_delays) >= _DELAYED * last.seconds
    if is_delayed and len(last.loop_delays) >= CROWDED * cores:
        text = (
            f"Use {format_count(math.ceil(cores), 'thread')} per rank, by `torch.set_num_threads` or OMP_NUM_THREADS: "
            f"{1 + len(last.loop_delays)} share {cores:g} cores now, and each operation waits for the last of them"
        )
        yield Remedy(text, name="threads", knob="threads", first=True)


def _optimizer_remedies(case: Case) -> Iterator[Remedy]:
    """One that takes long beside the passes: it walks over its parameters one by one."""
    rung, count = case.breakdown.rungs[0], len(case.profile.workload.gradients)
    blocks = [b for b in case.profile.blocks if b.rung == rung and b.stage_seconds]
    whole = sum(block.seconds for block in blocks)
    took = sum(block.stage_seconds.get("optimizer", 0.0) for block in blocks)
    share = min(took / whole if whole else 0.0, _seen_of_optimizer(case))
    if share >= _LONG_OPTIMIZER and count >= _MANY_PARAMETERS:
        text = (
            f"Let the optimizer update all parameters at once{case.name_place(OPTIMIZER)}, with fused=True or "
            f"foreach=True: it takes {share:.0%} of a step, for {count:,} parameters one by one"
        )
        yield Remedy(text, name="fused", knob="fused", first=True)


def _seen_of_optimizer(case: Case) -> float:
    """Of first steps, the share without the script's own lines before the update; 1 where that is unknown."""
    ledgers = [ledger for ledger in case.profile.ledgers if ledger.timed_seconds]
    shares = (
        sum(row.timed_seconds for row in ledger.rows if row.row == OPTIMIZER) / ledger.timed_seconds
        for ledger in ledgers
    )
    return max(filter(None, shares), default=1.0)


def _compute_on_cpus(case: Case) -> Iterator[Remedy]:
    """Settings of the job: which cores are faster is another question."""
    work, cores = case.profile.workload, case.cores_per_rank
    if work.vanished_values:
        # it is not in what was measured
        text = (
            f"Call `torch.set_flush_denormal(True)` first of all: {work.vanished_values:,} values of the model became "
            "denormal while Stash measured, which flushes them to 0; on them steps take longer than these"
        )
        yield Remedy(text, name="flush-denormal", knob="denormals", first=True)
    flops: dict[str, float] = {}
    for operator in work.operators:
        flops[operator.dtype] = flops.get(operator.dtype, 0.0) + (operator.flops or 0.0)
    for dtype, need in (("float16", "AVX512-FP16 or AMX-FP16"), ("bfloat16", "AMX or AVX512-BF16")):
        if sum(flops.values()) < 2 * flops.get(dtype, 0.0):
            text = f"Compute in float32: products are {dtype} now, which cores without {need} only emulate"
            yield Remedy(text, name="float32", first=dtype == "float16")
    yield from _optimizer_remedies(case)
    yield from _frozen_models(case)
    yield from _parametrized_weights(case)
    yield from _logs_in_passes(case)
    yield from list(_small_operations(case)) or _own_computing(case)
    if not any(_fewer_threads(case)) and (cores is None or cores > 1):
        known = f" ({cores:g} cores per rank here)" if cores is not None else ""
        threads = f"Try another number of threads per rank, `torch.set_num_threads`{known}"
        yield Remedy(threads, knob="threads")
    yield Remedy(_COMPILE, knob="--try compile")
    if any("conv" in operator.operator for operator in work.operators):
        channels = "Try `model.to(memory_format=torch.channels_last)`, which convolutions often run faster in"
        yield Remedy(channels, knob="--try channels_last")
    if training_precision(work) == "fp32":
        half = 'Try `with torch.autocast("cpu", torch.bfloat16):` around the loss, on cores with AMX or AVX512-BF16'
        yield Remedy(half, cost="results are rounded to 16 bits", knob="--try bfloat16")


def _small_operations(case: Case) -> Iterator[Remedy]:
    """A step of very many operators, each of which takes less than calling it: loops in Python, on CPUs.

    By what operators do, not by how long they took, so that other work on the machine does not matter.
    """
    operators = case.profile.workload.operators
    calls = sum(operator.calls for operator in operators)
    flops = sum(operator.flops or 0.0 for operator in operators)
    moved = sum(operator.bytes or 0 for operator in operators)
    if calls < _MANY_OPERATORS or flops / _FLOPS + moved / _BYTES > calls * _CALL_SECONDS:
        return
    # the loop's own line, which calls the model, tells nothing
    places = (place for place in case.epoch.places if place.row == FORWARD and place.caller)
    place = next(places, None)
    where = "" if place is None else f" at {written_place(place)}"
    text = (
        f"Work on whole tensors instead of loops in Python{where}, by what does all of it at once (`nn.LSTM`, "
        f"`torch.vmap`, `foreach`), or try `torch.compile`: a step calls {calls:,} operators of "
        f"{format_bytes(moved / calls)} on average, and calling each takes longer than what it does"
    )
    yield Remedy(text, name="small-operations", first=True)


def _frozen_models(case: Case) -> Iterator[Remedy]:
    lines = case.epoch.lines.frozen
    if lines:
        took = sum(line.seconds for line in lines)
        calls = list(dict.fromkeys(line.caller or line.where for line in lines))
        text = (
            f"Keep what models give that do not train, if their inputs come again: called at {join_names(calls)}, they "
            f"take {format_seconds(took)} of each step; compute it once before training, and read it from memory or a "
            "file"
        )
        yield Remedy(text, took, name="frozen-models", first=True)


def _parametrized_weights(case: Case) -> Iterator[Remedy]:
    lines = case.epoch.lines.parametrized
    if lines:
        took = sum(line.seconds for line in lines)
        text = (
            f"Make parametrized weights once a step instead of at each use ({lines[0].where}): `with "
            f"torch.nn.utils.parametrize.cached():` around the forward pass; making them takes {format_seconds(took)} "
            "of each step, and their gradients more"
        )
        yield Remedy(text, name="cached-weights", first=True)


def _logs_in_passes(case: Case) -> Iterator[Remedy]:
    """Lines of forward passes, as frameworks have in a ``training_step``, that log."""
    lines = case.epoch.lines.logging
    if lines:
        yield replace(
            do_less_often(case, lines[0], sum(each.seconds for each in lines)), first=True
        )


def _own_computing(case: Case) -> Iterator[Remedy]:
    """Lines of the script's own that take much of computing, and call no module of PyTorch's."""
    lines = [line for line in case.epoch.lines.computing if not line.inside]
    if lines:
        near = "" if len(lines) == 1 else "with lines near it "
        took = format_seconds(sum(line.seconds for line in lines))
        does = f"{lines[0].where} cheaper, which {near}takes {took} of each"
        text = (
            f"Make {does} step: whole tensors or arrays instead of loops in Python, compiled code (Numba, C++), fewer or "
            "smaller pieces; or do it once, if it gives the same each time, or in the loader's workers, if it needs no "
            "gradients"
        )
        if lines[0].row == OPTIMIZER:
            text = (
                f"Make {does} update: do it every {SELDOM} steps and keep what it gives, or by a lower rank or fewer "
                "iterations; all parameters at once (`torch._foreach_*`) instead of one by one"
            )
        yield Remedy(text, name="own-computing", first=True)


def transfer_remedies(case: Case) -> Iterator[Remedy]:
    work, seconds = case.profile.workload, case.seconds("transfer")
    copy = "Copy with batch.to(device, non_blocking=True) and fetch the next batch one step ahead"
    if case.loader is not None and case.loader.pin_memory is False:
        copy = "Pass pin_memory=True to the DataLoader, and copy with batch.to(device, non_blocking=True)"
    yield Remedy(copy, case.saved_seconds(less={"transfer": seconds}))
    size = (work.sample_bytes or 0) * (work.batch or 0)
    if size and seconds > 0:
        yield Remedy(
            f"Copy fewer bytes ({format_bytes(size)} a step at {format_rate(size / seconds)} now): "
            "send images as uint8 and normalise on the device"
        )
    yield Remedy("Check the device's PCIe generation and width with `nvidia-smi -q`")


def contention_remedies(case: Case) -> Iterator[Remedy]:
    slow, cores = case.breakdown.slow_rank, case.cores_per_rank
    for load in expert_loads(case.profile):
        if load.saves >= SMALL_SHARE * case.breakdown.step_seconds:
            text = (
                f"Balance the load of experts (an auxiliary loss, a capacity): rank {load.rank} computes "
                f"{load.ratio:.2f} times the tokens of the mean rank of group {load.name}"
            )
            saves = case.saved_seconds(less={"contention": load.saves})
            yield Remedy(text, saves, name="balance-experts")
    yield from unequal_batch_remedies(case, case.seconds("contention"))
    if slow is not None:
        place = next(rank for rank in case.profile.ranks if rank.rank == slow.rank)
        text = (
            f"Look at rank {slow.rank} ({place.device} on node {place.node}): other processes, "
            "clocks, temperature, more data than the others"
        )
        saves = case.saved_seconds(less={"contention": slow.seconds - slow.others_seconds})
        yield Remedy(text, saves, name="slow-rank")
    if case.breakdown.seen is not None:
        # ranks hold one model together: fewer of them would be another job
        yield Remedy(
            "Divide the work evenly, or look at the rank that the others of its group wait for: more tokens than theirs, "
            "a longer part of a sequence, clocks, other processes"
        )
    elif case.is_on_cpu:  # where Stash itself pins ranks and sets their threads
        yield Remedy(
            "Run fewer ranks on a node, each with more threads: they share its cores and memory"
        )
    else:
        if cores is not None:
            yield Remedy(
                f"Give every rank cores of its own: OMP_NUM_THREADS={max(1, int(cores))} and "
                f"`taskset` or `numactl` for each ({cores:g} cores per rank here)"
            )
        yield Remedy(
            "Check that devices do not share a PCIe switch or a power limit: `nvidia-smi topo -m`"
        )


def bubble_remedies(case: Case) -> Iterator[Remedy]:
    seen, schedule = case.breakdown.seen, case.profile.workload.pipeline
    parts = None if seen is None else seen.bubble
    if parts is None or schedule is None:
        return
    stages, layers = parts.stage_seconds, layers_of(case.profile.passes)
    split = balance_layers(stage_costs(stages, layers), layers) if layers else ()
    if parts.slowest_stage is not None and (split != layers or not layers):
        mean = sum(stages) / len(stages)
        over = stages[parts.slowest_stage] - mean
        text = (
            f"Move layers away from stage {parts.slowest_stage}: its passes take {format_seconds(over)} a step "
            f"more than the mean stage's {format_seconds(mean)}"
        )
        if layers:
            counts = join_names([str(count) for count in split], most=64)
            text += f"; {counts} layers a stage would be most even"
            yield case.forecast_remedy(text, Alteration(split=BALANCED), "balance-stages")
        else:
            saves = case.saved_seconds(less={"bubble": max(0.0, parts.unequal)})
            yield Remedy(text, saves, name="balance-stages")
    if schedule.name in EVEN:
        count = schedule.microbatches
        text = (
            f"Cut the batch into {2 * count} microbatches instead of {count}, if passes of half as many samples "
            "are as efficient"
        )
        yield case.forecast_remedy(text, Alteration(microbatches=2 * count), "microbatches")
    yield Remedy(
        "Try a schedule that leaves less idle: interleaved stages (ScheduleInterleaved1F1B), or zero bubble "
        "(ScheduleInterleavedZeroBubble), which sends more messages"
    )


REMEDIES: Mapping[str, Callable[[Case], Iterable[Remedy]]] = {
    "compute": compute_remedies,
    "transfer": transfer_remedies,
    "contention": contention_remedies,
    "bubble": bubble_remedies,
    "interconnect": interconnect_remedies,
    "network": network_remedies,
    "prep": prep_remedies,
    "fetch": fetch_remedies,
    **RUN_REMEDIES,
}
