"""How the ranks of a job share one model, as records: axes of their mesh, groups, and the stages of a pipeline."""

from __future__ import annotations

from stash.core.records.base import Count, Number, PlainName, Record, Sentence, Whole


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


class StagePasses(Record):
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
