"""What would make each stall smaller: one function for each.

What a remedy saves is the answer of ``stash whatif`` to the same question; ``None`` means unknown. What the job is
known to do already is not advised.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from stash.advice.case import LARGER_BATCH, Case, Remedy
from stash.advice.loader_remedies import loader_remedies, one_rank_sends
from stash.advice.run_remedies import RUN_REMEDIES, own_collective_remedies
from stash.advice.run_words import written_place
from stash.analysis.breakdown import SMALL_SHARE
from stash.analysis.bubble import Seen
from stash.analysis.pipeline_changes import balance_layers, layers_of, stage_costs
from stash.analysis.pipeline_schedule import EVEN
from stash.analysis.seen import expert_loads
from stash.analysis.step_times import UNEQUAL
from stash.core.errors import UserError
from stash.core.formatting import join_names
from stash.core.ledger_rows import FORWARD, INPUT, OPTIMIZER
from stash.core.units import format_bits, format_bytes, format_count, format_rate, format_seconds
from stash.predict.changes import BALANCED, Alteration, Times
from stash.predict.cluster_sources import usable_memory
from stash.predict.loading import dataset_bytes
from stash.predict.mesh_shapes import division_of, iter_meshes
from stash.predict.pipeline import USABLE
from stash.predict.precision import training_precision
from stash.predict.sufficiency import Sufficiency

# Prep and fetch

SMALL_FILE = 256e3
_OPENS = re.compile(r"\b(open|connect|File|imopen|load_dataset|memmap)\(")
"""What a line does that opens a file or a database."""
_AHEAD = 2.0
"""Times the bytes of a sample that are fetched for it, from which reading ahead is no help."""
BUSY = 0.9
"""Of the time, from which an accelerator is busy."""
_CROWDED = 2.0
"""Workers, or threads of a rank, for each core: where there are more, fewer are better."""
_MOST_CORES = 64
"""Per device, that can be rented."""
_DELAYED = 0.25
"""Of a block, what its training thread waited for a core."""
_LONG_OPTIMIZER = 0.2
"""Of a step, from which the optimizer is worth a sentence."""
_MANY_PARAMETERS = 50
_FEW_ROWS = 0.1
"""Of an embedding's rows, at most, that a step looks up where gradients of all are a waste."""
_LARGE_TABLES = 0.5
"""Of all parameters' bytes, from which such tables matter."""
_WORTH_A_MESH = 0.05
"""The share of a step that another mesh must save to be suggested."""
_BUFFERS = 0.25
"""Of the gradients' bytes, from which buffers are worth a sentence."""
_FEW_BUCKETS = 8
_SMALL_BUCKET = 1e6
"""Bytes of a bucket of gradients, on average, below which its latency is most of its exchange; DDP's default is 25 MB."""
_MANY_OPERATORS = 500
"""In a step, from which calling them may be what takes it long."""
_CALL_SECONDS = 5e-6
"""Of a core, to call an operator in eager mode, at least (2026-11-30, torch 2.13: 4 to 10 us)."""
_FLOPS, _BYTES = 1e10, 1e10
"""A second, that any core does at least."""
CACHED = Alteration(cache=1.0)
"""All data in memory."""


def prep_remedies(case: Case) -> list[Remedy]:
    loader, found = case.loader, [*loader_remedies(case), *_worker_remedies(case)]
    line = _line_of_samples(case)
    how = "decode and resize them once and store that, or augment on the device"
    if _OPENS.search(line):
        how = "open it once in each process, keep it open, and not again for each sample"
    where = f" ({line})" if line else ""
    saves = case.saved_seconds(less={"prep": case.seconds("prep")})
    found.append(Remedy(f"Make samples cheaper to prepare{where}: {how}", saves))
    if (
        loader is not None
        and loader.workers
        and not loader.persistent_workers
        and case.breakdown.startup_seconds
    ):
        found.append(
            Remedy(
                "Keep the workers with persistent_workers=True: starting them takes "
                f"{format_seconds(case.breakdown.startup_seconds)} an epoch"
            )
        )
    return found


def _line_of_samples(case: Case) -> str:
    """Where samples are made: of a loader without workers, the line of it that the training thread was seen at."""
    loader, run = case.loader, case.breakdown.run
    place = None if run is None else run.place(INPUT)
    if loader is None:
        return ""
    if not loader.workers and place is not None and place.caller:
        return written_place(place)
    return loader.samples_at or ""


