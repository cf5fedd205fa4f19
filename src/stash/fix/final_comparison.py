"""The final comparison, which alone decides what is kept: of fresh rounds, as what was seen before chose its arms. Pure.

Every arm is launched in every round. Where launches take so long that there is no time for that, and all of it can be
switched while the script runs, arms take *turns* in one more launch: what differs from launch to launch is in no
interval then, so that only large savings are taken from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from stash.fix.decision import LOOKS, WORTH, Round, is_proven, look_error_rate
from stash.fix.search_state import (
    LARGE,
    NO_PROOF,
    TYPED,
    Arm,
    OutOfTimeError,
    Search,
    Stage,
    StartScript,
    combined_effect,
    launch,
    launch_in_turns,
    leave_out,
    switchable_settings,
)
from stash.fix.training_proof import judge_training

PROVEN_STEPS = 200
"""Of which losses are compared at the end."""
_LATER = 1.15
"""Times what launches took so far, of those to come."""


def prove_changes(search: Search, chosen: Arm) -> Stage:
    """Compare, and keep what is shown."""
    if not chosen:
        return
    found = sorted(search.find_candidates(chosen), key=lambda each: -each.saved_seconds)
    chosen = tuple(each.name for each in found)
    seemed = found[0].saved_seconds >= LARGE * search.typed
    rows, unproven = yield from _compare_arms(search, chosen, seemed)
    if not unproven:
        return
    for arm in _list_alternatives(chosen, unproven, rows):
        if (yield from _keep_alternative(search, arm, rows)):
            return
    why = NO_PROOF if search.final.in_turns else f"not shown in {search.final.rounds} rounds"
    open_ones = [name for name in chosen if search.candidates[name].is_open]
    search.settle(open_ones, "unproven", why)
    search.conclude(kept=(), together=None)


def list_arms(chosen: Arm) -> list[Arm]:
    """As typed, all of it, all but each one, and the first alone."""
    rests = [leave_out(chosen, [name]) for name in chosen]
    return list(dict.fromkeys([TYPED, chosen, *rests, chosen[:1]]))


def rungs_of(search: Search, chosen: Arm) -> dict[Arm, Mapping[str, Any]]:
    """What is set in a block of each arm; empty where one cannot be switched while the script runs."""
    rungs: dict[Arm, Mapping[str, Any]] = {}
    for arm in list_arms(chosen)[1:]:
        settings = switchable_settings(search.changes_of(arm))
        if settings is None or not search.takes_turns:
            return {}
        if "loader" in settings and not search.switches_loader:
            return {}
        rungs[arm] = settings
    return rungs


def proof_seconds(search: Search, chosen: Arm) -> float:
    """What a comparison of these takes: by launches if there is time for that, else by turns of one if it can."""
    launched = _LATER * rounds_seconds(search, chosen)
    rungs = rungs_of(search, chosen)
    if not rungs or search.budget.left >= launched:
        return launched
    unknown = search.budget.launch if frozenset(chosen) not in search.proofs else 0.0
    return unknown + search.budget.turns_seconds(rungs.values())


def rounds_seconds(search: Search, chosen: Arm, rounds: int = LOOKS[0]) -> float:
    """What so many rounds take in which these are launched with all that they are compared with."""
    return rounds * sum(map(search.launch_seconds, list_arms(chosen)))


def has_room_to_prove(search: Search, chosen: Arm) -> bool:
    return search.budget.left >= proof_seconds(search, chosen)


def _compare_arms(search: Search, chosen: Arm, seemed: bool) -> Stage:
    """Fresh rounds until all is shown, or time is up; the value is the rounds, and what they do not show.

    What ``seemed`` to save much is not lost to noise that lasts for some rounds.
    """
    arms = list_arms(chosen)
    rows: list[dict[Arm, float]] = []
    if search.budget.left < rounds_seconds(search, chosen):
        return (yield from _compare_in_turns(search, chosen))
    unproven = chosen
    for look in LOOKS:
        together = search.final.together
        seems = together is not None and together.value > WORTH * search.typed
        may_be = seems or (seemed and len(rows) == LOOKS[0])
        needed = rounds_seconds(search, chosen, look - len(rows))
        if rows and not (may_be and search.budget.left >= needed):
            break
        for number in range(len(rows), look):
            for arm in arms if number % 2 == 0 else arms[::-1]:
                if why := (yield from launch(search, "final", number, arm)):
                    settle_failed(search, arm, chosen, why)
                    return [], chosen
        rows = search.rounds("final")
        unproven = _judge(search, chosen, rows, in_turns=False)
        if not unproven:
            break
    return rows, unproven


def _compare_in_turns(search: Search, chosen: Arm) -> Stage:
    """The same in one launch, and one before that shows what is trained, unless that is known."""
    rungs = rungs_of(search, chosen)
    if not rungs or not has_room_to_prove(search, chosen):
        raise OutOfTimeError
    is_known = frozenset(chosen) in search.proofs
    if not is_known and (why := (yield from launch(search, "combining", 0, chosen))):
        settle_failed(search, chosen, chosen, why)
        return [], chosen
    text = f"comparing {search.describe_arm(chosen)}, by switching within one launch"
    rows, _ = yield from launch_in_turns(search, text, rungs, "final")
    if len(rows) < LOOKS[0]:
        raise OutOfTimeError
    return rows, _judge(search, chosen, rows, in_turns=True)


def settle_failed(search: Search, arm: Arm, members: Arm, why: str) -> None:
    """Say of these, as far as nothing else is, that a launch of the arm failed, or trained something else."""
    shown = search.proofs.get(frozenset(arm))
    failed = shown is None or shown.holds
    open_ones = [each.name for each in search.find_candidates(members) if each.is_open]
    search.settle(open_ones, "failed" if failed else "other training", why)


def _least_saving(search: Search) -> float:
    """Seconds that have to be saved."""
    return (LARGE if search.final.in_turns else WORTH) * search.typed


def _rate_of(chosen: Arm, rows: Sequence[Round]) -> float:
    """Of one statement: of all, of each one's part, of all without each, and of the first."""
    statements = 1 if len(chosen) == 1 else 2 * len(chosen) + 2
    return look_error_rate(statements, len(rows))


