"""Two sides of profiles: what differs and whether that is shown, facts that differ, the paper's network stall.

A difference counts as shown only if its whole interval lies on one side of zero, and "no difference shown" never
means that there is none. Steps of unlike size (another batch, more ranks) are compared by the time that the whole job
takes for a sample, and steps of which only one reads its files, up to the rung that both have.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from statistics import fmean
from typing import NamedTuple, TypeVar

from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown
from stash.analysis.step_times import rungs_run, step_matrix
from stash.analysis.uncertainty import launch_error
from stash.core.errors import UserError
from stash.core.formatting import join_names
from stash.core.intervals import NORMAL, Interval, pool_runs, subtract_runs
from stash.core.ladder import NOTHING_READ, rung
from stash.core.levels import level
from stash.core.records.base import Record
from stash.core.records.profile import Profile
from stash.core.trace_records import Trace

# Times

SLOWER = "slower"
FASTER = "faster"
NOT_SHOWN = "no difference shown"
UNKNOWN = "unknown"
STEP = "step"
RATE = "samples/s"
Runs = Sequence[Breakdown] | Sequence[Trace]
"""One side."""
Run = TypeVar("Run", Profile, Trace)


class Difference(Record):
    """One line: what each side says and what lies between, in seconds per step or sample (the rate: samples/s)."""

    name: str
    before: Interval
    after: Interval
    change: Interval

    @property
    def verdict(self) -> str:
        """One of the four words above."""
        if self.change.low is None or self.change.high is None:
            return UNKNOWN
        if self.change.low <= 0.0 <= self.change.high:
            return NOT_SHOWN
        return SLOWER if (self.change.value > 0) is (self.name != RATE) else FASTER


class RunComparison(Record):
    """Two sides compared: the lines that both have, the step among them, and the stalls that only one has."""

    lines: tuple[Difference, ...]
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    """Stalls of both sides that are not compared, since that of one contains what the other has apart."""
    per_sample: bool = False
    """Whether times are those that the whole job takes for a sample, not those of a step."""

    def line(self, name: str) -> Difference | None:
        """The line called ``name``, if both sides have it."""
        return next((line for line in self.lines if line.name == name), None)

    @property
    def step(self) -> Difference:
        found = self.line(STEP)
        assert found is not None, "every breakdown has a step"
        return found


def compare(
    before: Runs, after: Runs, alike: bool = True, per_sample: bool = False
) -> RunComparison:
    """The lines in ladder order, then the step, then the rate where it is known on both sides.

    ``alike``: whether the sides are of one job, set up in one way, see ``set_up_alike``; ``per_sample``: whether
    their steps differ in size, see ``comparable_sides``.
    """
    runs = (*before, *after)
    has = [
        [name for name in part_times(side[0]) if all(name in part_times(run) for run in side)]
        for side in (before, after)
    ]
    common = [name for name in has[0] if name in has[1]]
    # What a stall holds that was not measured apart from it must be the same in all runs.
    unlike = [name for name in common if len({_unmeasured_parts(run, name) for run in runs}) > 1]
    names = [*(name for name in common if name not in unlike), STEP]
    if all(isinstance(run, Breakdown) and run.samples_per_second for run in runs):
        names.append(RATE)
    return RunComparison(
        lines=tuple(
            Difference(
                name=name,
                before=estimate_figure(name, before, per_sample),
                after=estimate_figure(name, after, per_sample),
                change=changed_by(name, before, after, alike=alike, per_sample=per_sample),
            )
            for name in names
        ),
        only_before=tuple(name for name in has[0] if name not in common),
        only_after=tuple(name for name in has[1] if name not in common),
        unlike=tuple(unlike),
        per_sample=per_sample,
    )


def part_times(run: Breakdown | Trace) -> dict[str, Interval]:
    """The stalls of a profile's step, or the parts of a traced one, in their order."""
    return {part.name: part.time for part in (run.traced if isinstance(run, Trace) else run.stalls)}


def _unmeasured_parts(run: Breakdown | Trace, stall: str) -> frozenset[str]:
    """Stalls that ``stall`` holds since they were not measured apart from it."""
    skipped = run.skipped if isinstance(run, Breakdown) else ()
    return frozenset(
        missing.name for missing in skipped if missing.possible and missing.contained_in == stall
    )


class _Figure(NamedTuple):
    """A stall, the step or the rate of one run, of a step or of a sample."""

    whole: Interval
    noise: Interval
    """What the rounds of the run tell by themselves."""
    launch: float
    """Half-width of what another launch would measure otherwise."""
    common: float
    """… and of what all runs are off by together."""