def _worker_remedies(case: Case) -> list[Remedy]:
    """How many workers hide preparation, and the cores that they need, as ``stash whatif`` says what suffices."""
    loader, supply = case.loader, case.supply
    workers = loader.workers if loader is not None else None
    if loader is None or workers is None or supply is None or supply.trained_seconds <= 0:
        return []
    needed, use = supply.workers, supply.workers_to_use
    if workers == 0 and use is not None and not case.is_sure_to_save(Alteration(workers=use)):
        return []  # to hand a batch over may take longer than to make it
    made, trained = format_seconds(supply.made_seconds), format_seconds(supply.trained_seconds)
    why = f"preparing a step takes {made} of one worker, training it {trained}"
    if loader.kind == "iterable" and workers < 2 and use is not None:
        shard = (
            "First let the stream give each worker a share of its own, by `torch.utils.data.get_worker_info()`: "
            "otherwise every worker reads all of it, and the data come several times over; then use "
            f"num_workers={use} ({why})"
        )
        return [Remedy(shard, name="shard")]
    if needed is not None and needed <= workers:
        keep = (
            f"Keep num_workers={workers}, which would suffice ({why}), but give workers and training "
            "cores of their own, or raise prefetch_factor"
        )
        return [Remedy(keep)]
    found = []
    if use is not None and use > workers:
        cores = case.cores_per_rank
        limit = (
            f", all that {cores:g} cores per device allow"
            if use != needed and cores
            else f" ({why})"
        )
        more = _predicted_remedy(
            case,
            f"Use num_workers={use} instead of {workers}{limit}",
            Alteration(workers=use),
            "workers",
        )
        # the setting is tried in a minute; cheaper samples are work, and nothing can save more than samples for free
        first = workers == 0 and (more.saves or 0.0) > case.seconds("prep") / 2
        found.append(replace(more, first=first))
    cores = case.cores_per_rank
    if cores is not None and workers > _CROWDED * cores:
        fewer = (
            f"Use num_workers={math.ceil(cores)} instead of {workers}: {cores:g} cores make no more samples with "
            "more workers, of which each takes memory, and cores from training"
        )
        found.append(Remedy(fewer, name="fewer-workers", knob="workers"))
    return [*found, *_more_cores(case, supply)]


def _more_cores(case: Case, supply: Sufficiency) -> list[Remedy]:
    """As many as train and make samples in the time that training takes."""
    cores, needed = case.cores_per_rank, supply.workers
    if cores is None or needed is None or supply.cores_seconds is None or not supply.lacks_cores:
        return []
    wanted = math.ceil(round(cores * supply.cores_seconds / supply.trained_seconds, 6))
    if wanted > _MOST_CORES:
        return []
    more = (
        f"Rent {wanted} cores per device instead of {cores:g}, for num_workers={needed} "
        f"(preparing a step takes {format_seconds(supply.made_seconds)} of one worker)"
    )
    asked = Alteration(cpus=wanted * case.base.target.devices, workers=needed)
    return [_predicted_remedy(case, more, asked, "cores")]


def _predicted_remedy(
    case: Case, text: str, wanted: Alteration, name: str, cost: str | None = None
) -> Remedy:
    """A remedy that saves what ``stash whatif`` says of ``wanted``."""
    per_sample = cost == LARGER_BATCH
    return Remedy(
        text, case.saved_seconds(wanted), cost=cost, per_sample=per_sample, name=name, asks=wanted
    )