def _judge(search: Search, chosen: Arm, rows: Sequence[Round], in_turns: bool) -> Arm:
    """Judge after so many rounds; the value is what is not shown."""
    rate = _rate_of(chosen, rows)
    together = search.estimate_saving(TYPED, chosen, rate, rows)
    search.conclude(
        kept=chosen,
        together=together,
        rounds=len(rows),
        typed_seconds=fmean(row[TYPED] for row in rows),
        after_seconds=fmean(row[chosen] for row in rows),
        in_turns=in_turns,
    )
    is_enough = is_proven(together, _least_saving(search))
    unproven = []
    for name in chosen:
        saves = search.estimate_saving(leave_out(chosen, [name]), chosen, rate, rows)
        search.note([name], saves=saves)
        if not (is_enough and is_proven(saves)):
            unproven.append(name)
    if not unproven:
        search.settle(chosen, "kept")
    return tuple(unproven)


def _list_alternatives(chosen: Arm, unproven: Arm, rows: Sequence[Round]) -> list[Arm]:
    """Arms without a change that was not shown, and with no other such, the fastest first.

    Of one change alone it does not matter what the others did to its part.
    """
    arms = [arm for arm in list_arms(chosen) if arm not in (TYPED, chosen) and rows]
    fit = [arm for arm in arms if len(arm) == 1 or not set(arm) & set(unproven)]
    return sorted(fit, key=lambda arm: fmean(row[arm] for row in rows))


def _keep_alternative(search: Search, arm: Arm, rows: Sequence[Round]) -> Stage:
    """Keep such an arm, if the same rounds show that it is faster, and a launch what it trains; whether it is kept."""
    chosen = search.final.kept
    together = search.estimate_saving(TYPED, arm, _rate_of(chosen, rows), rows)
    if not is_proven(together, _least_saving(search)):
        return False
    # turns do not show what is trained
    is_known = frozenset(arm) in search.proofs
    if not is_known and not search.budget.has_room(1):
        return False
    if not is_known and (yield from launch(search, "combining", 0, arm)):
        return False
    search.conclude(kept=arm, together=together, after_seconds=fmean(row[arm] for row in rows))
    search.settle(arm, "kept")
    if len(arm) == 1:
        search.note(arm, saves=together)
    why = f"not shown beside the others in {len(rows)} rounds"
    search.settle(leave_out(chosen, arm), "unproven", why)
    return True


def train_longer(search: Search) -> Stage:
    """Train as typed and with all that is kept for ``PROVEN_STEPS``, if there is time, and compare the losses.

    What turns out to train something else then is kept no more.
    """
    kept = search.final.kept
    steps = 2 * PROVEN_STEPS * (search.final.typed_seconds or 0.0)
    if not (kept and search.budget.has_room(2, steps)):
        return
    text = f"training {PROVEN_STEPS} steps with "
    typed = (yield StartScript(f"{text}{search.describe_arm(TYPED)}", (), PROVEN_STEPS)).trial
    changes = search.changes_of(kept)
    changed = (yield StartScript(f"{text}{search.describe_arm(kept)}", changes, PROVEN_STEPS)).trial
    if typed.failure is not None or changed.failure is not None:
        return
    effect = combined_effect(changes)
    proof = judge_training(typed.evidence, changed.evidence, effect, search.own)
    search.conclude(proof=proof)
    if not proof.holds:
        search.settle(kept, "other training", proof.text)
        search.conclude(kept=(), together=None)
