"""Which changes go into the final comparison: ordered by forecast, found by turns of one launch and by launches. Pure.

What nothing else removes *leads*. What can be switched while the script runs, like settings of its loader, takes
*turns* in one launch, which leaves the best of each knob. What else seldom costs anything is launched all at once; the
rest each alone, twice if it looks good. All is tried beside what saves much, as what hides behind a step that waits
shows only once it does not. At the end *combining* leaves out each of what is chosen: two that are good alone may want
the same cores, and two that wait for the same save nothing but together.

A launch of turns trains on what no other does, so it is no evidence of what is trained; and what differs from launch
to launch is in none of its intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from stash.core.intervals import Interval
from stash.core.units import format_seconds
from stash.fix.decision import (
    LOOKS,
    SCREENED,
    WORTH,
    Round,
    estimate_saving,
    is_proven,
    pool_spread,
)
from stash.fix.final_comparison import (
    has_room_to_prove,
    proof_seconds,
    prove_changes,
    rungs_of,
    settle_failed,
    train_longer,
)
from stash.fix.search_state import (
    LARGE,
    NO_PROOF,
    NO_TIME,
    TYPED,
    Arm,
    Candidate,
    OutOfTimeError,
    Search,
    Stage,
    launch,
    launch_in_turns,
    leave_out,
    switchable_settings,
)
from stash.fix.time_budget import TURNS

_JOINED = 2
"""Times what is worth a change: what must be saved by several at once, or by one of many that took turns."""
_NO_DIFFERENCE = 0.02
"""Of the step: of two numbers of workers that differ by less the smaller is taken."""
_RATE = 0.05
"""Error rate of an interval that only chooses."""
_UNKNOWN = 0.05
"""Of the step: what a change without a forecast is ranked as."""
_FAR = 1.5
"""Times the step as typed: what takes longer, like threads that fight for cores, says nothing of others' spread."""


def find_changes(search: Search) -> Stage:
    """Try, combine, prove; what was proven until an interrupt, or the end of the time, is kept."""
    try:
        for each in _list_open(search):
            most = each.change.forecast
            if most is not None and most < WORTH * search.typed:
                at_most = format_seconds(max(0.0, most))
                why = f"saves {at_most} of the step at most, by forecast"
                search.settle([each.name], "left out", why)
        yield from _launch_lead(search)
        yield from _take_turns(search, _list_open(search))
        _ask_consent(search)
        yield from _extend_base(search)
        yield from _try_at_once(search)
        yield from _try_alone(search)
        yield from prove_changes(search, (yield from _combine_best(search)))
        yield from train_longer(search)
    except KeyboardInterrupt:
        search.conclude(interrupted=True)
        _settle_rest(search, "interrupted before it was tried", "interrupted before it was shown")
    except OutOfTimeError:
        _settle_rest(search, NO_TIME, NO_PROOF)
    search.settle(_names(_list_open(search)), "left out", "not tried")


def _settle_rest(search: Search, untried: str, unproven: str) -> None:
    """In the middle: what the last look has shown stands, the rest does not."""
    if not all(each.standing == "kept" for each in search.find_candidates(search.final.kept)):
        search.conclude(kept=(), together=None)
    for each in [one for one in search.candidates.values() if one.is_open]:
        search.settle(
            [each.name], *(("left out", untried) if each.saves is None else ("unproven", unproven))
        )


def _list_open(search: Search) -> list[Candidate]:
    """What nothing is decided of, but for what all is compared with, by forecast."""
    found = [
        each for name, each in search.candidates.items() if each.is_open and name not in search.base
    ]
    return sorted(found, key=lambda each: -(each.change.forecast or _UNKNOWN * search.typed))


def _names(candidates: Iterable[Candidate]) -> Arm:
    return tuple(each.name for each in candidates)


def _launch_lead(search: Search) -> Stage:
    """Launch what saves most by forecast of that which nothing else removes; if it does, the rest goes beside it.

    Turns take the time that it would need, and forecasts of what they settle are upper ends.
    """
    lead = max(
        (each for each in _list_open(search) if each.change.leads),
        key=lambda each: each.change.forecast or 0.0,
        default=None,
    )
    if lead is None or (lead.change.forecast or 0.0) < LARGE * search.typed:
        return
    if is_short(search) or (yield from launch(search, "screening", 0, (lead.name,))):
        return
    saves = search.estimate_saving(TYPED, (lead.name,), _RATE)
    search.note([lead.name], saves=saves)
    if saves.value < LARGE * search.typed:
        if saves.value < _JOINED * WORTH * search.typed:
            search.settle([lead.name], "no difference")
        return
    _compare_with(search, (lead.name,))