def fetch_remedies(case: Case) -> list[Remedy]:
    work, rates, loader = case.profile.workload, case.breakdown.rates, case.loader
    found = []
    size = dataset_bytes(case.profile)
    memory = min(
        (held for host in case.profile.hosts if (held := usable_memory(host))), default=None
    )
    if size and memory:
        cache = (
            f"Choose nodes with {format_bytes(size / USABLE)} of memory to cache the data set "
            f"({format_bytes(size)}; {format_bytes(memory)} now)"
        )
        if size <= USABLE * memory:
            cache = (
                f"Read the data set once before training: its {format_bytes(size)} fit into a node's memory "
                f"({format_bytes(memory)}), and only the first epoch pays for fetching"
            )
        found.append(_predicted_remedy(case, cache, CACHED, ""))
    if work.sample_disk_bytes and rates.device:
        per_node = work.sample_disk_bytes / case.profile.nodes
        measured = f" ({format_rate(per_node * rates.fetch)} measured)" if rates.fetch else ""
        text = f"Use a disk that delivers {format_rate(per_node * rates.device)} to each node{measured}"
        found.append(
            _predicted_remedy(case, text, Alteration(disk=per_node * rates.device), "faster-disk")
        )
    cold = [
        block
        for block in case.profile.blocks
        if block.rung == "cold" and block.files and block.file_bytes
    ]
    files = sum(block.files or 0 for block in cold)
    average = sum(block.file_bytes or 0 for block in cold) / files if files else math.inf
    if average < SMALL_FILE:
        found.append(
            Remedy(
                f"Pack the small files ({format_bytes(average)} on average) into shards read in sequence"
            )
        )
    if work.sample_disk_bytes and work.sample_bytes and average >= SMALL_FILE:
        times = work.sample_disk_bytes / work.sample_bytes
        if times >= _AHEAD:
            found.append(
                Remedy(
                    "Read the file in order once before training, into the page cache, or "
                    "`mmap.madvise(MADV_RANDOM)`: samples lie at random places, and "
                    f"{format_bytes(work.sample_disk_bytes)} are read for each of "
                    f"{format_bytes(work.sample_bytes)}",
                    name="random-reads",
                    first=True,
                )
            )
    if loader is not None and loader.workers is not None and not work.sample_disk_bytes:
        found.append(
            Remedy(
                f"Use more than num_workers={loader.workers}, so that more reads are under way at once"
            )
        )
    return found or [
        _predicted_remedy(case, "Move the data to a faster disk, or keep it in memory", CACHED, "")
    ]


# Interconnect and network

ACCUMULATED = 4
"""Batches of the step that is advised instead of exchanging after each."""


def interconnect_remedies(case: Case) -> list[Remedy]:
    if case.breakdown.seen is not None:
        return _group_remedies(case, case.breakdown.seen, "interconnect")
    found = [*_other_exchange_remedies(case, "interconnect"), *_less_exchange(case)]
    if case.is_on_cpu:
        found.append(Remedy("Run fewer ranks on a node, each with more threads: less to exchange"))
    else:
        links = case.profile.hosts[0].topology if case.profile.hosts else None
        seen = f" (seen here: {links})" if links and len(links) < 40 else ""
        found.append(
            Remedy(
                f"Check with `nvidia-smi topo -m` that the devices are linked by NVLink, not across sockets{seen}"
            )
        )
    return [*found, _larger_batch(case)]


def network_remedies(case: Case) -> list[Remedy]:
    if case.breakdown.seen is not None:
        return _group_remedies(case, case.breakdown.seen, "network")
    exchange = case.breakdown.communication
    found = [*_other_exchange_remedies(case, "network"), *_less_exchange(case)]
    if exchange.wire_bytes_per_second:
        twice = format_bits(2 * exchange.wire_bytes_per_second)
        rented = f"Rent a network that carries twice as much ({twice} as all-reduce sees it)"
        found.append(
            _predicted_remedy(case, rented, Alteration(network=Times(2.0)), name="faster-network")
        )
    return [*found, _larger_batch(case)]


def _other_exchange_remedies(case: Case, stall: str) -> list[Remedy]:
    """Against what an exchange stall contains that is no exchange of gradients."""
    alone = case.breakdown.communication.total_seconds
    waits = case.seconds(stall) - alone if alone is not None else 0.0
    return [
        *_ddp_remedies(case),
        *one_rank_sends(case),
        *own_collective_remedies(case, stall),
        *_unequal_batches(case, waits),
    ]


