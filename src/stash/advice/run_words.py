"""Sentences about what lies between steps: what takes how much of an epoch, how often, why, and where."""

from __future__ import annotations

from stash.advice.case import Case
from stash.analysis.run_account import RunAccount, RunRow
from stash.analysis.slow_lines import SlowLine
from stash.core.ledger_rows import (
    CHECKPOINT,
    COLLECTIVE,
    COLLECTOR,
    COMPILATION,
    EPOCH_END,
    EPOCH_START,
    EVALUATION,
    INPUT,
    INTERPRETER,
    LOOP,
    NOW_AND_THEN,
)
from stash.core.units import format_count, format_seconds

SUBJECTS = {
    LOOP: ("The script's own code", "takes"),
    COLLECTOR: ("Python's garbage collector", "takes"),
    COMPILATION: ("Compiling again (torch.compile)", "takes"),
    INTERPRETER: (
        "Waiting for Python's interpreter, which another thread of the script has,",
        "takes",
    ),
    COLLECTIVE: ("Collectives that the script itself calls", "take"),
    INPUT: ("Waiting for the loader", "takes"),
    EPOCH_START: ("Epoch starts", "take"),
    EPOCH_END: ("The script's own code between epochs", "takes"),
    EVALUATION: ("Evaluation", "takes"),
    CHECKPOINT: ("Checkpoints", "take"),
}


def row_sentence(case: Case, row: RunRow) -> str:
    """What a row takes, and why, where that is known, with the line that most of it was seen at."""
    subject, takes = SUBJECTS[row.name]
    place, why = case.place(row.name), _reason(case, row)
    if row.name == LOOP:
        subject += _where_it_runs(case.epoch, place)
    text = f"{subject} {takes} {how_much(case.epoch, row)} ({row.share or 0.0:.0%} of an epoch)"
    if row.rank is not None:
        text += f", on rank {row.rank}, for which all others wait"
    if row.grew is not None:
        text += f", {row.grew:.1f} times what it took in the first steps"
    if why:
        return f"{text}: {why}{case.name_place(row.name)}."
    return f"{text}." if place is None else f"{text}, most of it at {written_place(place)}."


def _where_it_runs(run: RunAccount, place: SlowLine | None) -> str:
    """Of a step, where the loop's own code was seen at a place."""
    if place is not None and run.lines.is_in_hook(place):
        return " in hooks of the backward pass"
    return " between batch and model" if place and place.prepares else " between steps"


def how_much(run: RunAccount, row: RunRow) -> str:
    """``"1.07 s before every 20 steps"``, ``"10.0 ms of every 10.7 ms step"``."""
    if row.name in NOW_AND_THEN and row.each is not None:
        return each_time(row)
    in_steps = sum(each.seconds for each in run.rows if each.name not in NOW_AND_THEN)
    return f"{format_seconds(row.seconds)} of every {format_seconds(in_steps)} step"


def each_time(row: RunRow) -> str:
    """One occurrence, and how often it comes: ``"1.07 s before every 20 steps"``."""
    assert row.each is not None
    if row.every is None:
        return f"{format_seconds(row.each.value)} each time"
    often = "every step" if row.every == 1 else f"every {steps_in_words(row.every)} steps"
    seen = ", seen once" if row.times == 1 else ""
    word = "before" if row.name == EPOCH_START else "after" if row.every > 1 else "in"
    return f"{format_seconds(row.each.value)} {word} {often}{seen}"


def steps_in_words(count: float) -> str:
    return f"{count:,.0f}" if count >= 100 else f"{count:.3g}"


def written_place(place: SlowLine) -> str:
    """``"train.py:88 `torchmetrics.update()`"``"""
    words = place.words.replace("`", "")
    called = f", called at {place.caller}" if place.caller else ""
    return f"{place.where} `{words}`{called}" if words else f"{place.where}{called}"


def _reason(case: Case, row: RunRow) -> str:
    loader = case.loader
    if row.name != EPOCH_START or loader is None:
        return ""
    if loader.kind == "iterable" and not loader.workers:
        return "its loader has no workers, so this is what its data set does first, and its first batch"
    if loader.workers and loader.remade:
        return (
            f"a new loader is made each time, which starts {format_count(loader.workers, 'worker')}"
        )
    if loader.workers and not loader.persistent_workers:
        many = format_count(loader.workers, "worker")
        return f"its loader's {many} {'is' if loader.workers == 1 else 'are'} restarted each time"
    if loader.workers:
        return "its loader keeps its workers, so this is its sampler, and filling its queue"
    return "its loader has no workers, so this is its sampler, and its first batch"
