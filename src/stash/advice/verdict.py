"""Breakdown in, advice out: what may be claimed, one sentence, what to do next; and advice on a probe's findings.

Every claim follows from a number in the breakdown or the profile; where it is missing or too uncertain, the sentence
says so instead. The rules, with their thresholds, are those of ``docs/method.md``; remedies are in ``remedies``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from stash.advice.case import LARGER_BATCH, Case, Remedy, why_stall
from stash.advice.claims import Claims, Kind, high_end, is_far_below_compute, may_claim
from stash.advice.remedies import REMEDIES
from stash.advice.run_words import SUBJECTS, row_sentence, written_place
from stash.advice.stopping import FIRST_ROUNDS, budget_to_decide, find_undecidable, precision_asked
from stash.analysis.breakdown import MINOR_SHARE, SMALL_SHARE, Breakdown, Stall, Surfacing
from stash.analysis.findings.machine import Finding
from stash.analysis.run_account import RunRow
from stash.analysis.stability import MIN_ROUNDS, other_job
from stash.analysis.step_figures import StepFigures, make_figures
from stash.core.formatting import join_names, plus_minus
from stash.core.grouping import group_by
from stash.core.ladder import DATA_STALLS, EXCHANGE_STALLS, NOT_ASKED
from stash.core.ledger_rows import COLLECTIVE
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
_FAR_MORE = 3.0
"""Times the largest stall, from which computing is the larger part of what can be saved."""
_BUSY = 0.1
"""Of the step: what other work takes, if more, may be why first steps differ from later ones."""


def list_actions(case: Case, claims: Claims, budget: float | None) -> tuple[str, ...]:
    """Give at most three sentences, the first of which is the one to take; ``budget`` is that of ``Advice``."""
    if claims.kind == "run" and len(claims.rows) == 1:
        return _advise_against(case, claims.rows[0].name)
    if claims.kind == "run":
        return _first_of_rows(case, claims.rows)[:MAX_STEPS]
    rows = _other_rows(case, claims)
    is_sure = {row.name: row.least >= SMALL_SHARE * case.epoch.step_seconds for row in rows}
    others = _first_of_rows(case, [row for row in rows if is_sure[row.name]])
    unsure = _first_of_rows(
        case, [*(r for r in rows if not is_sure[r.name]), *_rows_of_unknown_times(case)]
    )
    if claims.kind in ("compute", "stall", "tie"):
        name = "compute" if claims.kind == "compute" else claims.certain[0].name
        steps = list(
            _first_of_each(case, claims) if claims.kind == "tie" else _remedies_against(case, name)
        )
        if claims.kind == "stall" and _computes_far_more(case, claims):
            against = (_lower(step) for step in _advise_against(case, "compute", 1))
            steps[1:1] = (f"Against compute: {step}" for step in against)
        for remedy in _first_of_rows(case, rows[:1]):
            steps.insert(0 if others and claims.kind == "compute" else 1, remedy)
        asked = precision_asked(case.profile)
        if budget is not None and asked is not None:
            steps[MAX_STEPS - 1 :] = [
                f"Profile again with `--budget {budget:g}s` to reach the ±{asked:.1%} asked for."
            ]
        return tuple(steps[:MAX_STEPS])
    if claims.other_job:
        return (*_repeat_other_job(case, others), *unsure)[:MAX_STEPS]
    steps = []
    is_half_data = 2 * case.seconds(*DATA_STALLS) >= case.breakdown.step_seconds
    if claims.noisy or _mostly_compute(case, claims) or not is_half_data:
        steps += _known_for_certain(case)
    if claims.open or claims.noisy or claims.kind == "estimate":
        steps.append(_more_time(case, claims, budget))
    in_compute = group_by(
        claims.hidden_stalls, lambda stall: stall.why.removesuffix("; contained in compute")
    )
    for why, hidden in in_compute.items():
        names = join_names([missing.name for missing in hidden])
        left_out = f"Profile again without --rungs, which left out {names}."
        steps.append(left_out if why == NOT_ASKED else f"Tell {names} from compute: {why}.")
    certain = _first_of_each(case, claims)
    return (*others, *steps, *certain, *unsure, *_if_open(case, claims, steps))[:MAX_STEPS]


def _repeat_other_job(case: Case, others: Sequence[str]) -> tuple[str, ...]:
    """What to do where what was measured is not the job that was typed."""
    lost = case.breakdown.disturbed
    share = 0.0 if lost is None else lost.time.value / case.breakdown.step_seconds
    if share > _BUSY:
        return (
            *others,
            f"Profile again once {_busiest(case.breakdown)} has ended: other work took "
            f"{share:.0%} on top of every step, and not always as much.",
        )
    return (
        *_known_for_certain(case),
        *others,
        "Profile the command that starts your training as it is, `stash profile -- COMMAND`; if that says the "
        "same, please report it with the output of `stash show --json`.",
    )


def _known_for_certain(case: Case) -> tuple[str, ...]:
    """Against what makes steps long for certain, however little is known of the rest.

    Of contention that batches are of unlike lengths, which is why steps vary; of exchange how it is set up.
    """
    measured = {stall.name for stall in case.breakdown.stalls} | {"compute"}
    known = [
        _remedy_sentence(case, replace(remedy, saves=None))
        for name in ("compute", "contention", *EXCHANGE_STALLS)
        if name in measured
        for remedy in REMEDIES[name](case)
        if remedy.first
    ]
    return tuple(dict.fromkeys(known))


def _more_time(case: Case, claims: Claims, budget: float | None) -> str:
    """How to learn what is open: by measuring longer where that helps."""
    if budget is not None:
        gain = (
            f"about {FIRST_ROUNDS} rounds" if claims.kind == "estimate" else "that should decide it"
        )
        return f"Profile again with `--budget {budget:g}s`: {gain}."
    stall = find_undecidable(case.breakdown, claims)
    if stall is None:
        return "Stop other work on this machine and profile again: as busy as it is, even an hour would not decide it."
    least = f"±{format_seconds(stall.parts.besides_noise)}"
    if (stall.parts.correction or 0.0) > stall.parts.besides_noise / 2:
        return (
            f"Profile again once {_busiest(case.breakdown)} has ended: what other work costs is subtracted, but that "
            f"leaves {stall.name} uncertain by at least {least}."
        )
    return (
        "Profile again with a larger batch, if memory allows: measuring longer cannot narrow "
        f"{stall.name} below {least}, which is less of a longer step."
    )


def _busiest(breakdown: Breakdown) -> str:
    programs = breakdown.disturbed.programs if breakdown.disturbed is not None else ()
    return programs[0].name if programs else "other work on this machine"


def hidden_behind(breakdown: Breakdown, name: str) -> Surfacing | None:
    """The data stall that appears once the stall called ``name`` is gone."""
    return next((item for item in breakdown.surfacing if item.removed == name), None)


def _remedies_against(case: Case, name: str) -> tuple[str, ...]:
    """The most valuable remedies; where a hidden stall would eat their gain, also one against that."""
    hidden = hidden_behind(case.breakdown, name)
    if hidden is None:
        return _advise_against(case, name)
    others = Case(case.breakdown, case.profile, removed=name)
    behind = next(iter(REMEDIES[hidden.appears](others)), None)
    if behind is None:
        return _advise_against(case, name)
    also = f"against {hidden.appears}: {_lower(behind.text)}."
    if hidden.seconds <= case.seconds(name) / 2:
        return (*_advise_against(case, name, MAX_STEPS - 1), f"Then, {also}")
    if behind.asks is not None:
        case = replace(case, done=behind.asks)  # what the others save once that is done
    return (f"First, {also}", *_advise_against(case, name, MAX_STEPS - 1))


def _advise_against(case: Case, name: str, most: int = MAX_STEPS) -> tuple[str, ...]:
    return tuple(_remedy_sentence(case, remedy) for remedy in _rank_remedies(case, name)[:most])


def _first_of_each(case: Case, claims: Claims) -> tuple[str, ...]:
    """The most valuable remedy of each stall that is certain, each remedy once."""
    found: dict[str, str] = {}
    for stall in claims.certain:
        for remedy in _rank_remedies(case, stall.name):
            if remedy.text not in found:
                sentence = _lower(_remedy_sentence(case, remedy))
                found[remedy.text] = f"Against {stall.name}: {sentence}"
                break
    return tuple(found.values())[:MAX_STEPS]


def _if_open(case: Case, claims: Claims, sentences: Sequence[str]) -> Iterator[str]:
    """What to do about stalls that are not certain and would be large, the largest estimate first.

    Of steps that vary too much to tell, about data that they waited for half of the time as they were typed; of an
    estimate, about what is most of it. Without what is in ``sentences`` already.
    """
    stalls, step, typed = (
        case.breakdown.stalls,
        case.breakdown.step_seconds,
        case.breakdown.as_typed,
    )
    large = [stall for stall in claims.open if stall.seconds >= MINOR_SHARE * step]
    if claims.kind == "estimate":
        large = [stall for stall in stalls[1:] if stall.seconds > step / 2]
    elif claims.noisy and typed is not None and 2 * typed.first.loading >= typed.first.step.value:
        large = [stall for stall in stalls if stall.name == DATA_STALLS[0]]
    for stall in sorted(large, key=lambda stall: -stall.seconds):
        place = case.epoch.place_of_stall(stall.name)
        where = "" if place is None else f", waited for at {place.where}"
        advised = (_remedy_sentence(case, remedy) for remedy in _rank_remedies(case, stall.name))
        new = next((text for text in advised if text not in sentences), None)
        if new is not None:
            yield f"If it is {stall.name}{where}: {_lower(new)}"


def _first_of_rows(case: Case, rows: Iterable[RunRow]) -> tuple[str, ...]:
    """The most valuable remedy of each row between steps."""
    return tuple(
        f"Against {row.name}: {_lower(sentence)}"
        for row in rows
        for sentence in _advise_against(case, row.name, 1)
    )


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
    if remedy.of_run:
        gain = f"{format_seconds(saves)} a step ({saves / case.epoch.step_seconds:.0%} of an epoch)"
    else:
        samples = case.breakdown.samples_per_step
        many = f" for every {samples:.0f} samples" if samples else " for as many samples"
        of = many if remedy.cost == LARGER_BATCH else " a step"
        gain = make_figures(case.breakdown.stalls).part(saves, of)
    return f"{remedy.text}; saves about {gain}.{cost}"


def describe_row(case: Case, row: RunRow) -> str:
    """What a row between steps takes, where, and what to do about it that is no setting."""
    by_hand = (remedy for remedy in _rank_remedies(case, row.name) if not remedy.knob)
    advice = (_remedy_sentence(case, remedy) for remedy in islice(by_hand, 1))
    return " ".join((row_sentence(case, row), *advice))


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
    """All that may dominate, the largest estimate first: several if they tie, and what a stall is by another name:
    collectives of the script's own, waits for a server that are fetching; compute far above a small stall."""
    open: tuple[Stall, ...]
    """Not known to exist, and not known to be small."""
    budget_seconds: float | None
    """The ``--budget`` that should decide what is open, or reach the precision asked for; ``None`` if none would."""
    text: str
    next_steps: tuple[str, ...] = ()
    shown_steps: int = 1
    """So many of them are shown at once: more than one where the first is a try, or is against a part of several."""


