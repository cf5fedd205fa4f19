"""Breakdown in, advice out: what may be claimed, one sentence, what to do next; and advice on a probe's findings.

Every claim follows from a number in the breakdown or the profile; where it is missing or too uncertain, the sentence
says so instead. The rules, with their thresholds, are those of ``docs/method.md``; remedies are in ``remedies``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from stash.advice.case import LARGER_BATCH, Case, Remedy, why_stall
from stash.advice.claims import MINOR_SHARE, Claims, Kind, may_claim
from stash.advice.remedies import REMEDIES
from stash.advice.run_words import SUBJECTS, row_sentence, written_place
from stash.advice.stopping import FIRST_ROUNDS, budget_to_decide, find_undecidable, precision_asked
from stash.analysis.breakdown import SMALL_SHARE, Breakdown, Stall, Surfacing
from stash.analysis.findings.machine import Finding
from stash.analysis.run_account import RunAccount, RunRow
from stash.analysis.stability import MIN_ROUNDS, other_job
from stash.analysis.step_figures import StepFigures, make_figures
from stash.core.formatting import join_names, plus_minus
from stash.core.ladder import DATA_STALLS, EXCHANGE_STALLS, NOT_ASKED
from stash.core.records.base import Record
from stash.core.records.profile import Profile
from stash.core.units import format_seconds

# What to do next

MAX_STEPS = 3
_WHICH = "Which is the largest is not known yet."
_WORTH_SAYING = 0.005
"""Of the step: a gain smaller than this is no gain, and not promised."""
_LONG_BESIDE_STEPS = 20.0
"""Steps, from whose length what comes now and then is worth a sentence, however often that is."""
_BUSY = 0.1
"""Of the step: what other work takes, if more, may be why first steps differ from later ones."""


def list_actions(case: Case, claims: Claims, budget: float | None) -> tuple[str, ...]:
    """Give at most three sentences, the first of which is the one to take; ``budget`` is that of ``Advice``."""
    if claims.kind == "run" and len(claims.rows) == 1:
        return tuple(
            _remedy_sentence(case, remedy)
            for remedy in _rank_remedies(case, claims.rows[0].name)[:MAX_STEPS]
        )
    if claims.kind == "run":
        return _first_of_rows(case, claims.rows)[:MAX_STEPS]
    rows = _other_rows(case, claims)
    sure = [row for row in rows if row.least >= SMALL_SHARE * _epoch_seconds(case)]
    others = _first_of_rows(case, sure)
    unsure = _first_of_rows(
        case, [*(row for row in rows if row not in sure), *_rows_of_unknown_times(case)]
    )
    if claims.kind in ("compute", "stall", "tie"):
        name = "compute" if claims.kind == "compute" else claims.certain[0].name
        steps = list(
            _first_of_each(case, claims) if claims.kind == "tie" else _remedies_against(case, name)
        )
        for remedy in _first_of_rows(case, rows[:1]):
            steps.insert(0 if others and claims.kind == "compute" else 1, remedy)
        steps = steps[:MAX_STEPS]
        asked = precision_asked(case.profile)
        if budget is not None and asked is not None:
            steps[MAX_STEPS - 1 :] = [
                f"Profile again with `--budget {budget:g}s` to reach the ±{asked:.1%} asked for."
            ]
        return tuple(steps)
    if claims.other_job and _lost_share(case.breakdown) > _BUSY:
        again = (
            f"Profile again once {_busiest(case.breakdown)} has ended: other work took "
            f"{_lost_share(case.breakdown):.0%} on top of every step, and not always as much."
        )
        return (*others, again, *unsure)[:MAX_STEPS]
    if claims.other_job:
        report = (
            "Profile the command that starts your training as it is, `stash profile -- COMMAND`; if that says the "
            "same, please report it with the output of `stash show --json`."
        )
        return (*_known_for_certain(case), *others, report, *unsure)[:MAX_STEPS]
    steps = list(_known_for_certain(case)) if _may_compute_lead(case, claims) else []
    steps += (
        [_more_time(case, claims, budget)]
        if claims.open or claims.noisy or claims.kind == "estimate"
        else []
    )
    hidden: dict[str, list[str]] = {}  # in compute, by the reason
    for missing in claims.hidden_stalls:
        why = missing.why.removesuffix(f"; contained in {missing.contained_in}")
        hidden.setdefault(why, []).append(missing.name)
    for why, names in hidden.items():
        how = f"Tell {join_names(names)} from compute: {why}."
        steps.append(
            f"Profile again without --rungs, which left out {join_names(names)}."
            if why == NOT_ASKED
            else how
        )
    return (
        *others,
        *steps,
        *_first_of_each(case, claims),
        *unsure,
        *_if_open(case, claims, steps),
    )[:MAX_STEPS]


def _may_compute_lead(case: Case, claims: Claims) -> bool:
    """Whether nothing is known to take more than computing, or exchanging, does."""
    data = case.seconds(*DATA_STALLS)
    return (
        claims.noisy
        or bool(_mostly_compute(case, claims))
        or 2 * data < case.breakdown.step_seconds
    )


def _known_for_certain(case: Case) -> tuple[str, ...]:
    """Against what makes steps long for certain, however little is known of the rest.

    Of contention that batches are of unlike lengths, which is why steps vary; of exchange how it is set up.
    """
    known = [
        replace(each, saves=None)
        for name in ("compute", "contention", *EXCHANGE_STALLS)
        if name == "compute" or case.breakdown.stall(name) is not None
        for each in REMEDIES[name](case)
        if each.first
    ]
    return tuple(dict.fromkeys(_remedy_sentence(case, each) for each in known))


def _more_time(case: Case, claims: Claims, budget: float | None) -> str:
    """How to learn what is open: by measuring longer where that helps."""
    if budget is not None:
        gain = (
            f"about {FIRST_ROUNDS} rounds" if claims.kind == "estimate" else "that should decide it"
        )
        return f"Profile again with `--budget {budget:g}s`: {gain}."
    stall = find_undecidable(case.breakdown, claims)
    if stall is not None and (stall.parts.correction or 0.0) > stall.parts.besides_noise / 2:
        return (
            f"Profile again once {_busiest(case.breakdown)} has ended: what other work costs is subtracted, but that "
            f"leaves {stall.name} uncertain by at least ±{format_seconds(stall.parts.besides_noise)}."
        )
    if stall is not None:
        return (
            "Profile again with a larger batch, if memory allows: measuring longer cannot narrow "
            f"{stall.name} below ±{format_seconds(stall.parts.besides_noise)}, which is less of a longer step."
        )
    return "Stop other work on this machine and profile again: as busy as it is, even an hour would not decide it."


def _busiest(breakdown: Breakdown) -> str:
    lost = breakdown.disturbed
    return (
        lost.programs[0].name
        if lost is not None and lost.programs
        else "other work on this machine"
    )


def _lost_share(breakdown: Breakdown) -> float:
    """Of a step, what other work on the machine took on top of it; 0 where that is unknown."""
    return (
        0.0
        if breakdown.disturbed is None
        else breakdown.disturbed.time.value / breakdown.step_seconds
    )


def hidden_behind(breakdown: Breakdown, name: str) -> Surfacing | None:
    """The data stall that appears once the stall called ``name`` is gone."""
    return next((item for item in breakdown.surfacing if item.removed == name), None)


def _remedies_against(case: Case, name: str) -> tuple[str, ...]:
    """The most valuable remedies; where a hidden stall would eat their gain, also one against that."""
    hidden = hidden_behind(case.breakdown, name)
    if hidden is None:
        return tuple(
            _remedy_sentence(case, remedy) for remedy in _rank_remedies(case, name)[:MAX_STEPS]
        )
    others = Case(case.breakdown, case.profile, removed=name)
    behind = list(islice(REMEDIES[hidden.appears](others), 1))
    first = hidden.seconds > case.seconds(name) / 2
    if first and behind and behind[0].asks is not None:
        case = replace(case, done=behind[0].asks)  # what the others save once that is done
    steps = tuple(
        _remedy_sentence(case, remedy)
        for remedy in _rank_remedies(case, name)[: MAX_STEPS - len(behind)]
    )
    if first:
        return (
            *(f"First, against {hidden.appears}: {_lower(remedy.text)}." for remedy in behind),
            *steps,
        )
    return (
        *steps,
        *(f"Then, against {hidden.appears}: {_lower(remedy.text)}." for remedy in behind),
    )


def _first_of_each(case: Case, claims: Claims) -> tuple[str, ...]:
    """The most valuable remedy of each stall that is certain, each remedy once."""
    found: dict[str, str] = {}
    for stall in claims.certain:
        remedy = next(
            (each for each in _rank_remedies(case, stall.name) if each.text not in found), None
        )
        if remedy is not None:
            found[remedy.text] = f"Against {stall.name}: {_lower(_remedy_sentence(case, remedy))}"
    return tuple(found.values())[:MAX_STEPS]


def _if_open(case: Case, claims: Claims, sentences: Sequence[str]) -> tuple[str, ...]:
    """What to do about stalls that are not certain and would be large, the largest estimate first.

    Of steps that vary too much to tell, about data that they waited for half of the time as they were typed; of an
    estimate, about what is most of it. Without what is in ``sentences`` already.
    """
    found: list[str] = []
    large = [
        stall for stall in claims.open if stall.seconds >= MINOR_SHARE * case.breakdown.step_seconds
    ]
    if claims.noisy and _mostly_waits_as_typed(case.breakdown):
        large = [stall for stall in case.breakdown.stalls if stall.name == DATA_STALLS[0]]
    if claims.kind == "estimate":
        half = case.breakdown.step_seconds / 2
        large = [each for each in case.breakdown.stalls[1:] if each.seconds > half]
    for stall in sorted(large, key=lambda stall: -stall.seconds):
        place = (
            None if case.breakdown.run is None else case.breakdown.run.place_of_stall(stall.name)
        )
        where = "" if place is None else f", waited for at {place.where}"
        advised = (_remedy_sentence(case, each) for each in _rank_remedies(case, stall.name))
        new = next((text for text in advised if text not in sentences), None)
        if new is not None:
            found.append(f"If it is {stall.name}{where}: {_lower(new)}")
    return tuple(found)


def _mostly_waits_as_typed(breakdown: Breakdown) -> bool:
    """Whether half of a step as typed was waiting for the loader."""
    typed = breakdown.as_typed
    return typed is not None and 2 * typed.first.loading >= typed.first.step.value


def _first_of_rows(case: Case, rows: Iterable[RunRow]) -> tuple[str, ...]:
    """The most valuable remedy of each row between steps."""
    found = []
    for row in rows:
        found += [
            f"Against {row.name}: {_lower(_remedy_sentence(case, remedy))}"
            for remedy in _rank_remedies(case, row.name)[:1]
        ]
    return tuple(found)


def _rank_remedies(case: Case, name: str) -> list[Remedy]:
    """What is to be tried first, then by what they save; unknown gains keep their order.

    What is known to save nothing is not advised.
    """
    worth = _WORTH_SAYING * case.breakdown.step_seconds
    useful = [each for each in REMEDIES[name](case) if each.saves is None or each.saves >= worth]
    return sorted(useful, key=lambda remedy: (not remedy.first, -(remedy.saves or 0.0)))


def _remedy_sentence(case: Case, remedy: Remedy) -> str:
    saves = remedy.saves or 0.0
    cost = f" {_upper(remedy.cost)}." if remedy.cost else ""
    if remedy.knob:
        command = f"stash fix {remedy.knob}" if remedy.knob.startswith("--") else "stash fix"
        cost += f" `{command}` can try it."
    if saves < _WORTH_SAYING * case.breakdown.step_seconds:
        return f"{remedy.text}.{cost}"
    if remedy.of_run and case.breakdown.run is not None:
        share = saves / case.breakdown.run.step_seconds
        return f"{remedy.text}; saves about {format_seconds(saves)} a step ({share:.0%} of an epoch).{cost}"
    samples = case.breakdown.samples_per_step
    many = f" for every {samples:.0f} samples" if samples else " for as many samples"
    gain = make_figures(case.breakdown.stalls).part(
        saves, many if remedy.cost == LARGER_BATCH else " a step"
    )
    return f"{remedy.text}; saves about {gain}.{cost}"


def describe_row(case: Case, run: RunAccount, row: RunRow) -> str:
    """What a row between steps takes, where, and what to do about it that is no setting."""
    by_hand = [each for each in _rank_remedies(case, row.name) if not each.knob]
    advice = [_remedy_sentence(case, each) for each in by_hand[:1]]
    return " ".join((row_sentence(case, run, row), *advice))


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _upper(clause: str) -> str:
    return clause[:1].upper() + clause[1:]


# The sentence


class Advice(Record):
    """What to do about a breakdown: what dominates, a sentence with numbers, at most three steps."""

    kind: Kind
    stall: str | None
    """The dominating one, or compute; of several that tie the largest estimate; ``None`` where unknown."""
    stalls: tuple[str, ...]
    """All that may dominate, the largest estimate first: several if they tie."""
    open: tuple[Stall, ...]
    """Not known to exist, and not known to be small."""
    budget_seconds: float | None
    """The ``--budget`` that should decide what is open, or reach the precision asked for; ``None`` if none would."""
    text: str
    next_steps: tuple[str, ...] = ()


def verdict(breakdown: Breakdown, profile: Profile) -> Advice:
    """What a breakdown supports, and what to do next."""
    claims, case = may_claim(breakdown), Case(breakdown, profile)
    budget = budget_to_decide(breakdown, profile, claims)
    leading = {"stall": claims.certain[:1], "tie": claims.certain}.get(claims.kind, ())
    stalls = tuple(stall.name for stall in leading) or (
        ("compute",) if claims.kind == "compute" else ()
    )
    if claims.kind == "run":
        stalls, text = tuple(row.name for row in claims.rows), _run_text(case, claims)
    elif claims.kind == "compute":
        alone = not _other_rows(case, claims)
        text = _denormal_text(breakdown) or _compute_text(breakdown, claims, alone)
    elif claims.kind == "cannot tell":
        text = _undecided_text(case, claims)
    else:
        text = _stalls_text(case, claims) if leading else _estimate_text(case)
    if claims.kind == "compute" or _mostly_compute(case, claims):
        text += _line_of_computing(case)
    return Advice(
        kind=claims.kind,
        stall=stalls[0] if stalls else None,
        stalls=stalls,
        open=claims.open,
        budget_seconds=budget,
        text=" ".join((text, *_largest_row_sentence(case, claims))),
        next_steps=list_actions(case, claims, budget),
    )


def _line_of_computing(case: Case) -> str:
    """A sentence about the line of the script that takes most of computing; empty where none does."""
    run = case.breakdown.run
    place = None if run is None else run.place_of_computing
    return "" if place is None else f" Most of computing is at {written_place(place)}."


def _denormal_text(breakdown: Breakdown) -> str:
    """Of a job that mostly computes with denormal values, as it was typed; empty for any other."""
    typed = breakdown.as_typed
    if typed is None or not typed.is_mostly_denormal:
        return ""
    step, longer = format_seconds(typed.first.step.value), format_seconds(typed.longer_seconds)
    return (
        f"Compute takes most of a step of {step} as typed: {longer} of it are arithmetic on denormal values, which "
        f"Stash flushes to 0 to measure the rest ({format_seconds(typed.measured_seconds)} a step)."
    )


def _run_text(case: Case, claims: Claims) -> str:
    """Of what lies between steps and takes most of an epoch."""
    run = case.breakdown.run
    assert run is not None, "of which these are rows"
    text = " ".join(row_sentence(case, run, row) for row in claims.rows)
    return text if len(claims.rows) == 1 else f"{text} {_WHICH}"


def _largest_row_sentence(case: Case, claims: Claims) -> tuple[str, ...]:
    """Of an epoch that is more than steps: the largest row that the verdict does not name, if it matters."""
    run, others = case.breakdown.run, _other_rows(case, claims)
    if run is None or not others:
        return tuple(
            f"{SUBJECTS[row.name][0]} {SUBJECTS[row.name][1]} {row.why}."
            for row in _rows_of_unknown_times(case)
        )
    rival = claims.kind in ("stall", "tie") and others[0] in claims.rivals
    return (row_sentence(case, run, others[0]), *((_WHICH,) if rival else ()))


def _epoch_seconds(case: Case) -> float:
    """Of a step with its part of what lies between steps; 0 where that is unknown."""
    return 0.0 if case.breakdown.run is None else case.breakdown.run.step_seconds


def _rows_of_unknown_times(case: Case) -> list[RunRow]:
    """Rows that come now and then, long beside a step, of which nothing tells how often they come."""
    run, loader = case.breakdown.run, case.loader
    if run is None or (loader is not None and loader.workers and loader.persistent_workers):
        return []
    unknown = (row for row in run.rows if row.time is None and row.each is not None)
    return [
        row
        for row in unknown
        if row.each and row.each.value >= _LONG_BESIDE_STEPS * case.breakdown.step_seconds
    ]


def _other_rows(case: Case, claims: Claims) -> list[RunRow]:
    """Rows between steps that matter, and that the verdict does not name: the largest first."""
    run, named = case.breakdown.run, claims.rows if claims.kind == "run" else ()
    if run is None:
        return []
    others = [
        row
        for row in run.rows
        if row.is_between_steps and row not in named and (row.share or 0.0) >= SMALL_SHARE
    ]
    return sorted(others, key=lambda row: -row.seconds)


def _count_rounds(case: Case) -> str:
    """One or two, in words."""
    what = "set" if case.profile.settings.isolated else "round"
    launches = " of launches" if case.profile.settings.isolated else ""
    one = case.breakdown.repetitions == 1
    return f"one {what}{launches}" if one else f"two {what}s{launches}"


def _estimate_text(case: Case) -> str:
    were = "was" if case.breakdown.repetitions == 1 else "were"
    count = _upper(_count_rounds(case))
    text = f"{count} {were} measured: an estimate of each stall, and no verdict."
    waits = case.breakdown.waits
    wait, names = (
        (waits.cold, DATA_STALLS) if waits.cold is not None else (waits.warm, DATA_STALLS[:1])
    )
    if wait is None or case.breakdown.by_waits:
        return text
    difference = (
        f"{make_figures(case.breakdown.stalls).time(*names)} a step for {join_names(names)}"
    )
    return (
        f"{text} Rungs differ by {difference}; steps waited {format_seconds(wait)} for the loader."
    )


def _stalls_text(case: Case, claims: Claims) -> str:
    """Of the stall that dominates, or of several that tie; and of others that may be larger."""
    written, leading = make_figures(case.breakdown.stalls), claims.certain
    if claims.kind == "stall":
        (stall, *_), why, compute = (
            leading,
            why_stall(case, leading[0].name),
            _mostly_compute(case, claims),
        )
        text = f"The {stall.name} stall takes {written.quantity(stall.name)} of every {written.step} step"
        if compute:
            text = f"{compute} The largest stall is {stall.name}, {written.quantity(stall.name)}"
        place = (
            None if case.breakdown.run is None else case.breakdown.run.place_of_stall(stall.name)
        )
        text += f" ({written.share(stall.name)})" + (
            "" if place is None else f" at {written_place(place)}"
        )
        text += f": {why}." if why else "."
        hidden = hidden_behind(case.breakdown, stall.name)
        if hidden:
            visible = case.breakdown.stall(hidden.appears)
            further = " further" if visible is not None and visible.significant else ""
            text += f" Removing it leaves a{further} {hidden.appears} stall of "
            text += f"{format_seconds(hidden.seconds)}, hidden behind it now."
    else:
        names = join_names([stall.name for stall in leading])
        times = join_names(
            [f"{written.quantity(stall.name)} ({written.share(stall.name)})" for stall in leading]
        )
        compute = _mostly_compute(case, claims)
        whole = "" if compute else f" of every {written.step} step"
        text = f"{compute} The {names} stalls take {times}{whole}; which is the largest is not known yet.".lstrip()
        for stall in leading:
            why = why_stall(case, stall.name)
            text += f" {stall.name.capitalize()}: {why}." if why else ""
    typed = case.breakdown.as_typed
    if case.breakdown.is_other_job and typed is not None:
        text += f" {other_job(typed)}"
    elif case.breakdown.repetitions < MIN_ROUNDS and typed is not None:
        first = typed.first
        text += (
            f" That is of {_count_rounds(case)}; {first.steps} steps as typed waited {format_seconds(first.loading)} of "
            f"{format_seconds(first.step.value)} for the loader, too."
        )
    rivals = [stall for stall in claims.open if (stall.high or 0.0) > (leading[0].low or 0.0)]
    return (
        f"{text} Others are not known well enough: {_upper_ends(written, rivals)}."
        if rivals
        else text
    )


def _mostly_compute(case: Case, claims: Claims) -> str:
    """A sentence where compute is certainly half of the step at least, and nothing but compute; else empty."""
    breakdown, written = case.breakdown, make_figures(case.breakdown.stalls)
    compute, largest = breakdown.stall("compute"), max(stall.seconds for stall in breakdown.stalls)
    if (
        compute is None
        or compute.seconds < largest
        or _takes_all(breakdown)
        or claims.hidden_stalls
    ):
        return ""
    if (compute.low or 0.0) < breakdown.step_seconds / 2:
        return ""
    alone = None if breakdown.run is None else breakdown.run.row("compute")
    if (
        alone is not None and alone.seconds < breakdown.step_seconds / 2
    ):  # most of it is the script's own code
        return ""
    return f"Compute is most of every {written.step} step: {_compute_sentence(breakdown)} ({_compute_share(breakdown)})."


def _undecided_text(case: Case, claims: Claims) -> str:
    if claims.other_job and case.breakdown.as_typed is not None:
        return f"Cannot tell: what was measured is not the job as it runs. {other_job(case.breakdown.as_typed)}"
    written, parts = make_figures(case.breakdown.stalls), []
    if claims.noisy:
        arm = max(
            each
            for each in (case.breakdown.step.half_width, *_arms(case.breakdown))
            if each is not None
        )
        return (
            f"Cannot tell: steps vary too much. A step takes {written.step}, but its parts are only known to "
            f"±{format_seconds(arm)}."
        )
    if claims.rivals and not claims.open:
        names = list(dict.fromkeys(row.name for row in claims.rows))
        parts.append(f"Cannot tell yet what takes most of an epoch: {join_names(names)}.")
    compute = _mostly_compute(case, claims)
    if claims.open:
        what = (
            f"{compute} Which stall matters is not known yet"
            if compute
            else "Cannot tell yet what dominates a step of"
        )
        what += "" if compute else f" {written.step}"
        parts.append(f"{what}: {_upper_ends(written, claims.open)}.")
    parts += [
        f"Certain is {stall.name}: {written.quantity(stall.name)} ({written.share(stall.name)})."
        for stall in claims.certain[:1]
    ]
    if claims.hidden_stalls:
        names = [missing.name for missing in claims.hidden_stalls]
        share = "all" if _takes_all(case.breakdown) else written.share("compute")
        parts.append(
            f"Cannot tell what limits the devices: compute ({share} of the step) contains "
            f"{join_names(names)}, which {'was' if len(names) == 1 else 'were'} not measured."
        )
    return " ".join(parts)


def _compute_sentence(breakdown: Breakdown) -> str:
    """Forward, backward and optimizer alone, where a ledger tells them from the script's own code."""
    written, row = (
        make_figures(breakdown.stalls),
        None if breakdown.run is None else breakdown.run.row("compute"),
    )
    if row is None or row.time is None:
        return written.quantity("compute")
    spread = "" if row.time.low is None else f" {plus_minus(row.time, written.scale)}"
    return f"{written.scale.number(row.seconds)}{spread} {written.scale.unit}"