def _figures(name: str, runs: Runs, per_sample: bool) -> list[_Figure]:
    return [
        _traced_figure(name, run) if isinstance(run, Trace) else _figure(name, run, per_sample)
        for run in runs
    ]


def _traced_figure(name: str, run: Trace) -> _Figure:
    """A trace is of one launch, and its steps tell nothing of another one."""
    noise = part_times(run).get(name, run.step)
    launch = launch_error(run.step_seconds)
    return _Figure(noise.add_error(launch), noise, launch, 0.0)


def _figure(name: str, run: Breakdown, per_sample: bool) -> _Figure:
    stall = run.stall(name)
    samples = run.samples_per_step or math.nan
    assert stall is not None or name in (STEP, RATE), f"{run.source} has no {name} stall"
    assert samples > 0 or not (per_sample or name == RATE), f"{run.source} has no samples"
    whole = run.step if stall is None else stall.time
    if name == RATE:  # from the step's interval, whose ends change places
        ends = {}
        if whole.low is not None and whole.high is not None and whole.low > 0:
            ends = {"low": samples / whole.high, "high": samples / whole.low}
        whole = Interval(value=samples / whole.value, **ends)
    launch = launch_error(whole.value if name == RATE else run.step.value)
    noise = whole.remove_error(launch)
    if stall is not None:
        value = Interval(value=whole.value)
        noise = value if stall.parts.noise is None else value.symmetric(stall.parts.noise)
    share = 1 / samples if per_sample and name != RATE else 1.0
    common = 0.0 if stall is None else stall.parts.common
    return _Figure(whole.scale(share), noise.scale(share), launch * share, common * share)


def _mean_figure(figures: Sequence[_Figure]) -> tuple[Interval, float]:
    """The mean over the runs of a side with what another launch would measure, and the error common to them."""
    launch = fmean(figure.launch for figure in figures)
    mean = pool_runs([figure.noise for figure in figures], launch / NORMAL)
    return mean, fmean(figure.common for figure in figures)


def estimate_figure(name: str, runs: Runs, per_sample: bool = False) -> Interval:
    """A stall, the step or the rate of one side: of one run what that says of itself, of several their mean."""
    figures = _figures(name, runs, per_sample)
    if len(figures) == 1:
        return figures[0].whole
    mean, common = _mean_figure(figures)
    return mean.add_error(common)


def changed_by(
    name: str,
    before: Runs,
    after: Runs,
    factor: float = 1.0,
    alike: bool = True,
    per_sample: bool = False,
) -> Interval:
    """What ``after`` has more than ``factor`` times ``before``.

    What the method adds to a stall it adds on both sides, where these are ``alike`` and were estimated in one way:
    only the difference of its errors is left in a change. Otherwise neither error tells anything of the other.
    """
    (first, first_error), (second, second_error) = (
        _mean_figure(_figures(name, side, per_sample)) for side in (before, after)
    )
    ways = {(r.by_waits, r.seen is None) for r in (*before, *after) if isinstance(r, Breakdown)}
    errors = factor * first_error, second_error
    error = abs(errors[1] - errors[0]) if alike and len(ways) < 2 else math.hypot(*errors)
    return subtract_runs(first.scale(factor), second).add_error(error)


# Facts

NOT_RECORDED = "unknown"
CONDITIONS = ("batch per device", "precision", "ranks")
"""Facts that say how one job was run; the rungs of the ladder follow from them."""


class DifferingFact(Record):
    """One fact in which the sides differ."""

    name: str
    before: str
    after: str

    @property
    def text(self) -> str:
        return f"{self.name} {self.before} → {self.after}"


def recorded_facts(run: Profile | Trace) -> dict[str, str]:
    """Every fact that is known of a run's job, its machines and its software, by the names used here."""
    if isinstance(run, Profile):
        return {**_identity(run), **_conditions(run), **_circumstances(run)}
    return {
        "ranks": str(run.world_size),
        "nodes": _text(run.nodes),
        "backend": run.backend or NOT_RECORDED,
        "device": run.device,
        "recorded by": run.tool,
    }


def incomparable(before: Sequence[Profile], after: Sequence[Profile]) -> tuple[DifferingFact, ...]:
    """Facts in which the sides are different jobs, so that a difference of their times says nothing."""
    return _differing(_identity, before, after)