def verdict(breakdown: Breakdown, profile: Profile) -> Advice:
    """What a breakdown supports, and what to do next."""
    claims, case = may_claim(breakdown), Case(breakdown, profile)
    budget = budget_to_decide(breakdown, profile, claims)
    stalls: tuple[str, ...] = ()
    if claims.kind == "run":
        stalls = tuple(row.name for row in claims.rows)
        text = " ".join(row_sentence(case, row) for row in claims.rows)
        text += "" if len(claims.rows) == 1 else f" {_WHICH}"
    elif claims.kind == "compute":
        stalls = ("compute",)
        text = _denormal_text(breakdown) or _compute_text(case, claims)
    elif claims.kind in ("stall", "tie"):
        stalls = tuple(stall.name for stall in claims.certain)
        text = _stalls_text(case, claims)
        if any(map(case.awaits_requests, stalls)):
            stalls = (*stalls, "fetch")
        if any(map(case.epoch.is_mostly_own_collectives, stalls)):
            stalls = (*stalls, COLLECTIVE)
        if claims.kind == "stall" and is_far_below_compute(high_end(claims.certain[0]), breakdown):
            stalls = (*stalls, "compute")
    else:
        text = _estimate_text(case) if claims.kind == "estimate" else _undecided_text(case, claims)
    lines = case.epoch.lines.computing
    if lines and (claims.kind == "compute" or _mostly_compute(case, claims)):
        how_much = "Most" if case.epoch.lines.is_mostly_computing else "Much"
        text += f" {how_much} of computing is at {written_place(lines[0])}."
    return Advice(
        kind=claims.kind,
        stall=stalls[0] if stalls else None,
        stalls=stalls,
        open=claims.open,
        budget_seconds=budget,
        text=" ".join((text, *_largest_row_sentences(case, claims))),
        next_steps=list_actions(case, claims, budget),
        shown_steps=_count_shown_steps(case, claims),
    )


