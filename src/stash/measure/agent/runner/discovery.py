"""What the job is, which rungs it has, and whether scopes can be switched inside it.

Runs between warm-up and the first block, on every rank; the leader decides and publishes what was found. What steps
do is ``survey``'s to learn, how blocks run not known here.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from stash.core.ladder import Situation, rung, split_reachable
from stash.core.measured import Launch, Rank, Skipped
from stash.measure.agent.data.batches import why_immovable
from stash.measure.agent.runner import survey, tiny_values
from stash.measure.agent.runner.parallelism import group_facts, parallel_facts
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.agent.runner.tiny_values import TinyValues
from stash.measure.agent.wraps import replicas
from stash.measure.agent.wraps.groups import (
    Membership,
    default_group,
    describe_group,
    form_groups,
    parts_on,
)
from stash.measure.agent.wraps.scope import scope, storage_of
from stash.measure.agent.wraps.sharding import (
    FirstBatch,
    count_replicas,
    describe_first_batch,
    sharded,
)
from stash.measure.agent.wraps.waits import ledger
from stash.measure.linux.processes import shared_cores
from stash.measure.protocol.messages import (
    HostsSeen,
    JobFacts,
    LadderChosen,
    PhaseBegun,
    SoftwareSeen,
)
from stash.measure.protocol.wire import register_record

_ONLY_THE_SUM = (
    "interconnect is what exchanging inside each node takes by itself, and the whole exchange takes other routes: "
    "only the sum of interconnect and network is certain"
)
_NOT_INTERCEPTED = "collectives that Stash cannot intercept are issued in every step"
_ONE_MODEL = (
    "some of them in the forward pass: ranks compute one model together (tensor, sequence or expert parallelism), so "
    "one by itself would do another job"
)
_HANDED_OUT = (
    "one rank sends the others what every step needs ({names}), so these collectives stay on, and no rank can train "
    "by itself"
)
_UNSEEN_INPUT = 0.05
"""Share of a step before its first forward pass that is worth a sentence."""


@register_record
@dataclass(frozen=True)
class Introduction:
    """What every rank reports of itself; the first of each node also of its host."""

    rank: Rank
    host: dict[str, Any] | None
    groups: tuple[Membership, ...]
    """Those across nodes that the job's steps exchange over, named by the first rank of each."""
    handed_on: tuple[str, ...]
    """Collectives by which it hands data to single other ranks."""
    beyond_node: tuple[str, ...]
    """Collectives across nodes that cannot be confined to one."""
    batch: FirstBatch
    step_seconds: float
    """Of the last step of the warm-up."""
    epoch: int | None = None
    """Batches until one of its loaders ends, if that is known."""
    handed_out: tuple[str, ...] = ()
    """Collectives by which one rank hands the others what only it has."""


@register_record
@dataclass(frozen=True)
class Ladder:
    """What the leader decides: the rungs, and the parts of process groups that the rung ``node`` needs."""

    rungs: tuple[str, ...]
    parts: tuple[Membership, ...]
    inseparable: str | None
    """Why a rank by itself does not do what it does in the whole job, if it does not."""
    whole_only: bool
    """Whether no rung but those of the whole job can be measured: ranks wait in turn, or hold one model together."""
    looks: int
    """Steps in which gradients are looked at."""
    always_real: tuple[str, ...] = ()
    """Collectives that are never switched off, since a rank has no batch, or does not know to go on, without them."""


def choose_rungs(rank: OwnRank, step_seconds: float) -> Ladder:
    """Report to the leader what each rank is; agree on the rungs."""
    place = rank.place
    ladder = rank.agree(
        _describe_rank(rank, step_seconds), lambda reports: _choose_ladder(rank, reports)
    )
    scope.always_real = frozenset(ladder.always_real)
    confined = any(
        not rung(name).exchanges or (name == "node" and place.nodes > 1) for name in ladder.rungs
    )
    switches = rank.known.switches and not ladder.whole_only and (confined or place.world_size == 1)
    rank.learn(inseparable=ladder.inseparable, switches=switches)
    if place.nodes > 1:
        with scope.bypass():
            scope.parts = form_groups(ladder.parts, place.rank)
    return ladder