def _compare_with(search: Search, base: Arm) -> None:
    """Compare further changes with an arm that was launched."""
    search.base = base
    _drop_workerless(search, search.find_candidates(base), _list_open(search))


def _drop_workerless(
    search: Search, beside: Iterable[Candidate], others: Iterable[Candidate]
) -> None:
    """Settle what changes nothing where loaders have no workers, if one ``beside`` it leaves none."""
    if any(each.change.leaves_workers == 0 for each in beside):
        idle = _names(each for each in others if each.change.needs_workers)
        search.settle(idle, "no difference", "no worker is left")


def _take_turns(search: Search, wanted: Sequence[Candidate]) -> Stage:
    """Settle in one launch what can be switched while it runs: of each knob its best value goes on."""
    able = [each for each in wanted if switchable_settings([each.change]) is not None]
    turns = sorted(able, key=lambda each: not _sets_loader(each))
    rungs: dict[Arm, Mapping[str, Any]] = {
        (each.name,): switchable_settings([each.change]) or {} for each in turns
    }
    fit = search.budget.count_in_turns([*rungs.values()]) if search.takes_turns else 0
    late = [each.name for each in turns[fit:] if fit and _sets_loader(each)]
    search.settle(late, "left out", NO_TIME)
    turns = turns[:fit]
    if not turns:
        return
    values = "; ".join(each.change.new_value for each in turns)
    rungs = {(each.name,): rungs[(each.name,)] for each in turns}
    joined = [each for each in turns if each.change.joins and not _sets_loader(each)]
    together = switchable_settings([each.change for each in joined])
    if together is not None and len(joined) > 1:
        rungs[_names(joined)] = together
    rows, failed = yield from launch_in_turns(
        search, f"switching settings within one launch: {values}", rungs, "turns", search.base
    )
    if (
        len(rows) < TURNS
    ):  # one broke the job, or the loader cannot be switched: the others once more
        loaders = [each for each in turns if _sets_loader(each)]
        if loaders and not rows and (loaders == turns or not failed):
            search.switches_loader = False
        others = [each for each in turns if _sets_loader(each) == failed]
        if len(others) < len(turns):
            yield from _take_turns(search, others)
        return
    saves = _judge_turns(rows)
    for each in turns:
        search.note([each.name], saves=saves[(each.name,)])
    if saves_only_together(search, _names(joined), saves.get(_names(joined))):
        turns = [each for each in turns if each not in joined]  # these go on as they are
    _keep_best(search, search.find_candidates(_names(turns)))


def _judge_turns(rows: Sequence[Round]) -> dict[Arm, Interval]:
    """What each arm saves, by its turns; its longest block, which something may have held up, counts as the next."""
    arms = [arm for arm in rows[0] if all(arm in row for row in rows)]
    most = {arm: sorted(row[arm] for row in rows)[-2] for arm in arms}
    bounded = [{arm: min(row[arm], most[arm]) for arm in arms} for row in rows]
    near = [arm for arm in arms if most[arm] < _FAR * most[TYPED]]
    spread = pool_spread([[{arm: row[arm] for arm in near} for row in bounded]])
    return {arm: estimate_saving(bounded, TYPED, arm, spread, _RATE) for arm in arms if arm}


def saves_only_together(search: Search, members: Arm, more: Interval | None) -> bool:
    """Whether all of these at once are shown to save ``more`` than twice what each saves alone.

    Where two calls wait for the same, either alone saves nothing.
    """
    alone = sum(max(0.0, each.saved_seconds) for each in search.find_candidates(members))
    least = 2 * alone + _JOINED * WORTH * search.typed
    return more is not None and is_proven(more) and more.value >= least


def _keep_best(search: Search, turns: Sequence[Candidate]) -> None:
    """Of each knob only its best value goes on, if it is worth that."""
    best: dict[str, Candidate] = {}
    for each in sorted(turns, key=lambda each: -each.saved_seconds):
        first = best.setdefault(each.change.knob, each)
        alike = first.saved_seconds - each.saved_seconds < _NO_DIFFERENCE * search.typed
        if alike and (each.change.leaves_workers or 0) < (first.change.leaves_workers or 0):
            best[each.change.knob] = each  # what does as well with less
    for each in turns:
        bar = (1 if _sets_loader(each) else _JOINED) * WORTH * search.typed
        first = best[each.change.knob]
        if each.saved_seconds < bar or not is_beyond_noise(each.saves):
            _dismiss(search, each.name, is_surely_slower(each.saves))
        elif each is not first:
            search.settle(
                [each.name], "no difference", f"{first.change.text} does as well or better"
            )


