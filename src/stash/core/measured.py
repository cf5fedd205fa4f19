"""What the agents tell and the artefact holds, in one record each.

Standard library only, since the agents make them in the job's interpreter. The bounds that their types name are those
of whoever reads them (``core/field_types.py``): the launcher, and the reader of a file.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stash.core.field_types import Count, Duration, Number, PlainName, Sentence, Whole

FIRST_TOOK = 2**16 * 1e-9
"""Seconds below which batches count for the first number of ``WorkerTimes.took``."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some steps of one rank under one rung.

    A large job has hundreds of thousands, which ``stash.core.columns`` reads all at once.
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


@dataclass(frozen=True)
class Rank:
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


@dataclass(frozen=True)
class Rate:
    """What the loader alone delivers when no training waits for it: DS-Analyzer's P (warm) and F (cold)."""

    feed: PlainName
    """``warm`` or ``cold``."""
    rank: Count
    round: Whole
    samples: Count
    seconds: Duration
    part_seconds: tuple[Number, ...] = ()
    """Of parts of equally many batches, one after the other: how much the rate varies."""


@dataclass(frozen=True)
class WorkerTimes:
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


@dataclass(frozen=True)
class Memory:
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


@dataclass(frozen=True)
class Collective:
    """The gradient exchange of one step run by itself: all-reduce of every bucket, nothing else going on."""

    scope: PlainName
    """``node`` or ``world``."""
    ranks: Count
    bytes: Count
    seconds: Duration
    latency_seconds: Duration | None = None
    """The same collectives with next to no bytes in them: what a smaller exchange would still take."""


@dataclass(frozen=True)
class Launch:
    """What a step of the job was in one launch of it; launches of their own for some rungs may train another job."""

    launch: Whole
    ranks: Whole
    batch: Whole | None = None
    """Samples per rank and step, as its loaders were read."""
    batches_per_step: Whole | None = None


@dataclass(frozen=True)
class Skipped:
    """A rung that was not measured, or measured and found unusable, and why."""

    rung: PlainName
    why: Sentence


@dataclass(frozen=True)
class StagePasses:
    """When a rank's stages of a pipeline worked, in some steps of one block."""

    rank: Count
    round: Whole
    rung: PlainName
    passes: tuple[PlainName, ...]
    """Of each step in their order: stage, what (``F``, ``B``, or its halves ``I`` and ``W``) and microbatch, e.g.
    ``0F3``; at last ``rest``, for what the step does outside of them."""
    seconds: tuple[Number, ...]
    """Of each, step after step, less what it waited for other stages."""
    layers: tuple[Whole, ...] = ()
    """That each of its stages holds, in the order of their numbers; empty where a stage is no list of layers."""
