"""One launch in which changes take turns: what can be switched while the script runs is settled without launches.

Such a launch trains on what no other does, so it is no evidence of what is trained; and what differs from launch to
launch is in none of its intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from stash.core.intervals import Interval
from stash.core.units import format_seconds
from stash.fix.decision import WORTH, estimate_saving, is_proven, pool_spread
from stash.fix.fix_search import (
    JOINED,
    LARGE,
    NO_DIFFERENCE,
    NO_TIME,
    TYPED,
    Arm,
    Candidate,
    Search,
    arm_of,
    is_beyond_noise,
    is_surely_slower,
    saved_seconds,
)
from stash.fix.script_changes import ScriptChange, merge_settings
from stash.fix.time_budget import TURNS

_SMALL, _FEW = 0.1, 4
"""Where all of them save less of the step than this by forecast, so many values take turns."""
_LOADERS = {"num_workers", "prefetch_factor", "pin_memory", "in_order"}
"""Settings of a loader that can."""
_SWITCHED = {
    "flags",
    "autocast",
    "zero_grad",
    "optimizer",
    "skip",
    "late",
    "non_blocking",
    "exchange_every",
    "threads",
}
"""Settings that can be switched between blocks as they are."""
_FAR = 1.5
"""Times the step as typed: what takes longer, like threads that fight for cores, says nothing of others' spread. Nor
does a block that something held up: of more than three an arm's longest counts as the next, else as that many."""


def settle_in_turns(search: Search, wanted: list[Candidate]) -> list[Candidate]:
    """Settle in one launch what can be switched while it runs; the value is what is left to try.

    Of each knob that is its best value.
    """
    able = [each for each in wanted if _switchable_settings(each.change) is not None]
    turns, rounds = _choose_turns(search, sorted(able, key=lambda each: not _sets_loader(each)))
    wanted = [each for each in wanted if not each.why]
    if search.turns is None or len(turns) < 2:
        return wanted
    search.say(
        f"switching settings within one launch: {'; '.join(each.change.new_value for each in turns)}"
    )
    rungs: dict[Arm, Mapping[str, Any]] = {
        (each.name,): _switchable_settings(each.change) or {} for each in turns
    }
    able = [each for each in turns if each.change.joins and not _sets_loader(each)]
    all_of = arm_of(able)
    every = rung_of([each.change for each in able])
    rungs |= {all_of: every} if len(able) > 1 and every is not None else {}
    rows_by_arm, failed = search.launch_in_turns(rungs, rounds, "turns", beside=search.base)
    if (
        len(rows_by_arm) < TURNS
    ):  # one broke the job, or the loader cannot be switched: the others once more
        others = [each for each in turns if _sets_loader(each) == failed]
        rest = [each for each in wanted if each not in others]
        return [*settle_in_turns(search, others), *rest] if len(others) < len(turns) else wanted
    saves = _judge_turns(search, rows_by_arm)
    worth = WORTH * search.typed
    much = LARGE * search.typed
    hidden = {
        arm: rungs[arm]
        for arm, each in saves.items()
        if each.value >= worth
        and not is_beyond_noise(each)
        and each.high is not None
        and each.high >= much
    }
    if hidden and search.budget.fits_again(hidden.values(), rounds, search.typed):
        search.say("trying once more what noise may hide")
        again, _ = search.launch_in_turns(hidden, rounds, "turns", len(rows_by_arm), search.base)
        both = [*rows_by_arm, *again]
        saves |= _judge_turns(
            search, [{arm: row[arm] for arm in (TYPED, *hidden) if arm in row} for row in both]
        )
    for each in turns:
        each.note_saving(saves[(each.name,)])
    if all_of in saves and saves_only_together(search, able, saves[all_of]):
        turns = [each for each in turns if each not in able]  # these go on as they are
    _keep_best(search, turns)
    return [each for each in wanted if each.standing == "left out"]


