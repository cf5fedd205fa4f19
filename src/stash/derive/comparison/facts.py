"""Facts in which profiles differ: those that make them different jobs, and those that may explain a difference.

A fact is a label and what each side says, as text. Compares what profiles say of themselves, and no times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from stash.base.records import Host, Profile, Record, Workload
from stash.base.words.quantities import listed

UNSAID = "unknown"
_COMMIT = 12
"""Characters of a commit."""


class DifferingFact(Record):
    """One fact in which the sides differ."""

    name: str
    before: str
    after: str


def told(profile: Profile) -> dict[str, str]:
    """Every fact that a profile says of its job, its machines and its software, by the names used here."""
    return {**_essentials(profile), **_circumstances(profile)}


def incomparable(before: Sequence[Profile], after: Sequence[Profile]) -> tuple[DifferingFact, ...]:
    """Facts in which the sides are different jobs, so that a difference of their times says nothing."""
    return _differing(_essentials, before, after)


def changed(before: Sequence[Profile], after: Sequence[Profile]) -> tuple[DifferingFact, ...]:
    """Facts that differ between runs of one job: the likely causes of a difference."""
    return _differing(_circumstances, before, after)


def _differing(
    facts_of: Callable[[Profile], Mapping[str, str]], before: Sequence[Profile], after: Sequence[Profile]
) -> tuple[DifferingFact, ...]:
    first, second = ([facts_of(profile) for profile in side] for side in (before, after))
    names = dict.fromkeys(name for facts in (*first, *second) for name in facts)
    found = (DifferingFact(name=name, before=_said(first, name), after=_said(second, name)) for name in names)
    return tuple(fact for fact in found if fact.before != fact.after)


def _said(side: Sequence[Mapping[str, str]], name: str) -> str:
    """What the runs of a side say; all that they say, if they do not agree."""
    return " or ".join(dict.fromkeys(facts.get(name, UNSAID) for facts in side))


def _essentials(profile: Profile) -> dict[str, str]:
    workload = profile.workload
    return {
        "workload": workload.name,
        "batch per device": _text(workload.batch),
        "precision": _text(workload.precision),
        "ranks": str(profile.world_size),
        "rungs": ", ".join(name for name in profile.settings.rungs if name != "cluster"),  # of several nodes
    }


def _circumstances(profile: Profile) -> dict[str, str]:
    return dict((*_of_job(profile), *_of_machines(profile), *_of_software(profile)))


def _of_job(profile: Profile) -> Iterator[tuple[str, str]]:
    workload = profile.workload
    yield "arguments", " ".join(workload.command[1:])
    yield "commit", _commit(workload)
    yield "parameters", _text(workload.parameters)
    yield "gradient buckets", _text(len(workload.bucket_bytes) or None)
    yield "communication hook", _text(workload.exchange_hook)
    for number, loader in enumerate(workload.loaders, 1):
        which = f" of loader {number}" if len(workload.loaders) > 1 else ""
        yield f"workers{which}", _text(loader.workers)
        yield f"prefetch factor{which}", _text(loader.prefetch_factor)
        yield f"samples in the data set{which}", _text(loader.samples)
        yield f"batches per step{which}", str(loader.batches_per_step)
    yield "launches", "one" if not profile.settings.isolated else "one for each rung"


def _of_machines(profile: Profile) -> Iterator[tuple[str, str]]:
    yield "nodes", str(profile.nodes)
    for name, of in _MACHINE.items():
        yield name, listed(list(dict.fromkeys(of(host) for host in profile.hosts)) or [UNSAID])


def _of_software(profile: Profile) -> Iterator[tuple[str, str]]:
    yield "Stash", profile.stash_version
    yield from sorted(profile.software.items())


def _gpus(host: Host) -> str:
    names = [gpu.name for gpu in host.gpus]
    return ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names)) or "none"


_MACHINE: Mapping[str, Callable[[Host], str]] = {
    "host": lambda host: host.hostname,
    "CPU": lambda host: _text(host.cpu),
    "cores": lambda host: _text(host.cores),
    "GPUs": _gpus,
    "kernel": lambda host: _text(host.kernel),
}


def _commit(workload: Workload) -> str:
    """Of the script's repository; with uncommitted changes, two of the same commit may still differ."""
    if workload.git_commit is None:
        return UNSAID
    return workload.git_commit[:_COMMIT] + (" with changes" if workload.git_dirty else "")


def _text(value: object) -> str:
    return UNSAID if value is None else str(value)