def _describe_rank(rank: OwnRank, step_seconds: float) -> Introduction:
    place, orders = rank.place, rank.orders
    usable = len(os.sched_getaffinity(0))
    cores = usable if orders.pin and usable != os.cpu_count() else None
    used = [*scope.used.values(), *replicas.list_groups(), default_group()]
    groups = {
        describe_group(group)
        for group in (used if place.nodes > 1 else ())
        if group.group_name not in scope.of_several_jobs
        and group.rank() == 0
        and scope.reaches(group)
    }
    parameters = [parameter for _, parameter in survey.trained_parameters(rank.optimizer)]
    scope.weights = frozenset(filter(None, map(storage_of, parameters)))
    lengths = [feed.length for feed in rank.feeds if feed.length is not None]
    own = Rank(place.rank, place.node, place.local_rank, str(rank.device), cores, shared_cores())
    return Introduction(
        rank=own,
        host=orders.host if place.local_rank == 0 else None,
        groups=tuple(groups),
        handed_on=tuple(sorted(scope.handed_on)),
        beyond_node=tuple(scope.list_beyond_node()),
        batch=describe_first_batch(rank.feeds, parameters),
        step_seconds=step_seconds,
        epoch=min(lengths, default=None),
        handed_out=tuple(scope.hands_out_data()),
    )


def _choose_ladder(rank: OwnRank, reports: list[Introduction]) -> Ladder:
    """The leader's part: which rungs can differ on this job, and why not the others."""
    place, orders = rank.place, rank.orders
    nodes = {report.rank.rank: report.rank.node for report in reports}
    shares = place.world_size > 1  # else what other ranks do is no matter of this one
    situation = Situation(
        world_size=place.world_size,
        nodes=place.nodes,
        ranks_per_node=max(Counter(nodes.values()).values()),
        accelerator=rank.device.type != "cpu",
        loader=bool(rank.feeds),
        immovable=_why_immovable(rank),
    )
    count = count_replicas([report.batch for report in reports])
    divided = any(report.batch.together for report in reports)
    inseparable = _why_inseparable(count, place.world_size, divided)
    pipelined = _why_pipelined(reports) if shares else None
    whole_only = pipelined or (inseparable if divided else None)
    handed_out = _merge_names(report.handed_out for report in reports if shares)
    reachable, skipped = split_reachable(situation, orders.rungs)
    whole = _whole_job_rungs(reachable, place.nodes)
    if whole_only:
        skipped |= {name: whole_only for name in reachable if name not in whole}
    elif place.nodes > 1 and "node" in reachable and (why := _obstacle_to_node_scope(reports)):
        skipped |= {"node": why}
    if handed_out:
        why = _HANDED_OUT.format(names=", ".join(handed_out))
        alone = [name for name in reachable if rung(name).active == "leader"]
        skipped |= {name: why for name in alone if name not in skipped}
    rungs = tuple(name for name in reachable if name not in skipped)
    _write_survey(rank, reports, rungs, skipped)
    if place.world_size > 1:
        rank.publish(JobFacts(replicas=count))
    groups = {group for report in reports for group in report.groups}
    parts = parts_on(nodes, groups) if "node" in rungs else []
    if parts and "cluster" in rungs:
        rank.note(_ONLY_THE_SUM)
    _note_unlike_epochs(rank, reports)
    slowest = max(report.step_seconds for report in reports)
    return Ladder(
        rungs,
        tuple(parts),
        whole_only or inseparable,
        whole_only is not None,
        survey.affordable_looks(slowest, orders.budget),
        tuple(handed_out),
    )


def _merge_names(of_ranks: Iterable[tuple[str, ...]]) -> list[str]:
    return sorted(set(chain.from_iterable(of_ranks)))


def _note_unlike_epochs(rank: OwnRank, reports: list[Introduction]) -> None:
    epochs = {report.epoch: report.rank.rank for report in reports if report.epoch is not None}
    if len(epochs) > 1:
        short, long = min(epochs), max(epochs)
        rank.note(
            f"an epoch has {short} batches on rank {epochs[short]} and {long} on rank {epochs[long]}: steps in which "
            "all train are measured, and not what is left where some are through"
        )


def _why_pipelined(reports: list[Introduction]) -> str | None:
    """Why waiting for each other cannot be separated from what the ranks' exchange takes, if it cannot."""
    names = _merge_names(report.handed_on for report in reports)
    if not names:
        return None
    return (
        f"ranks hand data to each other ({', '.join(names)}), so they wait for each other's turn as well as for the "
        "exchange, and no rung tells the two apart"
    )


