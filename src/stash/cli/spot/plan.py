"""``stash spot plan``: the cheapest fleet that reaches a loss in time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from stash.base.errors import UserError
from stash.cli.options import flag, option, positive
from stash.cli.spot.dangers import (
    CHECKPOINT_HELP,
    INTERRUPTIONS_HELP,
    LIVES_HELP,
    NOTICE_HELP,
    SHOCKS_HELP,
    TRACE_HELP,
    DangerWords,
    danger_of,
)
from stash.cli.spot.words import JSON_HELP, MODEL_HELP, model_of, told

if TYPE_CHECKING:
    from stash.base.spot.fleets import FleetPool

_PANEL = "Revocations"
POOL_HELP = "What may be rented, what it does alone and costs, and the loss curve (docs/how-to/spot.md)."


def plan(
    pool: Annotated[Path, option("FILE", POOL_HELP)],
    deadline: Annotated[str, option("TIME", 'When the loss has to be reached, like "6h" or "2400s".')],
    loss: Annotated[float, option("LOSS", "What training has to reach.")],
    which: Annotated[str, option("NAME", MODEL_HELP, "--model")] = "queue",
    quota: Annotated[list[str] | None, option("TYPE=N", "Machines of a type at most; repeatable.")] = None,
    vcpus: Annotated[float | None, option("N", "vCPUs of all machines at most.")] = None,
    confidence: Annotated[float | None, option("P", "How probable it has to be that it is in time.")] = None,
    budget: Annotated[float | None, option("DOLLARS", "What all of it may cost.")] = None,
    interruptions: Annotated[list[str] | None, option("RATE", INTERRUPTIONS_HELP, panel=_PANEL)] = None,
    trace: Annotated[list[str] | None, option("FILE", TRACE_HELP, panel=_PANEL)] = None,
    lifetimes: Annotated[list[str] | None, option("FILE", LIVES_HELP, panel=_PANEL)] = None,
    shocks: Annotated[str | None, option("RATE", SHOCKS_HELP, panel=_PANEL)] = None,
    checkpoint: Annotated[str | None, option("TIME", CHECKPOINT_HELP, panel=_PANEL)] = None,
    notice: Annotated[str | None, option("TIME", NOTICE_HELP, panel=_PANEL)] = None,
    output: Annotated[Path | None, option("FILE", "Where the plan goes.", "--output", "-o")] = None,
    json: Annotated[bool, flag("--json", JSON_HELP)] = False,
) -> None:
    """Find the cheapest fleet that reaches a loss by a deadline, and say why others lost.

    stash spot plan --pool pool.yaml --deadline 2400s --loss 0.8 --model paper
    """
    from stash.base.records.base import now
    from stash.base.version import __version__
    from stash.base.words.units import parse_seconds
    from stash.cli.output import output_file, printed, write_output
    from stash.derive.spot.provision import provision
    from stash.derive.spot.weighing import LONGEST, FleetWish
    from stash.keep.fleets import read_pool
    from stash.show.spot.planned import document, render, view

    if confidence is not None and not 0.5 <= confidence < 1:
        raise UserError(f"--confidence {confidence:g}: it must be from 0.5 to below 1, like 0.9")
    offers = _limited(read_pool(pool), quota or [], vcpus)
    seconds = positive("--deadline", parse_seconds(deadline), "more than 0", finite=True)
    if seconds > LONGEST:
        raise UserError(f"--deadline {deadline}: it must be below 30 years")
    wish = FleetWish(
        offers, model_of(which), positive("--loss", loss, finite=True), seconds, confidence, _budget(budget)
    )
    target = None if output is None else output_file(output, "job", ".plan.json")
    found = provision(wish, __version__, now())
    danger = danger_of(
        found, DangerWords(interruptions or (), trace or (), lifetimes or (), shocks, checkpoint, notice)
    )
    if danger is not None:
        from stash.derive.spot.risk import reckoned

        found = reckoned(found, danger)
    if target is not None:
        write_output(target, found.model_dump_json(indent=1) + "\n")
    printed(document(found) if json else view(found, pool.name), render)
    if target is not None:
        told(f"Saved {target}.", json)


def _budget(dollars: float | None) -> float | None:
    return None if dollars is None else positive("--budget", dollars, finite=True)


def _limited(pool: FleetPool, quotas: list[str], vcpus: float | None) -> FleetPool:
    """The pool with these quotas; raises UserError for a type that it does not have."""
    from stash.base.words.quantities import listed
    from stash.base.words.spelling import nearest

    asked: dict[str, int] = {}
    for text in quotas:
        name, _, count = text.partition("=")
        if not (count.isascii() and count.isdigit() and len(count) < 6):
            raise UserError(f"--quota {text!r} cannot be read; write it like g4dn.4xlarge=5")
        asked[name.strip()] = int(count)
    known = [kind.name for kind in pool.types]
    for name in asked:
        if name not in known:
            alike = nearest(name, known, 1)
            hint = f"did you mean {alike[0]}?" if alike else f"it has {listed(known)}"
            raise UserError(f"--quota {name}: the pool has no such type; {hint}")
    types = tuple(kind.model_copy(update={"quota": asked.get(kind.name, kind.quota)}) for kind in pool.types)
    most = pool.most_vcpus if vcpus is None else positive("--vcpus", vcpus, finite=True)
    return pool.model_copy(update={"types": types, "most_vcpus": most})