def _ddp_remedies(case: Case) -> list[Remedy]:
    """Arguments of DistributedDataParallel that make a step exchange more, or more often, than its gradients."""
    work, found = case.profile.workload, []
    gradients, buckets = sum(work.bucket_bytes), len(work.bucket_bytes)
    if work.buffer_bytes and work.buffer_bytes > _BUFFERS * gradients:
        text = (
            "Pass broadcast_buffers=False to DistributedDataParallel, if buffers need not be equal on all ranks in "
            f"each step: rank 0 sends {format_bytes(work.buffer_bytes)} of them to all before every forward pass, "
            f"beside {format_bytes(gradients)} of gradients"
        )
        cost = "running statistics, as of BatchNorm, are then each rank's own"
        found.append(Remedy(text, cost=cost, name="buffers", first=True))
    if work.finds_unused:
        text = (
            "Leave out find_unused_parameters=True of DistributedDataParallel, or pass static_graph=True: each step "
            "walks the whole graph, and exchanges which parameters it used"
        )
        found.append(Remedy(text, name="find-unused", knob="find_unused", first=True))
    if buckets >= _FEW_BUCKETS and gradients < buckets * _SMALL_BUCKET:
        text = (
            "Leave bucket_cap_mb of DistributedDataParallel at its 25 MB: gradients travel in "
            f"{buckets:,} messages of {format_bytes(gradients / buckets)} on average, each of which costs its latency"
        )
        found.append(Remedy(text, name="larger-buckets", knob="bucket", first=True))
    return found


def _group_remedies(case: Case, seen: Seen, stall: str) -> list[Remedy]:
    """Of a job whose ranks share its model: what it exchanges is not only gradients, once a step."""
    found = _other_mesh(case)
    most = max(
        (wait for wait in seen.waits if wait.stall == stall),
        key=lambda wait: wait.exchange,
        default=None,
    )
    if most is not None:
        found.append(
            Remedy(
                f"Hide more of {most.kind} of the group {most.name}: larger units or buckets, prefetched"
            )
        )
    return found


def _other_mesh(case: Case) -> list[Remedy]:
    """The fastest of the meshes of a job that shares its model, where it is worth a try."""
    try:
        known = division_of(case.profile)
    except UserError:
        return []
    options = [
        _predicted_remedy(
            case,
            f"Share the model as {mesh} instead of {known.mesh}",
            Alteration(mesh=mesh),
            "mesh",
        )
        for mesh in iter_meshes(known)
        if mesh != known.mesh
    ]
    best = max(options, key=lambda each: each.saves or 0.0, default=None)
    return (
        [best] if best and (best.saves or 0.0) > _WORTH_A_MESH * case.breakdown.step_seconds else []
    )


def _less_exchange(case: Case) -> list[Remedy]:
    """One exchange for several batches, fewer bytes, and buckets that can be hidden.

    A job that leaves exchanges out already has had that gain. DDP takes one communication hook: a job that registered
    its own decides there what travels. Not on CPUs, where converting gradients takes longer than gloo saves (tried).
    """
    work, found = case.profile.workload, []
    batches = max((loader.batches_per_step for loader in work.loaders), default=1)
    if batches > 1 and work.skips_exchanges is False:
        once = (
            f"Exchange gradients once for the {batches} batches of a step: `with ddp.no_sync():` around all its "
            "backward passes but the last"
        )
        found.append(_predicted_remedy(case, once, Alteration(accumulate=batches), "no-sync"))
    elif batches <= 1 and not work.skips_exchanges:
        accumulate = (
            f"Accumulate gradients over {ACCUMULATED} batches and exchange them once: `with ddp.no_sync():` around "
            f"the first {ACCUMULATED - 1} backward passes"
        )
        found.append(
            _predicted_remedy(
                case, accumulate, Alteration(accumulate=ACCUMULATED), "accumulate", LARGER_BATCH
            )
        )
    exchanged = case.breakdown.communication.bytes
    if not case.is_on_cpu and work.precision in (None, "float32") and not work.exchange_hook:
        size = f"the {format_bytes(exchanged)} of gradients" if exchanged else "the gradients"
        halve = (
            f"Halve {size}: `from torch.distributed.algorithms.ddp_comm_hooks import default_hooks`, then "
            "`ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)`"
        )
        rounded = "gradients are rounded to 16 bits on the way"
        found.append(
            _predicted_remedy(case, halve, Alteration(compress=2.0), "half-precision", rounded)
        )
    total = sum(work.bucket_bytes)
    cap, last = max(1, round(total / 8e6)), work.bucket_bytes[-1] if work.bucket_bytes else 0
    if total >= 4e6 and len(work.bucket_bytes) == 1:
        overlap = (
            f"Let the exchange overlap with backward: pass bucket_cap_mb={cap} to DistributedDataParallel; "
            "all gradients travel in one bucket now"
        )
        found.append(Remedy(overlap))
    elif total >= 4e6 and last >= 0.3 * total:
        smaller = (
            f"Pass bucket_cap_mb={cap} to DistributedDataParallel: the last bucket ({format_bytes(last)}, "
            f"{last / total:.0%} of the gradients) is exchanged when nothing is left to hide it behind"
        )
        found.append(Remedy(smaller))
    return found