def _computes_far_more(case: Case, claims: Claims) -> bool:
    """Whether what can be done about computing is worth a step beside that against the largest stall."""
    stall = case.seconds(claims.certain[0].name) if claims.certain else 0.0
    return bool(_mostly_compute(case, claims)) and case.seconds("compute") >= _FAR_MORE * stall


def _count_shown_steps(case: Case, claims: Claims) -> int:
    if claims.kind == "stall":
        return 2 if _computes_far_more(case, claims) else 1
    return 1 if claims.kind == "run" else 2


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


def _largest_row_sentences(case: Case, claims: Claims) -> Iterator[str]:
    """Of an epoch that is more than steps: the largest row that the verdict does not name, if it matters."""
    others = _other_rows(case, claims)
    if others:
        yield row_sentence(case, others[0])
        if claims.kind in ("stall", "tie") and others[0] in claims.rivals:
            yield _WHICH
    else:
        for row in _rows_of_unknown_times(case):
            yield f"{' '.join(SUBJECTS[row.name])} {row.why}."


def _rows_of_unknown_times(case: Case) -> list[RunRow]:
    """Rows that come now and then, long beside a step, of which nothing tells how often they come."""
    if case.loader is not None and case.loader.workers and case.loader.persistent_workers:
        return []
    least = _LONG_BESIDE_STEPS * case.breakdown.step_seconds
    return [r for r in case.epoch.rows if r.time is None and r.each and r.each.value >= least]