def _why_inseparable(count: int | None, world: int, divided: bool) -> str | None:
    """``divided``: parameters are, by DTensor, among ranks that are no replicas of each other by a wrapper's word."""
    if not divided and count in (None, world):
        return None
    counts = "" if count == world else f" (replicas: {count}, ranks: {world})"
    return f"the model is divided among ranks{counts}, so one by itself would do another job"


def _whole_job_rungs(rungs: tuple[str, ...], nodes: int) -> tuple[str, ...]:
    """Those under which everything is exchanged as the job does."""
    top = "cluster" if nodes > 1 else "node"
    return tuple(name for name in rungs if name == top or rung(name).reads_data)


def _obstacle_to_node_scope(reports: list[Introduction]) -> str | None:
    names = _merge_names(report.beyond_node for report in reports)
    if names:
        return f"the script calls {', '.join(names)}, which cannot be confined to a node"
    return replicas.obstacle_to_node_scope()


def _why_immovable(rank: OwnRank) -> str | None:
    """Why the leader's batches cannot be replayed from its device; tried with one of each loader."""
    if rank.device.type == "cpu":
        return None
    reasons = (why_immovable(feed.ring.batches[0], rank.device) for feed in rank.feeds)
    return next((why for why in reasons if why is not None), None)


def _write_survey(
    rank: OwnRank, reports: list[Introduction], rungs: tuple[str, ...], skipped: dict[str, str]
) -> None:
    hosts = {r.rank.node: r.host for r in reports if r.host is not None}
    nodes = {report.rank.rank: report.rank.node for report in reports}
    parallel = parallel_facts(nodes) if rank.place.world_size > 1 else {}
    rank.publish(
        *(report.rank for report in reports),
        HostsSeen([hosts[node] for node in sorted(hosts)]),
        JobFacts(**survey.workload_facts(rank.optimizer), **parallel),
        standing_facts(rank),
        SoftwareSeen(survey.list_versions()),
        LadderChosen(rungs, skipped),
    )


def standing_facts(rank: OwnRank) -> JobFacts:
    """What is better known the longer the job runs."""
    handed, tiny = scope.per_step(scope.sent), rank.known.tiny_values
    return JobFacts(
        **survey.loader_facts(rank.feeds),
        collectives_per_step=scope.per_step(scope.issued),
        collective_bytes_per_step=handed,
        exchanged_bytes=sum(handed.values()) + replicas.reduced_bytes() or None,
        groups=group_facts(ledger.steps, ledger.totals, ledger.names),
        vanished_values=None if tiny is None else tiny.count_lost() or None,
    )


def _flush_tiny_values(rank: OwnRank, tensors: Sequence[Any]) -> None:
    """Flush values too small for float32 from now on, and follow those of ``tensors``, unless the script flushes."""
    if rank.device.type == "cpu":
        found = TinyValues(tensors)
        rank.learn(tiny_values=None if tiny_values.flush() else found)


def launch_facts(rank: OwnRank) -> Launch:
    """What a step of the job was, for comparison with other launches of it."""
    facts = survey.loader_facts(rank.feeds)
    batches = sum(feed.per_step for feed in rank.feeds) or None
    return Launch(rank.orders.launch, rank.place.world_size, facts.get("batch"), batches)


def try_switching(rank: OwnRank, steps: int) -> Generator[None, None, str | None]:
    """A few steps of every rank with no exchange: the value says why switching is unsafe here, or is None.

    All ranks take part, so a collective that is not wrapped still completes, and is noticed by the process
    groups' sequence numbers before any rank is left to step alone. In ``steps`` of them gradients are looked at.
    """
    # it gathers from nobody: there is nothing to switch
    alone = bool(sharded) and rank.place.world_size == 1
    if not rank.known.switches or (sharded and not alone):
        return (yield from _look_at_whole_job(rank, steps))
    # from here on batches are replayed and gradients not always exchanged
    rank.learn(drifted=True, switches=not alone)
    if not alone:
        rank.publish(PhaseBegun("crowd"))
        rank.set_scope("self")
    for feed in rank.feeds:
        feed.begin("replay", 0)
    yield  # the first step may still finish what was under way
    before = scope.collectives_begun()
    operators = yield from survey.count_operators(rank)
    look = survey.ForwardLook(rank.device)
    look.begin()
    ready = [(yield from survey.time_gradients(rank))]
    _learn_from_forward(rank, look)
    for _ in range(steps - 1):
        ready.append((yield from survey.time_gradients(rank)))
    moved = any(before.get(name, n) != n for name, n in scope.collectives_begun().items())
    for feed in rank.feeds:
        feed.ring.judge()
    rank.publish(survey.combine_facts(rank, operators, survey.combine_gradients(ready)))

    def judge(reports: list[tuple[bool, bool]]) -> tuple[str | None, str | None]:
        inseparable = rank.known.inseparable
        if alone or not any(map(any, reports)):
            return None, inseparable
        in_forward = any(within for _, within in reports)
        return _NOT_INTERCEPTED, inseparable or (_ONE_MODEL if in_forward else None)

    verdict, inseparable = rank.agree((moved, look.exchanges), judge)
    rank.learn(inseparable=inseparable)
    if not alone:
        rank.set_scope("world")
    return verdict