def _dismiss(search: Search, name: str, is_slower: bool, why: str = "") -> None:
    search.settle([name], "slower" if is_slower else "no difference", why)


def _sets_loader(each: Candidate) -> bool:
    return "loader" in each.change.settings


def is_beyond_noise(saves: Interval | None) -> bool:
    """Whether it is more than chance does in two of three cases."""
    return saves is None or saves.half_width is None or saves.value > saves.half_width / 2


def is_surely_slower(saves: Interval | None) -> bool:
    """Whether even the best end of what it saves is a loss."""
    return saves is not None and saves.high is not None and saves.high < 0


def _needs_consent(search: Search, each: Candidate) -> bool:
    return bool(each.change.consent) and each.change.consent not in search.allowed


def _ask_consent(search: Search) -> None:
    """What needs it is shown, and kept by no one."""
    for each in _list_open(search):
        if _needs_consent(search, each) and each.saves is not None:
            what = each.change.consent_why or f"changes {each.change.effect}"
            why = f"{what}: --allow {each.change.consent}"
            search.settle([each.name], "asks", why)


def is_short(search: Search, launches: int = 1) -> bool:
    """Whether after so many more there would be no time to prove the best that is found."""
    found = [*search.find_candidates(search.base), *_list_open(search)]
    best = max(found, key=lambda each: each.saved_seconds, default=None)
    if best is None or not (search.base or best.saved_seconds >= WORTH * search.typed):
        return False
    needed = proof_seconds(search, (best.name,))
    return needed <= search.budget.left < needed + launches * search.budget.launch


def _extend_base(search: Search) -> Stage:
    """Where one change saves much in turns, everything else is tried beside it."""
    shown = [each for each in _list_open(search) if is_proven(each.saves)]
    largest = max(shown, key=lambda each: each.saved_seconds, default=None)
    if largest is None or is_short(search):
        return
    if largest.saved_seconds > LARGE * search.typed:
        arm = (*search.base, largest.name)
        if not (yield from launch(search, "screening", 0, arm)):
            _compare_with(search, arm)


def _list_unseen(search: Search) -> list[Candidate]:
    """What is open but for what turns have shown, which is not launched to be seen once more."""
    return [each for each in _list_open(search) if not is_proven(each.saves)]


def _try_at_once(search: Search) -> Stage:
    """Launch the first value of each knob that seldom costs anything, all at once, and once more with its rival.

    If that is no faster, none of these knobs is tried alone: so a job with nothing to fix is soon known for one. If it
    is, or is much slower, or fails, each is tried by itself.
    """
    able = [each for each in _list_unseen(search) if each.change.joins]
    first = {each.change.knob: each.name for each in reversed(able)}
    arm = (*search.base, *reversed(first.values()))
    if len(first) < 2:
        return
    if is_short(search):
        search.settle(_names(able), "left out", NO_TIME)
        return
    for number in range(SCREENED):
        if number and (
            is_short(search, 2) or (yield from launch(search, "screening", number, search.base))
        ):
            return
        if (yield from launch(search, "screening", number, arm)):
            return
        saves = search.estimate_saving(search.base, arm, _RATE)
        least = _JOINED * WORTH * search.step
        row = [each for each in search.rounds("screening") if {search.base, arm} <= each.keys()][-1]
        if row[arm] > (1 + LARGE) * row[search.base]:
            if number:
                return  # one of them does harm, which hides others
            continue
        if saves.value < least or (number and not is_beyond_noise(saves)):
            out = [each for each in able if each.change.knob in first]
            why = f"no faster with all of {', '.join(reversed(first))} at once"
            search.settle(_names(out), "no difference", why)
            return
    _compare_with(search, arm)


def _try_alone(search: Search) -> Stage:
    """Each alone, as long as there is time for a proof after it; and once more what looks good."""
    for number in range(SCREENED):
        active = _list_unseen(search)
        if number and (is_short(search) or not active):
            break  # what looked good once goes on to be proven
        if number and (why := (yield from launch(search, "screening", number, search.base))):
            why = f"what it was to be compared with failed at a later start: {why}"
            search.settle(_names(active), "left out", why)
            search.base = TYPED
            return
        for each in sorted(active, key=lambda each: -each.saved_seconds)[:: -1 if number else 1]:
            yield from _try_one(search, each, number)
    _ask_consent(search)