def _other_rows(case: Case, claims: Claims) -> list[RunRow]:
    """Rows between steps that matter, and that the verdict does not name: the largest first."""
    named = claims.rows if claims.kind == "run" else ()
    others = [
        row
        for row in case.epoch.rows
        if row.is_between_steps and row not in named and (row.share or 0.0) >= SMALL_SHARE
    ]
    return sorted(others, key=lambda row: -row.seconds)


def _count_rounds(case: Case) -> str:
    """One or two, in words."""
    is_one = case.breakdown.repetitions == 1
    what = "set" if case.profile.settings.isolated else "round"
    launches = " of launches" if case.profile.settings.isolated else ""
    return f"{'one' if is_one else 'two'} {what}{'' if is_one else 's'}{launches}"


def _estimate_text(case: Case) -> str:
    were = "was" if case.breakdown.repetitions == 1 else "were"
    text = (
        f"{_upper(_count_rounds(case))} {were} measured: an estimate of each stall, and no verdict."
    )
    waits, names = case.breakdown.waits, DATA_STALLS
    wait = waits.cold
    if wait is None:
        wait, names = waits.warm, DATA_STALLS[:1]
    if wait is None or case.breakdown.by_waits:
        return text
    time = make_figures(case.breakdown.stalls).time(*names)
    return (
        f"{text} Rungs differ by {time} a step for {join_names(names)}; steps waited {format_seconds(wait)} for the "
        "loader."
    )


def _stalls_text(case: Case, claims: Claims) -> str:
    """Of the stall that dominates, or of several that tie; and of others that may be larger."""
    written, leading = make_figures(case.breakdown.stalls), claims.certain
    text = _stall_text(case, claims) if claims.kind == "stall" else _tie_text(case, claims)
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
    if rivals:
        text += f" Others are not known well enough: {_upper_ends(written, rivals)}."
    return text


def _stall_text(case: Case, claims: Claims) -> str:
    written, name = make_figures(case.breakdown.stalls), claims.certain[0].name
    why, compute = why_stall(case, name), _mostly_compute(case, claims)
    text = f"The {name} stall takes {written.quantity(name)} of every {written.step} step"
    if compute:
        text = f"{compute} The largest stall is {name}, {written.quantity(name)}"
    place = case.epoch.place_of_stall(name)
    text += f" ({written.share(name)})" + (f" at {written_place(place)}" if place else "")
    text += f": {why}." if why else "."
    hidden = hidden_behind(case.breakdown, name)
    if hidden:
        visible = case.breakdown.stall(hidden.appears)
        further = " further" if visible is not None and visible.significant else ""
        text += f" Removing it leaves a{further} {hidden.appears} stall of "
        text += f"{format_seconds(hidden.seconds)}, hidden behind it now."
    return text


def _tie_text(case: Case, claims: Claims) -> str:
    written, compute = make_figures(case.breakdown.stalls), _mostly_compute(case, claims)
    names = [stall.name for stall in claims.certain]
    times = join_names([f"{written.quantity(name)} ({written.share(name)})" for name in names])
    whole = "" if compute else f" of every {written.step} step"
    text = f"{compute} The {join_names(names)} stalls take {times}{whole}; which is the largest is not known yet."
    reasons = ((name, why_stall(case, name)) for name in names)
    return " ".join(
        [text.lstrip(), *(f"{name.capitalize()}: {why}." for name, why in reasons if why)]
    )


