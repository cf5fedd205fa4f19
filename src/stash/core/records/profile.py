"""The saved artefact of one measurement of a training job, as records.

A ``Profile`` holds what was measured and what it was measured on, nothing derived from it.
"""

from __future__ import annotations

from stash.core import front
from stash.core.ledger_rows import OTHER
from stash.core.measured import (
    Block,
    Collective,
    Launch,
    Memory,
    Rank,
    Rate,
    Skipped,
    StagePasses,
    WorkerTimes,
)
from stash.core.records.base import (
    SCHEMA,
    CommandWords,
    Count,
    Number,
    PlainName,
    Record,
    Sentence,
    Whole,
)
from stash.core.records.circumstances import CellCost, EnergyUse, GpuState, OtherProgram
from stash.core.records.host import Host


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
    array_bytes_per_batch: Number | None = None
    """Of NumPy's arrays: a worker pickles them, while tensors go over in shared memory."""
    batch_spread: Number | None = None
    """Of the bytes of its batches, the standard deviation as a part of the mean."""
    samples_at: PlainName | None = None
    """Where the script prepares a sample, ``train.py:25``; ``None`` where a library does."""
    draw_seconds: Number | None = None
    """That its sampler takes for a batch's indices, in the training process."""
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


# How the ranks of a job share one model: axes of their mesh, groups, and the stages of a pipeline.


class MeshAxis(Record):
    """One way in which ranks share the work: an axis of their device mesh."""

    name: PlainName
    """As the job calls it, e.g. ``dp``, ``tp``, ``pp``."""
    ranks: Whole
    across_nodes: bool | None = None
    """Whether its groups reach over several nodes."""


class PipelineSchedule(Record):
    """In which order the ranks of a pipeline work on microbatches."""

    name: PlainName
    """Its class in torch.distributed.pipelining, e.g. ``Schedule1F1B``."""
    stages: Whole
    ranks: Whole
    """Of one pipeline; fewer than stages where each has several."""
    microbatches: Whole
    orders: tuple[Sentence, ...] = ()
    """What each rank does, in order: stage, what (``F`` forward, ``B`` backward, ``I`` and ``W`` its two halves),
    microbatch. Empty where it is not known, or too long."""


class GroupUse(Record):
    """What rank 0 hands to one group of ranks in a step, by one kind of collective."""

    name: PlainName
    """The axis of the mesh, ``pipeline``, ``world``, or ``group`` of one that has no name."""
    kind: PlainName
    """``all_gather_into_tensor``, ``send`` …"""
    ranks: Whole
    across_nodes: bool
    calls: Number
    bytes: Number


class EmbeddingTable(Record):
    """What rank 0 looks up in one table in a step."""

    rows: Whole
    """That this rank holds."""
    dimension: Whole
    lookups: Whole
    distinct: Whole
    """Different rows among them."""
    hottest: Number
    """Of the lookups, the share of the row that is looked up most."""
    sparse: bool
    """Whether its gradient is."""
    gradient_bytes: Whole
    """A dense gradient's are the table's; a sparse one's a row and its number for every lookup."""
    forward_seconds: Number | None = None
    """On the host's clock; None on an accelerator."""


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
    unused_gradients: Whole | None = None
    """Numbers of whose gradients most were computed and then cleared without an update; ``None`` if there are none."""
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


# Every second of one rank from its process's start until blocks begin, as it was typed, each in one row: what the
# training thread was doing. ``timed_seconds`` are those of the steps that were timed after warming up, which stand for
# all later ones.


class LedgerRow(Record):
    """What the training thread did, by one name."""

    row: PlainName
    """One of ``core.ledger_rows.ROWS``: the process's ``start-up`` until its first step has ended; an ``epoch start``
    from asking a loader for an iterator until its first batch; an ``epoch end`` from its last batch until the next
    iterator, without evaluation and checkpoints; waiting for ``input`` later on; from the batch to the
    end of the ``forward`` pass and its loss; ``backward``, its exchange included; from there to the end of the
    ``optimizer``'s step; the script's own ``loop`` beside these; ``evaluation``, which no step uses; a
    ``checkpoint``; Python's garbage ``collector``; a ``collective`` that the script calls by itself; waiting for
    Python's ``interpreter``, which another thread has; ``other``: Stash's own preparations."""
    seconds: Number
    """Since the process was started."""
    timed_seconds: Number = 0.0
    """Of these, in the steps that were timed."""
    each: tuple[Number, ...] = ()
    """Of a row that comes now and then, the seconds of each of its first occurrences."""
    at_steps: tuple[Count, ...] = ()
    """After how many optimizer steps each of these began."""
    times: Count = 0
    """How many occurrences there were."""


class LedgerPlace(Record):
    """A line of the script, or of what it calls, at which the training thread was seen."""

    row: PlainName
    file: PlainName
    """Below the working folder, if it is there."""
    line: Count
    text: Sentence
    """The line itself, without secrets."""
    inside: PlainName = ""
    """The function that it was waiting for, as far as Python knows; empty where that is the line itself."""
    caller: PlainName = ""
    """Where the training loop called what leads there, ``train.py:43``; empty where the line is the loop's own."""
    prepares: bool = False
    """Whether it works on a batch between the loader and the model."""
    is_frozen: bool = False
    """Whether it calls a model none of whose parameters trains."""
    seconds: Number
    """In the timed steps, and for an epoch's start in all."""
    each: Number | None = None
    """Of what comes now and then, seconds of one occurrence."""


_MISSED = 0.23
"""Of what Stash's own work in a step takes by its own clocks, what they miss, and what PyTorch takes to call it. The loop
of eight jobs without code of its own seemed to take 0.14 to 0.35 of it (``python -m bench.truth.computing``)."""


class RankLedger(Record):
    """One rank's."""

    rank: Count
    seconds: Number
    """From the process's start until the last timed step; the rows' sum."""
    steps: Count
    """Optimizer steps meanwhile."""
    timed_steps: Count
    """Of these, the last, that were timed after warming up."""
    timed_seconds: Number
    """That they took, with all that came between them."""
    epoch_steps: Count | None = None
    """Optimizer steps of an epoch, by the loader's length; ``None`` where it has none."""
    rows: tuple[LedgerRow, ...]
    places: tuple[LedgerPlace, ...] = ()
    unplaced: Sentence = ""
    """Why no places were seen; empty where they were."""

    def seconds_of(self, name: str) -> float:
        """Of a row, in all."""
        return sum(row.seconds for row in self.rows if row.row == name)

    def timed_seconds_of(self, name: str) -> float:
        """Of a row, in each timed step."""
        return sum(row.timed_seconds for row in self.rows if row.row == name) / self.timed_steps

    def times_in_steps(self, name: str) -> int:
        """How often a row came in the timed steps."""
        first = self.steps - self.timed_steps
        return sum(at >= first for row in self.rows if row.row == name for at in row.at_steps)


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

    @property
    def is_on_cpu(self) -> bool:
        """Whether no rank trains on a device beside the host."""
        return all(rank.device == "cpu" for rank in self.ranks)

    @property
    def missed_seconds(self) -> float:
        """Stash's own work in one of the first steps that its clocks miss; 0 beside devices, which go on meanwhile."""
        seen = (each.timed_seconds_of(OTHER) for each in self.ledgers if each.timed_steps)
        return _MISSED * max(seen, default=0.0) if self.is_on_cpu else 0.0

    def __repr__(self) -> str:
        """The verdict and the table of stalls; ``model_dump()`` has everything."""
        return front.text_of(self)

    __str__ = __repr__