def _larger_batch(case: Case) -> Remedy:
    """One exchange serves two of today's steps, and a backward pass twice as long hides more of it."""
    batch, passes = case.profile.workload.batch, case.base.passes
    change = f" ({batch} to {2 * batch})" if batch else ""
    double = f"Double the batch per device{change}, if its memory allows: the same bytes for twice the samples"
    if passes is None:
        return Remedy(double, cost=LARGER_BATCH, per_sample=True, name="larger-batch")
    return _predicted_remedy(
        case, double, Alteration(batch=2 * passes.batch), name="larger-batch", cost=LARGER_BATCH
    )


# The others


def compute_remedies(case: Case) -> list[Remedy]:
    work = case.profile.workload
    if case.breakdown.waits_for_host:
        return _submit_faster()
    found = [*_costly_settings(case), *_activation_remedies(case)]
    if case.is_on_cpu:
        return [*found, *_compute_on_cpus(case)]
    if training_precision(work) == "fp32":
        found.append(
            Remedy(
                'Compute the loss inside `with torch.autocast("cuda", torch.bfloat16):` (of GPUs before Ampere '
                "torch.float16, with a GradScaler), if not done yet"
            )
        )
    found += _optimizer_remedies(case)
    found.append(Remedy("Try `model = torch.compile(model)`, which fuses small operations"))
    found.append(
        Remedy("Try a larger batch per device, or price a cheaper device", cost=LARGER_BATCH)
    )
    busy = _busy_share(case)
    if busy is not None and busy >= BUSY:
        found.append(
            Remedy(f"Rent devices that compute faster: these are busy {busy:.0%} of the time")
        )
    hidden = case.breakdown.communication.hidden_seconds
    if hidden is not None and hidden >= 0.03 * case.breakdown.step_seconds:
        mind = (
            f"Before renting faster devices, mind that {format_seconds(hidden)} of gradient exchange "
            "hide behind the backward pass now and would surface"
        )
        found.append(Remedy(mind))
    return found


def _costly_settings(case: Case) -> list[Remedy]:
    """Known from the job itself, whatever the noise: what few mean to leave on."""
    work, found = case.profile.workload, []
    if work.anomaly_mode:
        text = (
            "Leave out `torch.autograd.set_detect_anomaly(True)` (`detect_anomaly` of trainers): each operation "
            "keeps a stack, and each gradient is searched for NaN, which often doubles the step"
        )
        found.append(Remedy(text, name="anomaly-mode", first=True))
    if work.precision == "float64":
        text = (
            "Train in float32, with `model.float()` and batches of float32 (numpy's arrays are float64 by default): "
            "parameters are float64 now, which takes twice the time at least, and twice the memory"
        )
        digits = "numbers have 7 digits instead of 16"
        found.append(Remedy(text, cost=digits, name="float32", first=True))
    return [*found, *_fewer_threads(case), *_sparse_remedies(case)]


def _small_operations(case: Case) -> list[Remedy]:
    """A step of very many operators, each of which takes less than calling it: loops in Python, on CPUs.

    By what operators do, not by how long they took, so that other work on the machine does not matter.
    """
    operators = case.profile.workload.operators
    calls = sum(each.calls for each in operators)
    flops = sum(each.flops or 0.0 for each in operators)
    moved = sum(each.bytes or 0 for each in operators)
    if calls < _MANY_OPERATORS or flops / _FLOPS + moved / _BYTES > calls * _CALL_SECONDS:
        return []
    places = () if case.breakdown.run is None else case.breakdown.run.places
    # the loop's own line, which calls the model, tells nothing
    place = next((each for each in places if each.row == FORWARD and each.caller), None)
    where = "" if place is None else f" at {written_place(place)}"
    text = (
        f"Work on whole tensors instead of loops in Python{where}, by what does all of it at once (`nn.LSTM`, "
        f"`torch.vmap`, `foreach`), or try `torch.compile`: a step calls {calls:,} operators of "
        f"{format_bytes(moved / calls)} on average, and calling each takes longer than what it does"
    )
    return [Remedy(text, name="small-operations", first=True)]