def _look_at_whole_job(rank: OwnRank, steps: int) -> Generator[None, None, str | None]:
    """Of a job whose exchange cannot be switched off: what its operators do, exchange and all."""
    whole = (yield from survey.count_operators(rank)) if steps > 1 else survey.TOO_LONG
    rank.publish(survey.combine_facts(rank, whole, survey.EXCHANGING))
    rank.learn(drifted=True)  # from here on batches are replayed
    _flush_tiny_values(rank, ())
    if not rank.known.switches:
        return None
    names = " and ".join(sharded)
    rank.learn(inseparable=f"the parts that {names} gathers belong to every step of the whole job")
    return f"{names} shards the model: gathering its parts cannot be switched off"


def _learn_from_forward(rank: OwnRank, look: survey.ForwardLook) -> None:
    """A step with replayed batches was looked at: what it did before its forward pass, and which model that is of."""
    times, trained = look.end(), rank.known.phase
    if times is not None:
        _note_unseen_input(rank, *times, look.placed)
    whole_model = sum(parameter.numel() for parameter in look.parameters.values())
    _flush_tiny_values(rank, [*look.parameters.values(), *look.buffers.values()])
    if trained is not None and trained < whole_model:
        # first or only: it may train another part later
        rank.note(
            f"measured: a phase of training in which {trained:,} of {whole_model:,} parameters train"
        )


def follow_last_gradient(rank: OwnRank) -> Generator[None, None, None]:
    """One step, as it was typed; from the next on windows of exchange begin where its last gradient is ready."""
    rows = (yield from survey.time_gradients(rank)).rows
    if rows and rows[-1]["ready_seconds"] is not None:
        known = dict(survey.trained_parameters(rank.optimizer))
        rank.stamps.follow([known[rows[-1]["name"]]])


def try_node(rank: OwnRank, rungs: tuple[str, ...]) -> Generator[None, None, tuple[str, ...]]:
    """Two steps under scope node: the value is the rungs, less ``node`` if something still went beyond the nodes."""
    rank.set_scope("node")
    yield  # the first step may still finish what was under way, and makes connections
    before = scope.collectives_begun(scope.reaches)
    yield
    moved = scope.collectives_begun(scope.reaches) != before

    def judge(reports: list[bool]) -> tuple[str, ...]:
        if not any(reports):
            return rungs
        why = "collectives that Stash cannot intercept reach beyond the node in every step"
        rank.publish(Skipped("node", why))
        return tuple(name for name in rungs if name != "node")

    left = rank.agree(moved, judge)
    rank.set_scope("world")
    return left


def _note_unseen_input(rank: OwnRank, seconds: float, step: float, placed: bool | None) -> None:
    """Batches come from memory in this step, so what still runs before its forward pass makes them elsewhere."""
    rank.publish(JobFacts(before_forward=round(seconds / step, 4), inputs_placed=placed))
    is_told = rank.orders.first_round > 0  # there is an earlier launch's note
    if not (rank.feeds or is_told or seconds < _UNSEEN_INPUT * step):
        rank.note(
            f"your code between steps takes {seconds * 1e3:.3g} ms before the next forward pass, and Stash sees no "
            "data loader; if it makes or changes batches, that time counts as compute: `stash.loader(batches)` shows it"
        )


def drop_switching(rank: OwnRank, rungs: tuple[str, ...], why: str) -> tuple[str, ...]:
    """The rungs left when neither the scope can be switched nor the job started in other sizes."""
    rank.learn(switches=False)
    left = _whole_job_rungs(rungs, rank.place.nodes)
    for name in rungs:
        if name not in left:
            other_size = rank.known.inseparable or "this job cannot be started in other sizes"
            rank.publish(Skipped(name, f"{why}, and {other_size}"))
    return left