def _mostly_compute(case: Case, claims: Claims) -> str:
    """A sentence where compute is certainly half of the step at least, and nothing but compute; else empty."""
    breakdown = case.breakdown
    compute, row = breakdown.stall("compute"), case.epoch.row("compute")
    half = breakdown.step_seconds / 2
    if compute is None or _takes_all(breakdown) or claims.hidden_stalls:
        return ""
    if compute.seconds < max(stall.seconds for stall in breakdown.stalls):
        return ""
    if (compute.low or 0.0) < half or (row is not None and row.seconds < half):
        return ""  # of the latter most is the script's own code
    step = make_figures(breakdown.stalls).step
    return f"Compute is most of every {step} step: {_compute_figures(case)}."


def _undecided_text(case: Case, claims: Claims) -> str:
    breakdown = case.breakdown
    if claims.other_job and breakdown.as_typed is not None:
        return f"Cannot tell: what was measured is not the job as it runs. {other_job(breakdown.as_typed)}"
    written = make_figures(breakdown.stalls)
    if claims.noisy:
        compute = breakdown.stall("compute")
        arm = max(breakdown.step.half_width or 0.0, 0.0 if compute is None else compute.width)
        return (
            f"Cannot tell: steps vary too much. A step takes {written.step}, but its parts are only known to "
            f"±{format_seconds(arm)}."
        )
    parts = []
    if claims.rivals and not claims.open:
        names = list(dict.fromkeys(row.name for row in claims.rows))
        parts.append(f"Cannot tell yet what takes most of an epoch: {join_names(names)}.")
    if claims.open:
        mostly = _mostly_compute(case, claims)
        what = f"Cannot tell yet what dominates a step of {written.step}"
        if mostly:
            what = f"{mostly} Which stall matters is not known yet"
        parts.append(f"{what}: {_upper_ends(written, claims.open)}.")
    if claims.certain:
        name = claims.certain[0].name
        parts.append(f"Certain is {name}: {written.quantity(name)} ({written.share(name)}).")
    if claims.hidden_stalls:
        names = [missing.name for missing in claims.hidden_stalls]
        share = "all" if _takes_all(breakdown) else written.share("compute")
        parts.append(
            f"Cannot tell what limits the devices: compute ({share} of the step) contains "
            f"{join_names(names)}, which {'was' if len(names) == 1 else 'were'} not measured."
        )
    return " ".join(parts)


def _compute_figures(case: Case) -> str:
    """Time and share of compute: alone, where a ledger tells it from the script's own code."""
    written, row = make_figures(case.breakdown.stalls), case.epoch.row("compute")
    if row is None or row.time is None:
        return f"{written.quantity('compute')} ({written.share('compute')})"
    spread = "" if row.time.low is None else f" {plus_minus(row.time, written.scale)}"
    time = f"{written.scale.number(row.seconds)}{spread} {written.scale.unit}"
    return f"{time} ({row.seconds / case.breakdown.step_seconds:.1%})"


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


def _compute_text(case: Case, claims: Claims) -> str:
    breakdown = case.breakdown
    step = make_figures(breakdown.stalls).step
    text = f"Compute takes all of every {step} step"
    if not _takes_all(breakdown):
        time, _, share = _compute_figures(case).rpartition(" ")
        text = f"Compute takes {time} of every {step} step {share}"
    stalls = [stall for stall in breakdown.stalls if stall.name != "compute"]
    ends = (stall.seconds if stall.high is None else stall.high for stall in stalls)
    most = max(ends, default=0.0) / breakdown.step_seconds
    below = f"below {max(SMALL_SHARE, math.ceil(100 * most) / 100):.0%} of the step"
    unknown = [missing.name for missing in claims.unknown if not missing.small]
    found = []
    if breakdown.waits_for_host:
        found.append("the devices wait for the host to submit their kernels")
    if stalls and not (unknown or claims.open or _other_rows(case, claims)):
        found.append(f"stalls are no obstacle here, each is {below}")
    elif stalls:
        found.append(f"every measured stall is {below}")
    elif unknown:
        found.append("no stall was measured")
    shares = [m.share_at_most for m in claims.unknown if m.small and m.share_at_most]
    if shares:
        found.append(f"what no loader prepares takes at most {max(shares):.1%}")
    if found:
        text += f": {join_names(found)}"
    return f"{text}." + (f" Unknown: {join_names(unknown)}." if unknown else "")


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