def _compute_share(breakdown: Breakdown) -> str:
    row = None if breakdown.run is None else breakdown.run.row("compute")
    return (
        make_figures(breakdown.stalls).share("compute")
        if row is None
        else f"{row.seconds / breakdown.step_seconds:.1%}"
    )


def _arms(breakdown: Breakdown) -> list[float]:
    return [stall.width for stall in breakdown.stalls if stall.name == "compute"]


def _takes_all(breakdown: Breakdown) -> bool:
    """Whether compute is longer than the step: other stalls are negative."""
    return breakdown.seconds("compute") > breakdown.step_seconds


def _upper_ends(written: StepFigures, stalls: Sequence[Stall]) -> str:
    """``"prep may take up to 34.1 ms (26%) and fetch up to 9.03 ms (7%)"``"""
    found: list[str] = []
    for stall in stalls:
        high = stall.high or 0.0  # an interval may reach beyond the step, which its stall cannot
        most = written.part(high) if high < written.step_seconds else "the whole step"
        found.append(f"{stall.name} {'' if found else 'may take '}up to {most}")
    return join_names(found)


def _compute_text(breakdown: Breakdown, claims: Claims, alone: bool) -> str:
    """``alone``: nothing between steps matters, either."""
    written = make_figures(breakdown.stalls)
    text = f"Compute takes {_compute_sentence(breakdown)} of every {written.step} step ({_compute_share(breakdown)})"
    if _takes_all(breakdown):
        text = f"Compute takes all of every {written.step} step"
    stalls = [stall for stall in breakdown.stalls if stall.name != "compute"]
    most = max((stall.high or 0.0 for stall in stalls), default=0.0) / breakdown.step_seconds
    below = f"below {max(SMALL_SHARE, math.ceil(100 * most) / 100):.0%} of the step"
    unknown = [missing.name for missing in claims.unknown if not missing.small]
    is_free = alone and not unknown and not claims.open
    found = [
        f"stalls are no obstacle here, each is {below}"
        if is_free
        else f"every measured stall is {below}"
    ]
    if not stalls:
        found = ["no stall was measured"] if unknown else []
    if breakdown.waits_for_host:
        found.insert(0, "the devices wait for the host to submit their kernels")
    shares = [
        missing.share_at_most
        for missing in claims.unknown
        if missing.small and missing.share_at_most
    ]
    if shares:
        found.append(f"what no loader prepares takes at most {max(shares):.1%}")
    return (
        text
        + (f": {join_names(found)}." if found else ".")
        + (f" Unknown: {join_names(unknown)}." if unknown else "")
    )


