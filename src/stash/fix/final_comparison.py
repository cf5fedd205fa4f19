"""The final comparison, which alone decides what is kept: of fresh rounds, as what was seen before chose its arms.

Every arm is launched in every round. Where launches take so long that there is no time for that, and all of it can be
switched while the script runs, arms take *turns* in one more launch: what differs from launch to launch is in no
interval then, so that only large savings are taken from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from stash.core.fix_records import ChangeStanding
from stash.fix.decision import LOOKS, WORTH, is_promising, is_proven, look_error_rate
from stash.fix.fix_search import (
    LARGE,
    NO_PROOF,
    TYPED,
    Arm,
    OutOfTimeError,
    Search,
    saved_seconds,
)
from stash.fix.turns import rung_of

PROVEN_STEPS = 200
"""Of which losses are compared at the end."""
_FUTILE = 2
"""Rounds after which a final comparison ends if they show nothing that is worth a change."""
FINALS = 2
"""Final comparisons at most: one again with less, where more than one change was not shown, or with the same where
that contradicts what was seen before."""
_SURE = 0.2
"""Of the step: what seemed so much before is not lost to noise that lasts for two rounds."""
_WORTH_TIME = 0.05
"""Of the step: while so much seems to be saved, rounds go on until time is up, however noisy."""


def prove_changes(search: Search, chosen: Arm, comparisons: int = FINALS) -> None:
    """The final comparisons, of which so many are left of all."""
    goes_on = False
    for number in range(comparisons):
        if not chosen:
            return
        if not goes_on:
            search.stages.pop("final", None)
            statements = 1 if len(chosen) == 1 else 2 * len(chosen) + 1
            search.conclude(statements=FINALS * statements)
        alone = {
            each.name: saved_seconds(each)
            for each in search.find_candidates(chosen)
            if is_proven(each.saves)
        }
        unproven = _compare_arms(search, chosen, goes_on)
        if not unproven:
            return
        if any(
            _keep_alternative(search, chosen, each)
            for each in _list_alternatives(search, chosen, unproven)
        ):
            return
        # others of these may do the same
        stays = max(unproven, key=lambda name: alone.get(name, 0.0))
        if 1 < len(unproven) < len(chosen) and alone.get(stays, 0.0) >= LARGE * search.typed:
            unproven = leave_out(unproven, stays)
        left = tuple(name for name in chosen if name not in unproven)
        why = NO_PROOF if search.final.in_turns else f"not shown in {search.final.rounds} rounds"
        search.set_standing(
            [
                each
                for each in search.find_candidates(unproven)
                if each.standing not in ("failed", "other training")
            ],
            "unproven",
            why,
        )
        in_time = search.budget.has_room(len(LOOKS)) or (left and fits_only_in_turns(search, left))
        if left == chosen or not in_time:
            left = ()
        if not left or number + 1 == comparisons:
            search.set_standing(
                [each for each in search.find_candidates(chosen) if each.standing == "left out"],
                "unproven",
                "not shown in time",
            )
            search.conclude(kept=(), together=None)
        if not left and number + 1 < comparisons and not search.budget.is_short(0):
            left = _try_once_more(search, chosen, alone)
        goes_on = left != chosen and len(left) == 1 and _has_whole_rounds(search, left)
        chosen = left


def _has_whole_rounds(search: Search, arm: Arm) -> bool:
    """Whether all rounds of the comparison that is over have this arm, so that more of them go on with it.

    What it saves was one of the statements that were counted before the first of them.
    """
    rounds = search.stages.get("final", [])
    return (
        search.final.rounds in LOOKS
        and not search.final.in_turns
        and all(arm in row for row in rounds)
    )


def _try_once_more(search: Search, chosen: Arm, before: Mapping[str, float]) -> Arm:
    """What was not shown though sure to save much ``before``: noise that lasts hides it for some rounds."""
    best = max(before, key=lambda name: before[name], default="")
    unshown = [each for each in search.find_candidates((best,)) if each.standing == "unproven"]
    goes_on = len(chosen) > 1 and _has_whole_rounds(search, (best,))
    least = LARGE if goes_on else _SURE
    if not unshown or before[best] < least * search.typed or search.final.in_turns:
        return ()
    search.set_standing(unshown, "left out", "")
    search.say(f"trying {search.describe_arm([best])} once more, as it saved much before")
    return (best,)


def train_longer(search: Search) -> None:
    """Train as typed and with all that is kept for ``PROVEN_STEPS``, if there is time, and compare the losses.

    What turns out to train something else then is kept no more.
    """
    kept = search.find_candidates(search.final.kept)
    steps = 2 * PROVEN_STEPS * (search.final.typed_seconds or 0.0)
    if not (kept and search.budget.has_room(2, steps)):
        return
    search.say(f"training {PROVEN_STEPS} steps unmodified, and with all that is kept")
    typed = search.run([], PROVEN_STEPS)
    changed = search.run([each.change for each in kept], PROVEN_STEPS)
    if typed.failure is not None or changed.failure is not None:
        return
    proof = search.compare_training(typed, changed, kept)
    if not proof.holds:
        search.set_standing(kept, "other training", proof.text)
        search.conclude(kept=(), together=None)


def list_arms(search: Search, chosen: Arm) -> list[Arm]:
    if len(chosen) == 1:
        return [TYPED, chosen]
    return [TYPED, chosen, *(leave_out(chosen, each) for each in chosen)]


def _compare_arms(search: Search, chosen: Arm, goes_on: bool) -> Arm:
    """Fresh rounds until all is shown, or time is up; the value is what was not shown.

    Statements of all, of each one's part, and of all without each: of these the rounds before them may hold some.
    """
    arms = list_arms(search, chosen)
    number = search.final.rounds if goes_on else 0
    if not goes_on:
        if not search.budget.has_room(LOOKS[0] * len(arms)):
            return _compare_in_turns(search, chosen)
        search.conclude(kept=(), together=None, after_seconds=None, rounds=0, in_turns=False)
    while number < LOOKS[-1]:
        try:
            for arm in arms if number % 2 == 0 else arms[::-1]:
                if why := search.launch("final", number, arm):
                    search.set_standing(
                        search.find_candidates(chosen), standing_of(search, arm), why
                    )
                    return chosen
        except OutOfTimeError:
            if number < LOOKS[0]:
                raise
            break
        number += 1
        if number == _FUTILE and _is_hopeless(search, chosen):
            return chosen
        if number not in LOOKS:
            continue
        unproven = _judge(search, chosen, number)
        if not unproven:
            return ()
        following = next((each for each in LOOKS if each > number), number)
        in_time = search.budget.has_room((following - number) * len(arms))
        if not in_time or not _may_be_shown(search, chosen, unproven, number):
            return unproven
    return _judge(search, chosen, max(each for each in LOOKS if each <= number))


def _compare_in_turns(search: Search, chosen: Arm) -> Arm:
    """The same in one launch, and one before that shows what is trained, unless that is known."""
    looks = _list_looks(search, chosen)
    if not looks:
        raise OutOfTimeError
    if frozenset(chosen) not in search.proofs and (why := search.launch("combining", 0, chosen)):
        search.set_standing(search.find_candidates(chosen), standing_of(search, chosen), why)
        return chosen
    rows, _ = search.launch_in_turns(find_rungs(search, chosen), looks[-1], "final")
    if len(rows) < looks[0]:
        raise OutOfTimeError
    search.stages["final"], unproven = rows, chosen
    for number in [each for each in looks if each <= len(rows)]:
        unproven = _judge(search, chosen, number, in_turns=True)
        if not unproven:
            break
    return unproven


def find_rungs(search: Search, chosen: Arm) -> dict[Arm, Mapping[str, Any]]:
    """What is set in a block of each arm; empty where one cannot be switched while the script runs."""
    if search.turns is None:
        return {}
    rungs = {
        arm: rung_of([each.change for each in search.find_candidates(arm)])
        for arm in list_arms(search, chosen)
        if arm
    }
    known = {arm: rung for arm, rung in rungs.items() if rung is not None}
    return known if len(known) == len(rungs) else {}


def _list_looks(search: Search, chosen: Arm) -> list[int]:
    """Rounds after which turns of one launch may be judged, as far as there is time for them."""
    rungs = find_rungs(search, chosen)
    launches = int(frozenset(chosen) not in search.proofs)
    rounds = search.budget.rounds_in_turns(rungs.values(), launches, search.typed) if rungs else 0
    return [each for each in LOOKS if each <= rounds]


def fits_only_in_turns(search: Search, chosen: Arm) -> bool:
    """Whether there is time to prove these by turns of one launch, and by launches of their own there is not."""
    launches = LOOKS[0] * len(list_arms(search, chosen))
    return not search.budget.has_room(launches) and bool(_list_looks(search, chosen))


def _may_be_shown(search: Search, chosen: Arm, unproven: Arm, number: int) -> bool:
    """Whether more rounds may show what so many did not: all of it to be worth it, or a part to save anything."""
    least = WORTH * search.typed
    if not is_proven(search.final.together, least):
        seems = (
            search.final.together is not None
            and search.final.together.value >= _WORTH_TIME * search.typed
        )
        return seems or is_promising(search.final.together, number, least)
    return any(is_promising(each.saves, number, 0.0) for each in search.find_candidates(unproven))


def _is_hopeless(search: Search, chosen: Arm) -> bool:
    """Whether fresh rounds show nothing that is worth it; to stop for that never keeps anything falsely."""
    alone = [arm for arm in list_arms(search, chosen) if len(arm) == 1]
    saved = {arm: search.estimate_saving("final", TYPED, arm, 0.05) for arm in (chosen, *alone)}
    if any(each.value > WORTH * search.typed for each in saved.values()):
        return False
    search.conclude(rounds=_FUTILE)
    if len(chosen) == 1:
        search.find_candidates(chosen)[0].note_saving(saved[chosen])
    return True


def _judge(search: Search, chosen: Arm, number: int, in_turns: bool = False) -> Arm:
    """Judge after so many rounds; the value is what is not shown."""
    rate = look_error_rate(search.final.statements, number)
    rounds = search.stages["final"][:number]
    together = search.estimate_saving("final", TYPED, chosen, rate, number)
    search.conclude(
        kept=chosen,
        together=together,
        rounds=number,
        typed_seconds=fmean(row[TYPED] for row in rounds),
        after_seconds=fmean(row[chosen] for row in rounds),
        in_turns=in_turns,
    )
    unproven = []
    for each in search.find_candidates(chosen):
        rest = leave_out(chosen, each.name)
        saves = search.estimate_saving("final", rest, chosen, rate, number)
        each.note_saving(saves)
        if not is_proven(saves):
            unproven.append(each.name)
    if not is_proven(together, _least_saving(search)):
        unproven = list(chosen)
    if not unproven:
        search.set_standing(search.find_candidates(chosen), "kept", "")
    return tuple(unproven)


def _least_saving(search: Search) -> float:
    """Seconds that have to be saved."""
    return (max(WORTH, LARGE) if search.final.in_turns else WORTH) * search.typed


def _list_alternatives(search: Search, chosen: Arm, unproven: Arm) -> list[Arm]:
    """Arms of the same rounds without a change that was not shown, and with no other such, the fastest first.

    Of one change alone it does not matter what the others did to its part.
    """
    rounds = (
        search.stages.get("final", [])[: search.final.rounds]
        if search.final.rounds in LOOKS
        else []
    )
    arms = [leave_out(chosen, each) for each in unproven]
    fit = [arm for arm in arms if len(arm) == 1 or (arm and not set(arm) & set(unproven))]
    whole = [arm for arm in fit if rounds and all(arm in row for row in rounds)]
    return sorted(whole, key=lambda arm: fmean(row[arm] for row in rounds))


def _keep_alternative(search: Search, chosen: Arm, left: Arm) -> bool:
    """Keep what is ``left`` of those, if that was shown to be faster."""
    number = search.final.rounds
    rate = look_error_rate(search.final.statements, number)
    together = search.estimate_saving("final", TYPED, left, rate, number)
    if not is_proven(together, _least_saving(search)) or frozenset(left) not in search.proofs:
        return False
    after = fmean(row[left] for row in search.stages["final"][:number])
    search.conclude(kept=left, together=together, after_seconds=after)
    search.set_standing(search.find_candidates(left), "kept", "")
    if len(left) == 1:
        search.find_candidates(left)[0].note_saving(together)
    dropped = [each for each in search.find_candidates(chosen) if each.name not in left]
    search.set_standing(dropped, "unproven", f"not shown beside the others in {number} rounds")
    return True


def standing_of(search: Search, arm: Arm) -> ChangeStanding:
    """Where changes stand whose launch together says that they are out."""
    shown = search.proofs.get(frozenset(arm))
    return "failed" if shown is None or shown.holds else "other training"


def leave_out(arm: Arm, out: str) -> Arm:
    """The arm without one of its changes."""
    return tuple(name for name in arm if name != out)
