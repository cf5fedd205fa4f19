"""The saved artefact of one measurement of a training job, as records.

A ``Profile`` holds what was measured and what it was measured on, nothing derived from it.
"""

from __future__ import annotations

from stash.core import block, notebooks
from stash.core.records.base import (
    SCHEMA,
    CommandWords,
    Count,
    Duration,
    Number,
    PlainName,
    Record,
    Sentence,
    Whole,
)
from stash.core.records.circumstances import CellCost, EnergyUse, GpuState, OtherProgram
from stash.core.records.host import Host
from stash.core.records.parallel import (
    EmbeddingTable,
    GroupUse,
    MeshAxis,
    PipelineSchedule,
    StagePasses,
)
from stash.core.records.rank_ledger import RankLedger

Block = block.Block


class Loader(Record):
    """Settings of one training data loader."""

    kind: PlainName
    """``map``, ``iterable`` or ``watched`` (any iterable handed to ``stash.loader``)."""
    workers: Whole | None = None
    prefetch_factor: Whole | None = None
    persistent_workers: bool | None = None
    pin_memory: bool | None = None
    samples: Whole | None = None
    """Samples in the data set, if it has a length."""
    batches_per_step: Whole = 1
    """Batches read per optimizer step; above 1 with gradient accumulation."""
    startup_seconds: Number | None = None
    """From asking for an iterator until its first batch arrived: starting the workers."""
    in_order: bool | None = None
    """Whether batches are handed out in the order of their samples; ``None`` where PyTorch knows nothing else."""
    start_method: PlainName | None = None
    """Of its workers: ``fork``, ``forkserver`` or ``spawn``."""
    tensors_per_batch: Number | None = None
    batch_spread: Number | None = None
    """Of the bytes of its batches, the standard deviation as a part of the mean."""
    samples_at: PlainName | None = None
    """Where the script prepares a sample, ``train.py:25``; ``None`` where a library does."""
    remade: bool | None = None
    """Whether the script made it again for another epoch, as far as was seen."""
    on_device: bool | None = None
    """Whether its batches arrive on an accelerator: the loader itself copies them there, so prep contains that."""


class Gradient(Record):
    """One parameter's gradient, in the order in which the backward pass made them ready."""

    name: PlainName
    bytes: Whole
    ready_seconds: Number | None = None
    """Since the first gradient of the backward pass became ready."""
    ready_steps: tuple[Number, ...] = ()
    """The same in each of up to five steps; the n-th numbers of all gradients and buckets are of one step.
    Empty where it was not ready in each."""


class Bucket(Record):
    """One of DistributedDataParallel's gradient buckets: exchanged as soon as the last of its gradients is ready."""

    bytes: Whole
    gradients: tuple[str, ...]
    """Their names."""
    ready_steps: tuple[Number, ...] = ()
    """When all of them were ready, since the backward pass's first gradient was, in each of several steps."""


class Operator(Record):
    """What the calls of one operator did in a step of one device, of those with inputs of like shape and type."""

    operator: PlainName
    """As PyTorch names it, e.g. ``aten.mm``; ``others`` is the sum of all that have no row of their own."""
    shapes: str
    """Of the tensors it is called with, e.g. ``64x512 512x10``; of many, how many they are and hold."""
    dtype: PlainName
    """Of the first of them that holds floating point numbers, else of the first."""
    calls: Count
    flops: Number | None = None
    """None of operators whose FLOPs are not counted: those that are no product, convolution or attention."""
    bytes: Whole | None = None
    """Of device memory, if every input were read once and every result written once. Views, collectives and reserved
    memory move nothing; of a table that is looked up in, only what is touched counts."""