# Advice on a probe

ADVICE = {
    "lost-gpu": "Reset or return the machine with the GPU that does not answer before training on it.",
    "memory-errors": "Return the machine: memory of a GPU fails, and a training may fail with it, or go wrong.",
    "repair-due": "Reset the GPU whose memory waits for it, or return the machine.",
    "lost-nvlinks": "Return the machine: NVLinks that its other GPUs have are gone.",
    "held-clock": "Return the machine if the GPU is held down again: its power or cooling is not what the type has.",
    "busy-memory": "End the programs that use the machine's memory bandwidth, and probe again.",
    "busy-cores": "End the other programs on this machine, and probe again.",
    "quota-used-up": "Raise the container's CPU limit; until then a job gets no more than that.",
    "gpu-in-use": "Wait until nobody else uses the GPU, and probe again.",
    "far-numa": "Let the job use cores next to its GPUs: `stash fix` sets that, or numactl --cpunodebind.",
    "slow-part": "Return the machine, or probe the next one and keep the faster.",
    "cpu-limit": "Raise the container's CPU limit, or start no more loader workers than it allows.",
    "gpu-count": "Check that every GPU was passed to this machine or container (`nvidia-smi -L`).",
    "uneven-nodes": "Rent another machine in place of the slow node and probe again.",
    "slow-pairs": "Rent the size that has the whole mesh of GPUs, or return this machine and probe the next.",
    "uneven-pairs": "Choose GPUs without a slow pair among them (CUDA_VISIBLE_DEVICES), or rent the size that has "
    "the whole mesh.",
    "pcie-trained-down": "Return the machine or have the GPU reseated: its link does not run at full rate.",
    "shared-uplink": "Expect contention when batches are copied: keep them small (uint8) until they are on the GPU.",
    "one-flow": "Let NCCL open more connections: NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=4.",
    "no-rdma": "Rent the machines with RDMA switched on (EFA on AWS), or install its driver.",
    "disk-burst": "Measure fetch stalls for longer than the burst lasts, or provision the disk's throughput.",
    "slow-disk": "Provision more throughput for the volume, or copy the data to a local disk.",
    "steal": "Rent a dedicated or larger machine if steps are uneven.",
}
"""In the order of urgency."""


def next_steps(findings: Iterable[Finding]) -> tuple[str, ...]:
    """The most urgent advice on ``findings``, each kind once."""
    found = {finding.name for finding in findings}
    return tuple(text for name, text in ADVICE.items() if name in found)[:MAX_STEPS]