def unlike_conditions(
    before: Sequence[Profile], after: Sequence[Profile]
) -> tuple[DifferingFact, ...]:
    """Facts in which one job was run otherwise: batch, precision, ranks and rungs."""
    return _differing(_conditions, before, after)


def find_changed_facts(
    before: Sequence[Profile], after: Sequence[Profile]
) -> tuple[DifferingFact, ...]:
    """Facts that differ between runs of one job: the likely causes of a difference."""
    return (*unlike_conditions(before, after), *_differing(_circumstances, before, after))


def find_differing_facts(
    before: Sequence[Trace], after: Sequence[Trace]
) -> tuple[DifferingFact, ...]:
    """All that differ between traces."""
    return _differing(recorded_facts, before, after)


class Sides(NamedTuple):
    """Two sides made comparable: the arguments of ``compare``."""

    before: list[Breakdown]
    after: list[Breakdown]
    alike: bool
    per_sample: bool


def comparable_sides(
    before: Mapping[str, Profile], after: Mapping[str, Profile], anyway: bool = False
) -> Sides:
    """The breakdowns of two sides of profiles, by their names, and how they are compared; raises UserError.

    ``anyway``: steps of unlike size are compared as they are where nobody counted their samples.
    """
    runs = list(before.values()), list(after.values())
    shortened = up_to_common_rung(*runs)
    first, second = (
        [attribute(profile, name) for name, profile in zip(side, profiles, strict=True)]
        for side, profiles in zip((before, after), shortened, strict=True)
    )
    # what decides how many samples a step has
    sizes = {
        (p.workload.batch, p.world_size, *(each.batches_per_step for each in p.workload.loaders))
        for side in runs
        for p in side
    }
    unlike_sizes = len(sizes) > 1
    if unlike_sizes and any(run.samples_per_step is None for run in (*first, *second)):
        if not anyway:
            facts = [fact.text for fact in unlike_conditions(*runs)]
            raise UserError(
                f"the steps differ in size ({join_names(facts) or 'batches per step'}), so they are compared per "
                "sample, and a profile does not say how many samples a step has; profile again with a loader that "
                "Stash sees, or compare the steps with --force",
                code="different_jobs",
            )
        unlike_sizes = False
    return Sides(first, second, set_up_alike(*runs), unlike_sizes)


def set_up_alike(before: Sequence[Profile], after: Sequence[Profile]) -> bool:
    """Whether the sides are one job with the same loaders and exchange, run and measured in the same way."""
    return not any(_differing(facts, before, after) for facts in (_identity, _conditions, _set_up))


def up_to_common_rung(
    before: Sequence[Profile], after: Sequence[Profile]
) -> tuple[list[Profile], list[Profile]]:
    """The sides without rungs that read data where a run of theirs lacks them although its job reads data so.

    A step that has to fetch its files is longer than one whose files could not be evicted, without being slower. Of
    a job that reads no files nothing is left out: there, to fetch them is what it saves.
    """
    runs = (*before, *after)
    shared = set.intersection(*(set(rungs_run(profile)) for profile in runs))
    unread = {
        item.rung
        for profile in runs
        for item in profile.skipped
        if rung(item.rung).reads_data and profile.workload.loaders and item.why != NOTHING_READ
    }
    excess = unread - shared
    if not excess:
        return list(before), list(after)
    first, second = ([_drop_rungs(profile, excess) for profile in side] for side in (before, after))
    return first, second


def _drop_rungs(profile: Profile, names: Set[str]) -> Profile:
    blocks = tuple(block for block in profile.blocks if block.rung not in names)
    asked = tuple(name for name in profile.settings.rungs if name not in names)
    settings = profile.settings.model_copy(update={"rungs": asked})
    return profile.model_copy(update={"blocks": blocks, "settings": settings})


def _differing(
    facts_of: Callable[[Run], Mapping[str, str]], before: Sequence[Run], after: Sequence[Run]
) -> tuple[DifferingFact, ...]:
    """Facts of two sides of runs that are not the same; all that a side's runs say, if they do not agree."""
    sides = [[facts_of(run) for run in side] for side in (before, after)]
    found = []
    for name in dict.fromkeys(name for side in sides for facts in side for name in facts):
        first, second = (
            " or ".join(dict.fromkeys(facts.get(name, NOT_RECORDED) for facts in side))
            for side in sides
        )
        if first != second:
            found.append(DifferingFact(name=name, before=first, after=second))
    return tuple(found)


def _identity(profile: Profile) -> dict[str, str]:
    return {"workload": profile.workload.name}