def _fewer_threads(case: Case) -> list[Remedy]:
    """Threads of parallel loops beyond the cores, of which each loop waits for the last."""
    cores = case.cores_per_rank
    last = case.profile.blocks[-1] if case.profile.blocks else None
    if (
        not case.is_on_cpu
        or cores is None
        or last is None
        or len(last.loop_delays) < _CROWDED * cores
    ):
        return []
    if sum(last.step_delays) < _DELAYED * last.seconds:
        return []
    text = (
        f"Use {format_count(math.ceil(cores), 'thread')} per rank, by `torch.set_num_threads` or OMP_NUM_THREADS: "
        f"{1 + len(last.loop_delays)} share {cores:g} cores now, and each operation waits for the last of them"
    )
    return [Remedy(text, name="threads", knob="threads", first=True)]


def _sparse_remedies(case: Case) -> list[Remedy]:
    """Embeddings whose gradients and updates are of all rows, of which a step looks up few."""
    tables = [each for each in case.profile.workload.embeddings if not each.sparse]
    tables = [
        each for each in tables if each.gradient_bytes and each.distinct < _FEW_ROWS * each.rows
    ]
    size = sum(each.gradient_bytes for each in tables)
    if size < _LARGE_TABLES * (case.profile.workload.parameter_bytes or math.inf):
        return []
    text = (
        f"Give large embeddings sparse gradients, `nn.Embedding(..., sparse=True)` with `torch.optim.SparseAdam` or "
        f"SGD: a step looks up {sum(each.distinct for each in tables):,} of {sum(each.rows for each in tables):,} "
        f"rows, but the optimizer updates all {format_bytes(size)}"
    )
    return [
        Remedy(
            text,
            cost="the optimizer's averages no longer move in rows without a gradient",
            name="sparse",
            first=True,
        )
    ]


def _optimizer_remedies(case: Case) -> list[Remedy]:
    """One that takes long beside the passes: it walks over its parameters one by one."""
    blocks = [
        block
        for block in case.profile.blocks
        if block.rung == case.breakdown.rungs[0] and block.stage_seconds
    ]
    whole = sum(block.seconds for block in blocks)
    share = (
        sum(block.stage_seconds.get("optimizer", 0.0) for block in blocks) / whole if whole else 0.0
    )
    share = min(share, _seen_of_optimizer(case))
    if share < _LONG_OPTIMIZER or len(case.profile.workload.gradients) < _MANY_PARAMETERS:
        return []
    place = None if case.breakdown.run is None else case.breakdown.run.place("optimizer")
    where = "" if place is None else f" ({place.where})"
    text = (
        f"Let the optimizer update all parameters at once{where}, with fused=True or foreach=True: it takes "
        f"{share:.0%} of a step, for {len(case.profile.workload.gradients):,} parameters one by one"
    )
    return [Remedy(text, name="fused", knob="fused", first=True)]


def _seen_of_optimizer(case: Case) -> float:
    """Of first steps, the share without the script's own lines before the update; 1 where that is unknown."""
    ledgers = [each for each in case.profile.ledgers if each.timed_seconds]
    rows = [sum(row.timed_seconds for row in each.rows if row.row == OPTIMIZER) for each in ledgers]
    known = [row / each.timed_seconds for row, each in zip(rows, ledgers, strict=True) if row]
    return max(known, default=1.0)


def _activation_remedies(case: Case) -> list[Remedy]:
    """Of a backward pass that computes forward passes again."""
    if not case.profile.workload.recomputes:
        return []
    text = (
        "Leave out activation checkpointing (`torch.utils.checkpoint`, `gradient_checkpointing`) where memory allows, "
        "or use it for fewer layers: the backward pass computes forward passes again, about a quarter of a step"
    )
    cost = "activations are kept in memory until the backward pass"
    return [Remedy(text, cost=cost, name="recompute")]


