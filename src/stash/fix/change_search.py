"""Which changes to try, and which to keep: ordered by forecast, decided by launches side by side.

What can be switched while the script runs, like settings of its loader, takes *turns* in one launch, which leaves the
best of them. *Screening* launches what else seldom costs anything all at once, and only if that is faster each change
alone, twice, beside the script as typed. The best of each knob that look worth it are put together, and *combining*
launches them all, and all but each one, since two that are good alone may want the same cores, and two that wait for
the same save nothing but together. What is left goes into the final comparison. How a launch is made is not known
here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from stash.core.formatting import join_names
from stash.core.units import format_seconds
from stash.fix.decision import ARMS, LOOKS, SCREENED, WORTH, is_proven
from stash.fix.final_comparison import (
    FINALS,
    find_rungs,
    fits_only_in_turns,
    leave_out,
    list_arms,
    prove_changes,
    standing_of,
    train_longer,
)
from stash.fix.fix_search import (
    JOINED,
    LARGE,
    NO_PROOF,
    NO_TIME,
    TYPED,
    Arm,
    Candidate,
    Final,
    OutOfTimeError,
    Search,
    arm_of,
    is_beyond_noise,
    saved_seconds,
)
from stash.fix.turns import saves_only_together, settle_in_turns

_MOST_OF_IT = 0.25
"""Of what a change saves alone: where it takes off less beside another that saves as much, they do the same."""
_SURE_LEAD = 0.3
"""Of the step: what seems to save that much is proven at once."""
_UNKNOWN = 0.05
"""Of the step: what a change without a forecast is ranked as."""


def find_changes(search: Search) -> Final:
    """Try, combine, prove; what was proven until an interrupt, or the end of the time, is kept."""
    proven = search.final
    try:
        rest = _launch_lead(search, _rank_by_forecast(search))
        proven = _prove_lead(search)
        chosen = _combine_best(search, _try_all(search, rest))
        if chosen != proven.kept:
            prove_changes(search, chosen, FINALS - 1 if proven.kept else FINALS)
        _keep_lead(search, proven)
        train_longer(search)
    except KeyboardInterrupt:
        search.conclude(interrupted=True)
        _settle_candidates(
            search, "interrupted before it was tried", "interrupted before it was shown"
        )
    except OutOfTimeError:
        _settle_candidates(search, NO_TIME, NO_PROOF)
    _keep_lead(search, proven)
    rest = [each for each in search.candidates if each.standing == "left out" and not each.why]
    search.set_standing(rest, "left out", "not tried")
    return search.final


def _settle_candidates(search: Search, untried: str, unproven: str) -> None:
    """In the middle: what the last look has shown stands, the rest does not."""
    if not all(each.standing == "kept" for each in search.find_candidates(search.final.kept)):
        search.conclude(kept=(), together=None)
    for each in search.candidates:
        if each.standing == "left out" and not each.why:
            search.set_standing(
                [each], *(("left out", untried) if each.saves is None else ("unproven", unproven))
            )


def _prove_lead(search: Search) -> Final:
    """Prove a lead that saves much before anything else is tried, which may take all the time; what is found by then.

    The comparison is one of those among which the error rate is shared; the rest is proven beside it, or not at all.
    """
    lead = search.find_candidates(search.base)
    saved = sum(saved_seconds(each) for each in lead)
    if saved < _SURE_LEAD * search.typed or not search.budget.has_room(LOOKS[0] * ARMS):
        return search.final
    prove_changes(search, search.base, 1)
    if any(each.standing in ("failed", "other training") for each in lead):
        search.compare_with(TYPED)
    elif not search.final.kept:
        search.set_standing(lead, "left out", "")  # it is proven beside the others, if ever
    return search.final


def _keep_lead(search: Search, proven: Final) -> None:
    """What was proven first is kept where nothing was proven beside it, unless it was seen to train something else."""
    if not proven.kept or search.final.kept or search.final.proof is not None:
        return
    lead = search.find_candidates(proven.kept)
    search.conclude(**{**vars(proven), "interrupted": search.final.interrupted})
    for each in lead:
        if proven.together is not None:
            each.note_saving(proven.together)
    search.set_standing(lead, "kept", "")


def _try_all(search: Search, wanted: list[Candidate]) -> list[Candidate]:
    """Launch what may pay, twice; the value is what looks worth more.

    Where one change saves much in turns, everything else is tried beside it: what hides behind a step that waits
    shows only once it does not. What turns have shown is not launched to be seen once more.
    """
    active = settle_in_turns(search, wanted)
    for each in [
        each for each in active if _needs_consent(search, each) and each.saves is not None
    ]:
        _ask_consent(search, each)  # it is shown, and kept by no one
        active.remove(each)
    large = [
        each
        for each in active
        if saved_seconds(each) > LARGE * search.typed and is_proven(each.saves)
    ]
    largest = max(large, key=saved_seconds, default=None)
    arm = search.base if largest is None else (*search.base, largest.name)
    if (
        largest is not None
        and not search.budget.is_short()
        and not search.launch("screening", 0, arm)
    ):
        search.compare_with(arm)
        active = _drop_idle(search, [each for each in active if each is not largest], [largest])
    shown = [each for each in active if is_proven(each.saves)]
    active = _screen_candidates(
        search, _try_at_once(search, [each for each in active if each not in shown])
    )
    while not (active or shown or search.base or search.budget.is_short()):
        late = [each for each in search.candidates if each.why == NO_TIME and each.saves is None]
        if not late:
            break
        # what was set aside for others is there for these
        search.set_standing(late, "left out", "")
        active = _screen_candidates(search, late)
    return [*search.find_candidates(search.base), *shown, *active]


def _launch_lead(search: Search, wanted: list[Candidate]) -> list[Candidate]:
    """Launch what saves most by forecast of that which nothing else removes; if it does, the rest goes beside it.

    Turns take the time that it would need, and forecasts of what they settle are upper ends. The value is what is left
    to try.
    """
    able = [each for each in wanted if each.change.leads]
    lead = max(able, key=lambda each: each.change.forecast or 0.0, default=None)
    if lead is None:
        return wanted
    if (lead.change.forecast or 0.0) < LARGE * search.typed or search.budget.is_short():
        return wanted
    rest = [each for each in wanted if each is not lead]
    arm = (lead.name,)
    if search.launch("screening", 0, arm):
        return rest
    lead.note_saving(search.estimate_saving("screening", TYPED, arm, 0.05))
    if saved_seconds(lead) < LARGE * search.typed:
        search.set_standing([lead], "no difference", "")
        return rest
    search.compare_with(arm)
    rivals = [each for each in rest if each.change.knob == lead.change.knob]
    search.set_standing(rivals, "left out", f"{lead.change.text} is tried first")
    return _drop_idle(search, [each for each in rest if each not in rivals], [lead])


def _screen_candidates(search: Search, active: list[Candidate]) -> list[Candidate]:
    """As many of these as there is time for with the final comparison after them, each alone."""
    # first what turns showed
    active = sorted(active, key=saved_seconds, reverse=True)
    most = search.budget.count_screened()
    search.set_standing(active[most:], "left out", NO_TIME)
    active = active[:most]
    for number in range(SCREENED):
        if not active:
            break
        if number and search.budget.is_short(1 + len(active)):
            for each in [each for each in active if saved_seconds(each) < WORTH * search.step]:
                search.set_standing([each], "no difference", "")
                active.remove(each)
            break  # what looked good once goes on to be proven
        order = active if number % 2 == 0 else active[::-1]
        if number and (why := search.launch("screening", number, search.base)):
            search.set_standing(
                active,
                "left out",
                f"what it was to be compared with failed at a later start: {why}",
            )
            search.compare_with(TYPED)
            return []
        for each in list(order):
            if number and _needs_consent(search, each):
                continue  # it is shown, and kept by no one: once will do
            milder = search.find_candidates((each.change.beyond,))
            if not number and any(saved_seconds(one) < WORTH * search.step for one in milder):
                search.set_standing([each], "left out", f"{each.change.beyond} saves nothing")
                active.remove(each)
                continue
            if not number and search.budget.is_short():
                if saved_seconds(each) < WORTH * search.step:
                    search.set_standing([each], "left out", NO_TIME)
                    active.remove(each)  # what looked good in turns goes on to be proven
            elif search.launch("screening", number, arm := (*search.base, each.name)):
                active.remove(each)
            else:
                each.note_saving(search.estimate_saving("screening", search.base, arm, 0.05))
        search.compare_with(search.base)
        active = _drop_unpromising(search, active, number)
    active += _find_inseparable(search, active)
    for each in active:
        if _needs_consent(search, each):
            _ask_consent(search, each)
    return [each for each in active if each.standing != "asks"]


def _drop_unpromising(search: Search, active: Sequence[Candidate], number: int) -> list[Candidate]:
    """Those that screening, so far, does not dismiss."""
    found = []
    for each in active:
        arm = (*search.base, each.name)
        if not any(arm in row for row in search.stages["screening"]):
            found.append(each)
            continue
        saves = search.estimate_saving("screening", search.base, arm, 0.05)
        each.note_saving(saves)
        worth = saves.value >= (1 if number else JOINED) * WORTH * search.step
        sure = (
            is_beyond_noise(saves)
            or saves.value >= LARGE * search.step
            or _needs_consent(search, each)
        )
        if worth and (number + 1 < SCREENED or sure):
            found.append(each)
            continue
        most = saves.value + LARGE * search.step if saves.high is None else saves.high
        search.set_standing([each], "slower" if most < 0 else "no difference", "")
    return found


def _drop_idle(
    search: Search, others: list[Candidate], beside: Sequence[Candidate]
) -> list[Candidate]:
    """Those that change anything where loaders have no workers, if one ``beside`` them leaves none."""
    if all(each.change.leaves_workers != 0 for each in beside):
        return others
    search.set_standing(
        [each for each in others if each.change.needs_workers], "no difference", "no worker is left"
    )
    return [each for each in others if not each.change.needs_workers]


def _needs_consent(search: Search, each: Candidate) -> bool:
    return bool(each.change.consent) and each.change.consent not in search.allowed


def _ask_consent(search: Search, each: Candidate) -> None:
    search.set_standing(
        [each], "asks", f"changes {each.change.effect}: --allow {each.change.consent}"
    )


def _try_at_once(search: Search, active: list[Candidate]) -> list[Candidate]:
    """Launch the first value of each knob that seldom costs anything, all at once.

    If that is no faster, nor once more, none of these knobs is tried alone: so a job with nothing to fix is soon
    known for one. If it is, or fails, each is tried by itself.
    """
    first: dict[str, Candidate] = {}
    for each in active:
        if each.change.joins:
            first.setdefault(each.change.knob, each)
    arm = (*search.base, *(each.name for each in first.values()))
    if len(first) < 2:
        return active
    if search.budget.is_short() and any(saved_seconds(each) > 0 for each in search.candidates):
        search.set_standing([each for each in active if each.change.joins], "left out", NO_TIME)
        return [each for each in active if not each.change.joins]
    for number in range(SCREENED):
        if number and search.launch("screening", number, search.base):
            return active
        if search.launch("screening", number, arm):
            return active
        saves = search.estimate_saving("screening", search.base, arm, 0.05)
        if saves.value >= JOINED * WORTH * search.step and (not number or is_beyond_noise(saves)):
            search.conclude(joined=arm)
            continue
        if (
            saves.value < -LARGE * search.step and not number
        ):  # one of them or noise does harm, which hides others
            if search.launch("screening", 1, arm):
                return active
            if search.stages["screening"][1][arm] > (1 + LARGE) * search.step:
                return active
        out = [each for each in active if each.change.knob in first]
        search.set_standing(
            out, "no difference", f"no faster with all of {', '.join(first)} at once"
        )
        search.conclude(joined=TYPED)
        return [each for each in active if each.standing == "left out"]
    return active


def _find_inseparable(search: Search, active: Sequence[Candidate]) -> list[Candidate]:
    """Of those launched all at once the rest, if they save only together; combining takes out who has no part."""
    rest = [
        each
        for each in search.find_candidates(search.final.joined)
        if each.standing in ("no difference", "slower", "left out")
    ]
    rest = [each for each in rest if each not in active and each.name not in search.base]
    if not rest:
        return []
    shown = [each for each in active if each.name in search.final.joined]
    if not saves_only_together(
        search, shown, search.estimate_saving("screening", search.base, search.final.joined, 0.05)
    ):
        return []
    search.conclude(inseparable=arm_of([*shown, *rest]))
    search.say(
        f"{join_names([each.change.new_value for each in rest])} may save something only together"
    )
    search.set_standing(rest, "left out", "")
    return rest


def _rank_by_forecast(search: Search) -> list[Candidate]:
    found = []
    for each in search.candidates:
        most = each.change.forecast
        if most is not None and most < WORTH * search.typed:
            at_most = format_seconds(max(0.0, most))
            search.set_standing(
                [each], "left out", f"saves {at_most} of the step at most, by forecast"
            )
        else:
            found.append(each)
    places: dict[str, int] = {}
    order: dict[str, tuple[int, float]] = {}
    for each in found:
        place = places[each.change.knob] = places.get(each.change.knob, -1) + 1
        order[each.name] = (place, -(each.change.forecast or _UNKNOWN * search.typed))
    return sorted(found, key=lambda each: order[each.name])


def _combine_best(search: Search, worth: list[Candidate]) -> tuple[str, ...]:
    """The best of each knob, without those that the others are faster without."""
    best: list[Candidate] = []
    for each in sorted(worth, key=saved_seconds, reverse=True):
        if rivals := [one for one in best if each.change.knobs & one.change.knobs]:
            search.set_standing([each], "no difference", f"{rivals[0].change.text} is faster")
        elif each.change.leaves_workers == 0 and (
            faster := [one for one in best if one.change.needs_workers]
        ):
            search.set_standing(
                [each], "no difference", f"{faster[0].name} saves more, with workers"
            )
        else:
            best.append(each)
    chosen = _drop_idle(search, best, best)
    if in_turns := _combine_in_turns(search, chosen):
        return in_turns
    chosen = _drop_doubtful(search, chosen)
    if fits_only_in_turns(search, arm := arm_of(chosen)):
        return arm
    most = search.budget.count_proven()
    search.set_standing(chosen[most:], "unproven", NO_PROOF)
    chosen = chosen[:most]
    if not search.budget.has_room_to_combine(len(chosen)):
        return arm_of(chosen)  # the final comparison has the same arms
    while len(chosen) > 1:
        arm = arm_of(chosen)
        why = search.launch("combining", 0, TYPED) or search.launch("combining", 0, arm)
        if not why:
            break
        search.set_standing(
            [chosen.pop()], standing_of(search, arm), f"together with the others: {why}"
        )
    if len(chosen) < 2:
        return arm_of(chosen)
    for each in chosen:
        search.launch("combining", 0, leave_out(arm, each.name))
    while less := [each for each in chosen if _adds_little(search, each, arm)]:
        arm = _drop_least(search, chosen, less, arm)
    return arm


def _combine_in_turns(search: Search, chosen: list[Candidate]) -> Arm:
    """The same by turns, where launches take too long to combine these and prove them; empty if they cannot."""
    arm = arm_of(chosen)
    if search.budget.has_room_to_combine(len(chosen)):
        return ()
    while len(chosen) > 1:
        rungs = find_rungs(search, arm)
        takes = search.budget.turns_seconds(rungs.values(), LOOKS[0], search.typed)
        if not (rungs and search.budget.has_room(1, 2 * takes)):
            return ()
        search.say(
            f"trying all but one of {search.describe_arm(arm)}, by switching within one launch"
        )
        rows, failed = search.launch_in_turns(rungs, LOOKS[0], "combining")
        if failed or not rows:
            return ()
        search.stages["combining"] = rows
        less = [each for each in chosen if _part_of(search, each, arm) < WORTH * search.step]
        if not less:
            return arm
        arm = _drop_least(search, chosen, less, arm)
    return arm


def _drop_least(
    search: Search, chosen: list[Candidate], less: Sequence[Candidate], arm: Arm
) -> Arm:
    """The arm without the one of those that adds least to it: one at a time, as two may do the same."""
    out = min(less, key=lambda each: _part_of(search, each, arm))
    if _part_of(search, out, arm) < -WORTH / 2 * search.step:
        search.set_standing([out], "slower", "beside the others it costs more than it saves")
    else:
        search.set_standing([out], "no difference", "too little beside the others")
    chosen.remove(out)
    return leave_out(arm, out.name)


def _part_of(search: Search, each: Candidate, arm: Arm) -> float:
    """Seconds that it saves in an arm of combining; infinite if that was not launched with and without it."""
    rest = leave_out(arm, each.name)
    both = [
        row[rest] - row[arm] for row in search.stages["combining"] if rest in row and arm in row
    ]
    return fmean(both) if both else math.inf


def _adds_little(search: Search, each: Candidate, arm: Arm) -> bool:
    part = _part_of(search, each, arm)
    worth = WORTH * search.step
    alike = [
        other
        for other in search.find_candidates(arm)
        if saved_seconds(other) >= saved_seconds(each) / 2 and other is not each
    ]
    same = (
        bool(alike)
        and saved_seconds(each) >= LARGE * search.step
        and part < _MOST_OF_IT * saved_seconds(each)
    )
    return (
        same or part < -worth / 2 or part + SCREENED * saved_seconds(each) < (1 + SCREENED) * worth
    )


def _drop_doubtful(search: Search, chosen: list[Candidate]) -> list[Candidate]:
    """Only those that screening showed, if there is no time to prove these again should the others not hold.

    What saves most, and much, counts as shown: a step as typed that varies widely leaves nothing else.
    """
    best = max(chosen, key=saved_seconds, default=None)
    sure = [
        each for each in chosen if is_proven(each.saves) or each.name in search.final.inseparable
    ]
    if (
        best is not None
        and best not in sure
        and saved_seconds(best) >= LARGE * search.step
        and is_beyond_noise(best.saves)
    ):
        sure.insert(0, best)
    arms = len(list_arms(search, arm_of(chosen)))
    again = len(list_arms(search, arm_of(sure)))
    enough = search.budget.has_room(arms + LOOKS[0] * (arms + again))
    if enough or not sure:
        return chosen
    doubtful = [each for each in chosen if each not in sure]
    search.set_standing(doubtful, "unproven", NO_PROOF)
    return sure