def _conditions(profile: Profile) -> dict[str, str]:
    workload = profile.workload
    return {
        "batch per device": _text(workload.batch),
        "precision": _text(workload.precision),
        "ranks": str(profile.world_size),
        "rungs": ", ".join(
            name for name in rungs_run(profile) if name != "cluster"
        ),  # of several nodes
    }


def _circumstances(profile: Profile) -> dict[str, str]:
    workload = profile.workload
    facts = {
        "arguments": " ".join(workload.command[1:]),
        # with uncommitted changes, two of the same commit may still differ
        "commit": NOT_RECORDED,
        **_set_up(profile),
    }
    if workload.git_commit is not None:
        facts["commit"] = workload.git_commit[:12] + (" with changes" if workload.git_dirty else "")
    facts["nodes"] = str(profile.nodes)
    machines: dict[str, list[str]] = {"host": [], "CPU": [], "cores": [], "GPUs": [], "kernel": []}
    for host in profile.hosts:
        gpus = Counter(gpu.name for gpu in host.gpus)
        kinds = ", ".join(f"{count} × {name}" for name, count in gpus.items()) or "none"
        described = (host.hostname, _text(host.cpu), _text(host.cores), kinds, _text(host.kernel))
        for values, value in zip(machines.values(), described, strict=True):
            values.append(value)
    facts |= {
        name: join_names(list(dict.fromkeys(values)) or [NOT_RECORDED])
        for name, values in machines.items()
    }
    return {**facts, "Stash": profile.stash_version, **dict(sorted(profile.software.items()))}


def _set_up(profile: Profile) -> dict[str, str]:
    """What steps do besides the model itself, and how they were measured: on it depends by how much Stash errs."""
    workload = profile.workload
    facts = {
        "parameters": _text(workload.parameters),
        "gradient buckets": _text(len(workload.bucket_bytes) or None),
        "communication hook": "none"
        if workload.exchange_hook == ""
        else _text(workload.exchange_hook),
    }
    for number, loader in enumerate(workload.loaders, 1):
        which = f" of loader {number}" if len(workload.loaders) > 1 else ""
        facts[f"workers{which}"] = _text(loader.workers)
        facts[f"prefetch factor{which}"] = _text(loader.prefetch_factor)
        facts[f"samples in the data set{which}"] = _text(loader.samples)
        facts[f"batches per step{which}"] = str(loader.batches_per_step)
    facts["launches"] = "one for each rung" if profile.settings.isolated else "one"
    return facts


def _text(value: object) -> str:
    return NOT_RECORDED if value is None else str(value)


# Scaling


def network_stall(one: Sequence[Profile], other: Sequence[Profile]) -> Interval | None:
    """(T − T1) / T1 as a fraction, of steps on replayed batches with all exchange; its interval on a log scale.

    ``None`` unless as many ranks are on one node on one side and on several on the other, or where a profile has no
    such steps; without ends where those of a step are unknown.
    """
    one, other = (one, other) if _is_on_one_node(one) else (other, one)
    ranks = {run.world_size for run in (*one, *other)}
    if len(ranks) > 1 or not _is_on_one_node(one) or any(run.nodes == 1 for run in other):
        return None
    alone = _replayed_step(one)
    apart = _replayed_step(other)
    if alone is None or apart is None:
        return None
    ratio = apart.value / alone.value
    ends = (alone.low, alone.high, apart.low, apart.high)
    if any(end is None or end <= 0 for end in ends):
        return Interval(value=ratio - 1)
    lowest, highest, fastest, slowest = (math.log(end) for end in ends if end is not None)
    below = math.hypot(math.log(apart.value) - fastest, highest - math.log(alone.value))
    above = math.hypot(slowest - math.log(apart.value), math.log(alone.value) - lowest)
    return Interval(
        value=ratio - 1, low=ratio * math.exp(-below) - 1, high=ratio * math.exp(above) - 1
    )


def _is_on_one_node(runs: Sequence[Profile]) -> bool:
    return all(run.nodes == 1 for run in runs)


def _replayed_step(runs: Sequence[Profile]) -> Interval | None:
    """The step on replayed batches, with all exchange."""
    found = []
    for run in runs:
        times = step_matrix(run)
        if times.top_replay != ("cluster" if run.nodes > 1 else "node"):
            return None
        found.append(level(times.matrix, times.rungs.index(times.top_replay)))
    return pool_runs(found, launch_error(sum(each.value for each in found) / len(found)) / NORMAL)
