"""A window as a line of the record, and what alerts say: in words, with as many digits as mean something. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stash.core.formatting import join_names
from stash.core.ledger_rows import BACKWARD, FORWARD, INPUT, LOOP, OPTIMIZER
from stash.core.records.profile import LedgerPlace
from stash.core.units import format_seconds
from stash.measure.protocol.stamped import StepStage
from stash.monitor.accounting import OWN_STAGES, find_stragglers
from stash.monitor.change_test import Slice, StallChange
from stash.monitor.machine_state import most_telling
from stash.monitor.records import MachineState, Window

_MAX_RANKS, _SLOWEST = 64, 8
_MOST_LINES = 2
ROWS_OF = {
    "compute": (FORWARD, BACKWARD, OPTIMIZER),
    "contention": (FORWARD, BACKWARD, OPTIMIZER),
    "input": (INPUT,),
    "other": (LOOP,),
}
"""A stall's rows in a ledger."""
DOES = {
    StepStage.BETWEEN: "between steps",
    StepStage.INPUT: "wait for input",
    StepStage.TRANSFER: "copy to the device",
    StepStage.FORWARD: "in the forward pass",
    StepStage.BACKWARD: "in the backward pass",
    StepStage.EXCHANGE: "wait for the exchange",
    StepStage.COLLECTIVE: "wait in a collective",
    StepStage.OPTIMIZER: "in the optimizer",
    StepStage.EPOCH_START: "start an epoch",
    StepStage.EVALUATION: "evaluate",
    StepStage.CHECKPOINT: "save a checkpoint",
    StepStage.COLLECTOR: "collect garbage",
    StepStage.COMPILATION: "compile again",
}
"""What ranks do in a stage."""
_DIGITS = 6


def window_of(
    part: Slice,
    device: str | None,
    nodes: Mapping[int, int] | None = None,
    machines: Sequence[MachineState] = (),
) -> Window:
    """The line of a window; ``nodes``: each rank's, ``machines``: what each did of late."""
    found = part.account
    seconds = found.step_seconds * (part.last_step - part.first_step + 1)
    copied = device == "cuda" and any(stages["transfer"] > 0 for stages in found.ranks.values())
    stalls = {name: digits(value) for name, value in found.seconds.items()}
    late = tuple(
        each.model_copy(
            update={"seconds": digits(each.seconds), "node": (nodes or {}).get(each.rank)}
        )
        for each in find_stragglers(found)[:_SLOWEST]
    )
    ranks = list(found.ranks)
    if len(ranks) > _MAX_RANKS:
        own = {rank: sum(found.ranks[rank][stage] for stage in OWN_STAGES) for rank in ranks}
        ranks = sorted(ranks, key=lambda rank: -own[rank])[:_SLOWEST]
    return Window(
        began=round(part.ended - seconds, 3),
        seconds=round(seconds, 3),
        first_step=part.first_step,
        last_step=part.last_step,
        steps=found.steps,
        step_seconds=digits(found.step_seconds),
        stalls=stalls if copied else {**stalls, "transfer": None},
        set_by=found.set_by,
        ranks={
            rank: {
                stage: float(f"{seconds:.4g}")
                for stage, seconds in found.ranks[rank].items()
                if seconds
            }
            for rank in sorted(ranks)
        },
        stragglers=late,
        machines=most_telling(machines, {each.node for each in late}),
        delay=digits(max(found.delays.values(), default=0.0)),
        ambiguous=found.ambiguous,
        saved_step=part.saved_step,
    )


def describe_stages(stages: Mapping[int, StepStage]) -> str:
    """``"rank 3: wait for input; ranks 0, 1 and 2: wait for the exchange"``."""
    by_stage: dict[StepStage, list[int]] = {}
    for rank, stage in sorted(stages.items()):
        by_stage.setdefault(stage, []).append(rank)
    parts = sorted(by_stage.items(), key=lambda each: len(each[1]))
    return "; ".join(
        f"rank{'s' if len(ranks) > 1 else ''} {join_names([str(rank) for rank in ranks])}: {DOES[stage]}"
        for stage, ranks in parts
    )


def name_owner(stall: str, rank: int | None, stage: str | None) -> str:
    if stall == "exchange":
        return "the exchange"
    name = stage if stage not in (None, "between") else stall
    return f"rank {rank}'s {name}" if rank is not None else f"{name} of all ranks"


def advise(change: StallChange, why: str = "") -> str:
    """What to do next; ``why``: what of its machine, or of any if all are late, may be the cause, if anything is."""
    if change.stall == "exchange":
        return "nobody is late, so it is a link: `stash probe` measures those of a machine"
    if change.rank is None and why:
        return f"it may be that {why}"
    if change.rank is None:
        return (
            "look at the disk"
            if change.stall == "input"
            else "`stash profile` splits what is slower"
        )
    others = (
        "its disk, cores and loader"
        if change.stall == "input"
        else "clocks, other programs, other batches"
    )
    return f"look at that machine: {why or others}"


def unseen_text(others: int, every: int, seconds: float | None) -> str:
    """Which collectives were issued where no stamp is."""
    took = "" if seconds is None else f", {format_seconds(seconds)} each by the flight recorder"
    return f"{others} of the {every} collectives of a step were issued by C++{took}: their time is in the stages around"


def lines_text(rank: int, places: Sequence[LedgerPlace]) -> str:
    """At which lines of the script a rank is for the longest; ``places`` have seconds of a step."""
    longest = sorted(places, key=lambda place: -place.seconds)[:_MOST_LINES]
    parts = [
        f"{format_seconds(each.seconds)} at {each.file}:{each.line} `{each.text}`"
        + (f" (called at {each.caller})" if each.caller else "")
        for each in longest
    ]
    return f"a step of rank {rank} takes {join_names(parts)}"


def digits(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
