"""The saved artefact of one measurement of a training job, as records.

A ``Profile`` holds what was measured and what it was measured on, nothing derived from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stash.core import notebooks
from stash.core.records.base import SCHEMA, CommandWords, Count, Duration, Number, PlainName, Record, Sentence, Whole
from stash.core.records.circumstances import CellCost, GpuState, OtherProgram
from stash.core.records.host import Host
from stash.core.records.parallel import EmbeddingTable, GroupUse, MeshAxis, PipelineSchedule, StagePasses
from stash.core.records.rank_ledger import RankLedger


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


@dataclass(frozen=True, slots=True)
class Block:
    """Some steps of one rank under one rung.

    A large job has hundreds of thousands: no ``Record``, whose objects take many times the memory. Nothing
    checks its types but ``stash.core.columns``, which reads them all at once.
    """

    round: Count
    rung: str
    rank: Count
    steps: Whole
    seconds: Number
    """Wall time of the measured steps, device synchronised at both ends."""
    step_seconds: tuple[Number, ...] = ()
    """The same steps one by one, on the host's clock (not synchronised in between): on a GPU these are the moments of
    enqueueing, and only their sum means anything."""
    interrupted_seconds: Number = 0.0
    """Time inside the block that was not training (a validation loop), not part of ``seconds``."""
    samples: Whole | None = None
    """Trained on in these steps; None if they cannot be counted."""
    step_samples: tuple[Whole, ...] = ()
    """The same samples step by step: they differ where accumulation ramps up or batches are made by size."""
    wait_seconds: Number | None = None
    """Time the steps waited for the data loader: the second, single-run estimator."""
    resident: Number | None = None
    """Fraction of the pages of the files this block read that were in the page cache just before."""
    files: Whole | None = None
    file_bytes: Whole | None = None
    """Sizes of the files opened."""
    storage_bytes: Whole | None = None
    """Bytes the process and its workers really fetched from storage (/proc/PID/io)."""
    fetch_seconds: Number | None = None
    """Time workers spent making batches (read, decode, augment, collate), summed over workers."""
    cpu: Number | None = None
    """Busy fraction of the host's cores."""
    steal: Number | None = None
    gpu: Number | None = None
    """Utilisation of the rank's GPU as NVML reports it."""
    network_bytes: Whole | None = None
    """Bytes the host sent on all interfaces, loopback included."""
    disk_bytes: Whole | None = None
    """Bytes the host read from all block devices."""
    started: Number = 0.0
    """Since the first block of the run."""
    launch: Whole = 0
    """Which launch of the job measured it."""
    read_bytes: Whole | None = None
    """Bytes that system calls of these processes read, from wherever (/proc/PID/io); what is mapped is not called."""
    held_bytes: Whole | None = None
    """Sizes of the files of many samples (open, mapped, opened again and again, or below ``--data-root``) that were
    dropped from memory before a cold block."""
    cpu_seconds: Number | None = None
    """Processor time of this rank's own process, all its threads; once of blocks of replayed batches only."""
    fetch_cpu_seconds: Number | None = None
    """Of ``fetch_seconds``, processor time: the rest waited, for files, for cores or for what a script sleeps."""
    step_waits: tuple[Number, ...] = ()
    """Of ``wait_seconds``, what each step waited."""
    step_delays: tuple[Number, ...] = ()
    """Seconds of each step in which the training thread was ready to run and had no core (``schedstat``)."""
    step_wait_delays: tuple[Number, ...] = ()
    """Of ``step_delays``, what fell into waits for the loader."""
    step_exchanges: tuple[Number, ...] = ()
    """Seconds of each step from this rank's last gradient until its backward pass was over, on the device's clock:
    what it waits for the exchange. Empty where the last gradient is not known."""
    step_exchange_delays: tuple[Number, ...] = ()
    """Of ``step_delays``, what fell into these windows."""
    helper_delay_seconds: Number | None = None
    """Run-queue delay of the process's threads that exchange (gloo's) in all of these windows together."""
    helper_cpu_seconds: Number | None = None
    """Processor time of these threads in the whole block."""
    helper_window_cpu_seconds: Number | None = None
    """Of that, in windows of exchange."""
    loop_delays: tuple[Number, ...] = ()
    """Run-queue delay in the block of each thread that shares the training thread's parallel loops (OpenMP's)."""
    thread_cpu_seconds: Number | None = None
    """Processor time of the training thread."""
    machine_cpu_seconds: Number | None = None
    """Processor time that everybody together used meanwhile of the cores the rank may run on, in hundredths."""
    worker_cpu_seconds: Number | None = None
    """Processor time of all processes below this rank: its loader's workers, and what its script started."""
    worker_delay_seconds: Number | None = None
    """What its loader's workers were ready to run and had no core."""
    throttled_seconds: Number | None = None
    """What the limit of the rank's own control group kept its members from running, counted once a core."""
    stage_seconds: dict[PlainName, Number] = field(default_factory=dict)
    """What the training thread spent in each stage of its steps, as it was stamped: ``between`` steps, waiting for
    ``input``, ``transfer``, ``forward``, ``backward`` until its last gradient, ``exchange`` from there on (both are
    ``backward`` where the last gradient is not known), other calls of a ``collective``, and the ``optimizer``."""
    switches: Whole | None = None
    """Times that the kernel took the core from the training thread."""
    group_waits: dict[PlainName, Number] = field(default_factory=dict)
    """What the training thread, or the device's stream, waited in collectives that Python sees, by group and kind,
    e.g. ``dp/all_reduce``: of calls within calls the outermost, so that these times never overlap."""
    group_under_way: dict[PlainName, Number] = field(default_factory=dict)
    """From each of these calls until what it asked for was there, all added up, whether it was waited for or went on
    beside, less waits for others meanwhile; without those of which that was not seen."""
    received_rows: dict[PlainName, Number] = field(default_factory=dict)
    """Rows that ranks of a group sent to this one by ``all_to_all_single`` with split sizes, by group: tokens of its
    experts. What goes back where the last ones came from is not counted."""
    phase_seconds: dict[PlainName, Number] = field(default_factory=dict)
    """Of these steps, in what the script names with ``stash.phase``."""
    host_leads: tuple[Number, ...] = ()
    """Of each step, the most seconds that the host was ahead of the device at a boundary between stages: where it is
    next to none, the device waits for the host to submit its work. Empty on CPUs, which have no queue."""


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