def _flush_remedies(case: Case) -> list[Remedy]:
    """Of a model whose values become too small, which slows arithmetic on CPUs: it is not in what was measured."""
    count = case.profile.workload.vanished_values
    if not count:
        return []
    text = (
        f"Call `torch.set_flush_denormal(True)` first of all: {count:,} values of the model became denormal while "
        "Stash measured, which flushes them to 0; on them steps take longer than these"
    )
    return [Remedy(text, name="flush-denormal", knob="denormals", first=True)]


def _half_precision_remedies(case: Case) -> list[Remedy]:
    """Of products in 16 bits, which most CPUs compute by converting every number."""
    work = case.profile.workload.operators
    whole = sum(each.flops or 0.0 for each in work)
    for dtype, cores in (
        ("float16", "AVX512-FP16 or AMX-FP16"),
        ("bfloat16", "AMX or AVX512-BF16"),
    ):
        if whole < 2 * sum(each.flops or 0.0 for each in work if each.dtype == dtype):
            text = f"Compute in float32: products are {dtype} now, which cores without {cores} only emulate"
            return [Remedy(text, name="float32", first=dtype == "float16")]
    return []


def _compute_on_cpus(case: Case) -> list[Remedy]:
    """Settings of the job: which cores are faster is another question."""
    work, cores = case.profile.workload, case.cores_per_rank
    known = f" ({cores:g} cores per rank here)" if cores is not None else ""
    threads = Remedy(
        f"Try another number of threads per rank, `torch.set_num_threads`{known}", knob="threads"
    )
    found = [
        *_flush_remedies(case),
        *_half_precision_remedies(case),
        *_optimizer_remedies(case),
        *_small_operations(case),
        *([] if _fewer_threads(case) else [threads]),
        Remedy(
            "Try `model = torch.compile(model)`, which fuses small operations", knob="--try compile"
        ),
    ]
    if any("conv" in operator.operator for operator in work.operators):
        channels = "Try `model.to(memory_format=torch.channels_last)`, which convolutions often run faster in"
        found.append(Remedy(channels, knob="--try channels_last"))
    if training_precision(work) == "fp32":
        half = 'Try `with torch.autocast("cpu", torch.bfloat16):` around the loss, on cores with AMX or AVX512-BF16'
        found.append(Remedy(half, cost="results are rounded to 16 bits", knob="--try bfloat16"))
    return found


def _busy_share(case: Case) -> float | None:
    """Of the time, what the accelerators worked under the lowest rung; ``None`` if unknown."""
    lowest = [block.gpu for block in case.profile.blocks if block.rung == case.breakdown.rungs[0]]
    seen = [share for share in lowest if share is not None]
    return sum(seen) / len(seen) if seen else None


def _submit_faster() -> list[Remedy]:
    """For devices that wait for their hosts: fewer, larger kernels, or devices that cost less."""
    return [
        Remedy(
            'Submit fewer kernels: `torch.compile(model, mode="reduce-overhead")`, an optimizer with fused=True; '
            "a faster device would wait as long"
        ),
        Remedy(
            "Try a larger batch per device, whose kernels take longer to run and no longer to submit",
            cost=LARGER_BATCH,
        ),
        Remedy("Or price a cheaper device, with cores as fast"),
    ]


def transfer_remedies(case: Case) -> list[Remedy]:
    work, seconds = case.profile.workload, case.seconds("transfer")
    saves, found = case.saved_seconds(less={"transfer": seconds}), []
    copy = "Copy with batch.to(device, non_blocking=True) and fetch the next batch one step ahead"
    if case.loader is not None and case.loader.pin_memory is False:
        copy = "Pass pin_memory=True to the DataLoader, and copy with batch.to(device, non_blocking=True)"
    found.append(Remedy(copy, saves))
    if work.sample_bytes and work.batch and seconds > 0:
        size = work.sample_bytes * work.batch
        found.append(
            Remedy(
                f"Copy fewer bytes ({format_bytes(size)} a step at {format_rate(size / seconds)} now): "
                "send images as uint8 and normalise on the device"
            )
        )
    found.append(Remedy("Check the device's PCIe generation and width with `nvidia-smi -q`"))
    return found