class Workload(Record):
    """What was trained."""

    command: CommandWords
    name: PlainName
    parameters: Whole | None = None
    parameter_bytes: Whole | None = None
    gradients: tuple[Gradient, ...] = ()
    bucket_bytes: tuple[Whole, ...] = ()
    """Sizes of DistributedDataParallel's gradient buckets in the order they are reduced."""
    batch: Whole | None = None
    """Samples per device and optimizer step."""
    loaders: tuple[Loader, ...] = ()
    sample_bytes: Number | None = None
    """Bytes of one sample as the loader delivers it."""
    sample_disk_bytes: Number | None = None
    """Bytes fetched from storage per sample, what is read around it included; in files made before November 22, 2026,
    the sizes of the files opened per sample."""
    flops_per_step: Number | None = None
    """Forward and backward of one device, counted from its matrix products and convolutions."""
    replayed_batches: Whole | None = None
    precision: PlainName | None = None
    """Data type of the parameters, e.g. ``float32``."""
    collectives_per_step: dict[PlainName, Number] = {}  # noqa: RUF012 - pydantic copies it
    """Collectives the script itself issues through torch.distributed in a step, by name."""
    exchange_hook: PlainName | None = None
    """The communication hook that the job itself registered with DistributedDataParallel; empty if it has none."""
    skips_exchanges: bool | None = None
    """Whether the job leaves out the exchange after some backward passes (``no_sync()``)."""
    collective_bytes_per_step: dict[PlainName, Number] = {}  # noqa: RUF012 - pydantic copies it
    """Bytes that rank 0 hands to them, by name: the size of what is reduced, gathered or scattered."""
    exchanged_bytes: Number | None = None
    """Those together, and the buckets that DistributedDataParallel exchanges itself; None if nothing was seen."""
    replicas: Whole | None = None
    """How many replicas of the model the ranks train together; fewer than ranks where some share one."""
    dataset_bytes: Number | None = None
    """Bytes of the whole data set on disk, at most: its samples' share of what cold blocks fetched, and no more than
    its files hold."""
    operators: tuple[Operator, ...] = ()
    """Of one step of one device, the heaviest first; together all that the step did."""
    buckets: tuple[Bucket, ...] = ()
    """In the order in which they are reduced."""
    before_forward: Number | None = None
    """Of a step on batches from memory, the share until its first forward pass begins, on the device's clock if it is
    CUDA's: what batches take at most that no loader makes; ``None`` if no module was called."""
    inputs_placed: bool | None = None
    """Whether that pass got them on the device, so that copying them is part of that share; ``None`` if unknown."""
    mesh: tuple[MeshAxis, ...] = ()
    """How ranks share the work; empty where the job keeps no mesh that says so."""
    pipeline: PipelineSchedule | None = None
    tokens_per_sample: Number | None = None
    """Places in a sample's sequence, padding included; ``None`` of batches that are not known to hold tokens."""
    padding: Number | None = None
    """Of the tokens, the share that the batch's mask leaves out; ``None`` without a mask."""
    whole_parameters: Whole | None = None
    """Of the whole model, whatever a rank holds of it; ``None`` where what is divided does not tell."""
    float32_products: PlainName | None = None
    """PyTorch's precision of float32 matrix products: ``highest`` is float32, ``high`` and ``medium`` allow TF32."""
    vanished_values: Whole | None = None
    """Values of parameters and buffers on a CPU that became smaller than a float32 holds normally while Stash, which
    flushes such values to zero, measured; ``None`` where none did, or the script flushes them itself."""
    anomaly_mode: bool | None = None
    """Whether autograd looked for NaN in each operation (``torch.autograd.set_detect_anomaly``)."""
    optimizer_bytes: Whole | None = None
    """Of the state that the optimizer keeps on one device."""
    unrecorded: dict[str, Sentence] = {}  # noqa: RUF012 - pydantic copies it
    """Facts that could not be recorded, by name, and why."""
    git_commit: str | None = None
    """Of the repository that the script is in, when it was profiled; None if it is in none."""
    git_dirty: bool | None = None
    """Whether files of it were changed since that commit; None if that is unknown."""
    embeddings: tuple[EmbeddingTable, ...] = ()
    """Tables of ``torch.nn.Embedding`` and ``EmbeddingBag``, those with most lookups first."""
    groups: tuple[GroupUse, ...] = ()
    """Every group and kind of collective that Python sees; empty where there is none."""
    buffer_bytes: Whole | None = None
    """Of buffers, that DistributedDataParallel sends from rank 0 to all before each forward pass; None without it."""
    finds_unused: bool | None = None
    """Whether it searches each step's graph for parameters without a gradient (``find_unused_parameters``)."""
    recomputes: bool | None = None
    """Whether the backward pass computes forward passes again (``torch.utils.checkpoint``)."""
    bucket_view: bool | None = None
    """Whether gradients are views into DistributedDataParallel's buckets (``gradient_as_bucket_view``); None without
    it."""


class Rank(Record):
    """One process of the job and where it ran."""

    rank: Count
    node: Count
    local_rank: Count
    device: PlainName
    """``cpu``, ``cuda:0`` …"""
    cores: Whole | None = None
    """Cores the process was pinned to."""
    machine: PlainName | None = None
    """What ranks that may run on the same cores have in common, whatever node each is of: the beginning of their
    kernel's boot id, and those cores."""


class Rate(Record):
    """What the loader alone delivers when no training waits for it: DS-Analyzer's P (warm) and F (cold)."""

    feed: PlainName
    """``warm`` or ``cold``."""
    rank: Count
    round: Whole
    samples: Count
    seconds: Duration
    part_seconds: tuple[Number, ...] = ()
    """Of parts of equally many batches, one after the other: how much the rate varies."""


FIRST_TOOK = 2**16 * 1e-9
"""Seconds below which batches count for the first number of ``WorkerTimes.took``."""