def _judge_turns(search: Search, rows: Sequence[Mapping[Arm, float]]) -> dict[Arm, Interval]:
    """What each arm saves, by its turns."""
    arms = [arm for arm in rows[0] if all(arm in row for row in rows)]
    by_arm = {arm: sorted(row[arm] for row in rows) for arm in arms}
    middle = {arm: median(values) for arm, values in by_arm.items()}
    most = {
        arm: values[-2] if len(rows) > TURNS else _FAR * middle[arm]
        for arm, values in by_arm.items()
    }
    bounded = [{arm: min(row[arm], most[arm]) for arm in arms} for row in rows]
    near = [arm for arm in arms if middle[arm] < _FAR * middle[TYPED]]
    spread = pool_spread([[{arm: row[arm] for arm in near} for row in bounded]])
    return {arm: estimate_saving(bounded, TYPED, arm, spread, 0.05) for arm in arms if arm}


def saves_only_together(search: Search, members: Sequence[Candidate], more: Interval) -> bool:
    """Whether all of these at once are shown to save ``more`` than twice what each saves alone.

    Where two calls wait for the same, either alone saves nothing.
    """
    alone = sum(max(0.0, saved_seconds(each)) for each in members)
    return is_proven(more) and more.value >= 2 * alone + JOINED * WORTH * search.step


def _keep_best(search: Search, turns: Sequence[Candidate]) -> None:
    """Of each knob only its best value goes on, if it is worth that."""
    best: dict[str, Candidate] = {}
    for each in sorted(turns, key=saved_seconds, reverse=True):
        first = best.setdefault(each.change.knob, each)
        alike = saved_seconds(first) - saved_seconds(each) < NO_DIFFERENCE * search.typed
        if alike and _count_workers(each) < _count_workers(first):  # what does as well with less
            best[each.change.knob] = each
    for each in turns:
        bar = (1 if _sets_loader(each) else JOINED) * WORTH * search.typed
        saved = saved_seconds(each)
        first = best[each.change.knob]
        if saved < bar or not is_beyond_noise(each.saves):
            slower = saved < -NO_DIFFERENCE * search.typed and is_surely_slower(each.saves)
            search.set_standing([each], "slower" if slower else "no difference", "")
        elif each is not first:
            search.set_standing(
                [each], "no difference", f"{first.change.text} does as well or better"
            )


def _choose_turns(search: Search, turns: list[Candidate]) -> tuple[list[Candidate], int]:
    """Those of which there is time for turns, with a final comparison after them, and how many rounds."""
    loaders = [each for each in turns if _sets_loader(each)]
    forecasts = [each.change.forecast for each in loaders]
    most = max((math.inf if each is None else each for each in forecasts), default=math.inf)
    if most < _SMALL * search.typed:  # then the next value of the same saves hardly more
        at_most = format_seconds(max(0.0, most))
        out = loaders[_FEW:]
        search.set_standing(
            out, "left out", f"saves {at_most} of the step at most, by forecast, as others do"
        )
        turns = [each for each in turns if each not in out]
    rungs = [_switchable_settings(each.change) or {} for each in turns]
    fit, rounds = search.budget.plan_turns(rungs, search.typed)
    if fit:
        out = [each for each in turns[fit:] if _sets_loader(each)]
        search.set_standing(out, "left out", NO_TIME)
    return turns[:fit], rounds


def _sets_loader(each: Candidate) -> bool:
    return "loader" in each.change.settings


def rung_of(changes: Sequence[ScriptChange]) -> Mapping[str, Any] | None:
    """The settings of all of them that can be switched between blocks; None if one of any cannot."""
    rungs = [_switchable_settings(change) for change in changes]
    known = [rung for rung in rungs if rung is not None]
    return merge_settings(known) if len(known) == len(rungs) else None


def _switchable_settings(change: ScriptChange) -> Mapping[str, Any] | None:
    """The settings of a change that can be switched between blocks; None if one of them cannot."""
    settings = dict(change.settings)
    outside = change.variables and "threads" not in settings
    loader = settings.get("loader")
    if outside or not settings or not settings.keys() <= {*_SWITCHED, "loader"}:
        return None
    if isinstance(loader, Mapping):
        settings["loader"] = {name: value for name, value in loader.items() if name != "site"}
        return settings if settings["loader"].keys() <= _LOADERS else None
    return settings


def _count_workers(each: Candidate) -> int:
    return each.change.leaves_workers or 0