def contention_remedies(case: Case) -> list[Remedy]:
    slow, found = (
        case.breakdown.slow_rank,
        [*_balanced_experts(case), *_unequal_batches(case, case.seconds("contention"))],
    )
    if slow is not None:
        place = next(rank for rank in case.profile.ranks if rank.rank == slow.rank)
        found.append(
            Remedy(
                f"Look at rank {slow.rank} ({place.device} on node {place.node}): other processes, "
                "clocks, temperature, more data than the others",
                case.saved_seconds(less={"contention": slow.seconds - slow.others_seconds}),
                name="slow-rank",
            )
        )
    if (
        case.breakdown.seen is not None
    ):  # ranks hold one model together: fewer of them would be another job
        text = "Look at the rank that the others of its group wait for: clocks, other processes, more tokens than theirs"
        return [*found, Remedy(text)]
    cores = case.cores_per_rank
    if (
        cores is not None and not case.is_on_cpu
    ):  # on CPUs Stash itself pins ranks and sets their threads
        threads = max(1, int(cores))
        found.append(
            Remedy(
                f"Give every rank cores of its own: OMP_NUM_THREADS={threads} and "
                f"`taskset` or `numactl` for each ({cores:g} cores per rank here)"
            )
        )
    if case.is_on_cpu:
        found.append(
            Remedy(
                "Run fewer ranks on a node, each with more threads: they share its cores and memory"
            )
        )
    else:
        found.append(
            Remedy(
                "Check that devices do not share a PCIe switch or a power limit: `nvidia-smi topo -m`"
            )
        )
    return found


def _unequal_batches(case: Case, seconds: float) -> list[Remedy]:
    """Ranks that get more to do than others, now one and now another, for which the others wait ``seconds``."""
    loader = case.loader
    if (
        case.breakdown.slow_rank is not None
        or loader is None
        or (loader.batch_spread or 0.0) < UNEQUAL
    ):
        return []
    if seconds < SMALL_SHARE * case.breakdown.step_seconds:
        return []
    text = (
        "Give all ranks batches of like lengths in a step (sorted or bucketed by length): sizes of batches vary by "
        f"{loader.batch_spread:.0%}, and each step waits for whoever has the longest; no rank is slow by itself"
    )
    return [Remedy(text, seconds, name="unequal-lengths", first=True)]


def _balanced_experts(case: Case) -> list[Remedy]:
    return [
        Remedy(
            f"Balance the load of experts (an auxiliary loss, a capacity): rank {load.rank} computes "
            f"{load.ratio:.2f} times the tokens of the mean rank of group {load.name}",
            case.saved_seconds(less={"contention": load.saves}),
            name="balance-experts",
        )
        for load in expert_loads(case.profile)
        if load.saves >= SMALL_SHARE * case.breakdown.step_seconds
    ]


def bubble_remedies(case: Case) -> list[Remedy]:
    found, schedule = case.breakdown.seen, case.profile.workload.pipeline
    if found is None or found.bubble is None or schedule is None:
        return []
    parts, remedies = found.bubble, []
    stages, mean = parts.stage_seconds, sum(parts.stage_seconds) / len(parts.stage_seconds)
    layers = layers_of(case.profile.passes)
    split = balance_layers(stage_costs(stages, layers), layers) if layers else ()
    if parts.slowest_stage is not None and (split != layers or not layers):
        over = stages[parts.slowest_stage] - mean
        text = (
            f"Move layers away from stage {parts.slowest_stage}: its passes take {format_seconds(over)} a step "
            f"more than the mean stage's {format_seconds(mean)}"
        )
        if layers:
            text += f"; {join_names([str(count) for count in split], most=64)} layers a stage would be most even"
            remedies.append(
                _predicted_remedy(case, text, Alteration(split=BALANCED), "balance-stages")
            )
        else:
            remedies.append(
                Remedy(
                    text,
                    case.saved_seconds(less={"bubble": max(0.0, parts.unequal)}),
                    name="balance-stages",
                )
            )
    count = schedule.microbatches
    if schedule.name in EVEN:
        text = (
            f"Cut the batch into {2 * count} microbatches instead of {count}, if passes of half as many samples "
            "are as efficient"
        )
        remedies.append(
            _predicted_remedy(case, text, Alteration(microbatches=2 * count), "microbatches")
        )
    remedies.append(
        Remedy(
            "Try a schedule that leaves less idle: interleaved stages (ScheduleInterleaved1F1B), or zero bubble "
            "(ScheduleInterleavedZeroBubble), which sends more messages"
        )
    )
    return remedies


REMEDIES: Mapping[str, Callable[[Case], list[Remedy]]] = {
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