class WorkerTimes(Record):
    """What each process that makes a rank's batches took for them in one data block, while training."""

    feed: PlainName
    """``warm`` or ``cold``: what it contains of reading."""
    rank: Count
    round: Whole
    batches: tuple[Whole, ...]
    """That each made; workers that made none are left out."""
    seconds: tuple[Number, ...]
    """That each took for them: reading, decoding, augmenting, collating."""
    took: tuple[Whole, ...] = ()
    """Batches of all of them by what one took: below ``FIRST_TOOK`` seconds, then each twice as long; empty where
    that was not counted."""
    threads: Number | None = None
    """That one operation in such a process may use, by the library that uses most (PyTorch, OpenCV)."""


class Memory(Record):
    """The most memory that one rank held while blocks were measured."""

    rank: Count
    allocated_bytes: Whole | None = None
    """Of its accelerator, by tensors, as PyTorch's allocator counts them; None on a CPU."""
    reserved_bytes: Whole | None = None
    """… and by that allocator."""
    resident_bytes: Whole | None = None
    """Of the host, by the training process, from its start on (VmHWM): code and replayed batches included."""
    replayed_bytes: Whole | None = None
    """Of the batches that Stash kept in host memory for replays."""


class Collective(Record):
    """The gradient exchange of one step run by itself: all-reduce of every bucket, nothing else going on."""

    scope: PlainName
    """``node`` or ``world``."""
    ranks: Count
    bytes: Count
    seconds: Duration
    latency_seconds: Duration | None = None
    """The same collectives with next to no bytes in them: what a smaller exchange would still take."""


class Launch(Record):
    """What a step of the job was in one launch of it; launches of their own for some rungs may train another job."""

    launch: Whole
    ranks: Whole
    batch: Whole | None = None
    """Samples per rank and step, as its loaders were read."""
    batches_per_step: Whole | None = None


class Skipped(Record):
    """A rung that was not measured, or measured and found unusable, and why."""

    rung: PlainName
    why: Sentence


class Settings(Record):
    """How the ladder was run."""

    precision: Number
    """Wanted half-width of every interval, as a fraction of the step."""
    budget_seconds: Number
    rungs: tuple[PlainName, ...]
    isolated: bool
    """True when every communication rung had launches of its own."""
    why: Sentence
    """Why it was run that way."""
    launches: Whole = 1
    until_decided: bool = False
    """Measuring ended as soon as the verdict held: no ``precision`` was asked for."""
    started: Whole | None = None
    """Processes of the job that were started on each node; what they start themselves is not among them."""


class Profile(Record):
    """One measurement: everything measured, and everything it depended on."""

    schema_version: Whole = SCHEMA
    stash_version: PlainName
    created: PlainName
    """UTC, ISO 8601."""
    workload: Workload
    hosts: tuple[Host, ...]
    """In the order of the nodes."""
    ranks: tuple[Rank, ...]
    software: dict[PlainName, PlainName]
    settings: Settings
    blocks: tuple[Block, ...]
    rates: tuple[Rate, ...] = ()
    collectives: tuple[Collective, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[Sentence, ...] = ()
    """What was observed and matters to a reader, in sentences."""
    left_files: tuple[Sentence, ...] = ()
    """What the profiled job left where nothing was before, seen from its working folder; folders end in a slash."""
    ended: str
    """``decided``, ``settled``, ``precision``, ``budget``, ``script ended``, ``interrupted`` or ``failed``."""
    elapsed_seconds: Number
    """From the start of the first launch to the end of the last."""
    seconds_before_blocks: Number | None = None
    """Of those until the first block, from which the budget counts: imports, compilation, warm-up, discovery."""
    launches: tuple[Launch, ...] = ()
    workers: tuple[WorkerTimes, ...] = ()
    """Of the leader's loaders."""
    passes: tuple[StagePasses, ...] = ()
    memory: tuple[Memory, ...] = ()
    others: tuple[OtherProgram, ...] = ()
    """The busiest programs besides the job on the leader's machine."""
    gpu_states: tuple[GpuState, ...] = ()
    """Of the leader's GPUs that the job used."""
    cost: CellCost | None = None
    """Of a cell of a study; ``None``: not known, or not paid for by time."""
    ledgers: tuple[RankLedger, ...] = ()
    """Of each rank: its seconds until blocks began, as the job was typed."""
    energy: EnergyUse | None = None
    """Of the leader's machine; ``None``: made by a Stash that read no counters."""

    @property
    def world_size(self) -> int:
        return len(self.ranks)

    @property
    def nodes(self) -> int:
        return len({rank.node for rank in self.ranks})

    def __repr__(self) -> str:
        """The verdict and the table of stalls; ``model_dump()`` has everything."""
        return notebooks.text_of(self)

    __str__ = __repr__