def _try_one(search: Search, each: Candidate, number: int) -> Stage:
    worth = WORTH * search.step
    milder = search.candidates.get(each.change.beyond)
    if number and _needs_consent(search, each):
        return  # it is shown, and kept by no one: once will do
    if not number and milder is not None and milder.saved_seconds < worth:
        search.settle([each.name], "left out", f"{milder.name} saves nothing")
        return
    if is_short(search):
        if each.saved_seconds < worth:
            search.settle([each.name], "left out", NO_TIME)
        return
    arm = (*search.base, each.name)
    if (yield from launch(search, "screening", number, arm)):
        return
    saves = search.estimate_saving(search.base, arm, _RATE)
    search.note([each.name], saves=saves)
    is_good = saves.value >= (1 if number else _JOINED) * WORTH * search.step
    is_sure = is_beyond_noise(saves) or saves.value >= LARGE * search.step
    if not is_good or (number and not is_sure):
        _dismiss(search, each.name, is_surely_slower(saves))


def _combine_best(search: Search) -> Stage:
    """The best of each knob, without those that the others are faster without, as many as can be proven."""
    best = search.find_candidates(search.base)
    for each in sorted(_list_open(search), key=lambda each: -each.saved_seconds):
        rivals = [one for one in best if each.change.knobs & one.change.knobs]
        faster = [one for one in best if one.change.needs_workers]
        if rivals:
            _dismiss(search, each.name, False, f"{rivals[0].change.text} is faster")
        elif each.change.leaves_workers == 0 and faster:
            _dismiss(search, each.name, False, f"{faster[0].name} saves more, with workers")
        else:
            best.append(each)
    _drop_workerless(search, best, best)
    arm = _names(each for each in best if search.candidates[each.name].is_open)
    arm = yield from _drop_idle(search, arm)
    while len(arm) > 1 and not has_room_to_prove(search, arm):
        least = min(search.find_candidates(arm), key=lambda each: each.saved_seconds)
        search.settle([least.name], "unproven", NO_PROOF)
        arm = leave_out(arm, [least.name])
    return arm


def _drop_idle(search: Search, arm: Arm) -> Stage:
    """What is left of an arm without changes that add little to it."""
    while len(arm) > 1:
        row, arm = yield from _launch_all_but_one(search, arm)
        rests = {name: leave_out(arm, [name]) for name in arm}
        parts = {
            name: row[rest] - row[arm] for name, rest in rests.items() if {rest, arm} <= row.keys()
        }
        for name, part in parts.items():
            if search.candidates[name].saves is None:  # it was launched with others at once
                search.note([name], saves=Interval(value=part, repetitions=1))
        less = [name for name, part in parts.items() if part < WORTH * search.step]
        if not less:
            break
        # of what saves something alone one at a time, as two may do the same
        worth = WORTH * search.step
        idle = [name for name in less if search.candidates[name].saved_seconds < worth]
        for name in idle or [min(less, key=lambda name: parts[name])]:
            _dismiss(search, name, False, "too little beside the others")
        arm = tuple(name for name in arm if search.candidates[name].is_open)
    return arm


def _launch_all_but_one(search: Search, arm: Arm) -> Stage:
    """A step of the arm, and of all but each one of it, as far as there is time; without those that break it."""
    rungs = rungs_of(search, arm)
    takes = search.budget.turns_seconds(rungs.values())
    if rungs and search.budget.has_room(1, 2 * takes):
        text = f"trying all but one of {search.describe_arm(arm)}, by switching within one launch"
        rows, failed = yield from launch_in_turns(search, text, rungs, "combining")
        if rows and not failed:
            return {each: fmean(row[each] for row in rows) for each in rows[0]}, arm
    while len(arm) > 1 and search.budget.has_room(len(arm) + 1 + LOOKS[0] * 4):
        known = next(iter(search.rounds("combining")), {})
        for each in (arm, *(leave_out(arm, [name]) for name in arm)):
            why = "" if each in known else (yield from launch(search, "combining", 0, each))
            if why and each == arm:
                settle_failed(search, arm, arm[-1:], f"together with the others: {why}")
                arm = arm[:-1]
                break
        else:
            return search.rounds("combining")[0], arm
    return {}, arm
