"""What programs and glossaries need of a profile: ``stash show --json``, the words explained, the command again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from stash.advice.verdict import Advice
from stash.analysis.breakdown import Breakdown
from stash.core.ladder import NOT_ASKED
from stash.core.records.profile import Profile
from stash.core.units import round_to_sum, significant_decimals
from stash.report import model_facts
from stash.report.model_facts import all_significant, round_digits
from stash.report.run_page import epoch_document

# The document that ``stash show --json`` prints: a contract with other programs, see docs/format.md.
# Rounds the breakdown sensibly and keeps its sums; what is not known is null. New keys may be added under the same
# ``schema``; removing one or changing its meaning raises it.

SCHEMA = 1
SECONDS_DIGITS = 6


def document(breakdown: Breakdown, advice: Advice, profile: Profile) -> dict[str, Any]:
    """Keys in the order of the contract; ``stalls[].seconds`` add up to ``step_seconds``."""
    decimals = significant_decimals(breakdown.step_seconds, SECONDS_DIGITS)
    seconds = round_to_sum([stall.seconds for stall in breakdown.stalls], decimals)
    shares = round_to_sum([stall.share for stall in breakdown.stalls], 4)
    stalls = [
        {
            "name": stall.name,
            "seconds": rounded,
            "low": _round_known(stall.low, decimals),
            "high": _round_known(stall.high, decimals),
            "share": share,
            "within_noise": stall.within_noise,
            "method": round_digits(stall.parts.method),
            "parts": all_significant(stall.parts.model_dump()),
        }
        for stall, rounded, share in zip(breakdown.stalls, seconds, shares, strict=True)
    ]
    paper = {key: _round_known(value, 1) for key, value in breakdown.paper.model_dump().items()}
    return {
        "schema": SCHEMA,
        "step_seconds": round(sum(seconds), decimals),
        "samples_per_second": round_digits(breakdown.samples_per_second),
        "rounds": breakdown.rounds,
        "world_size": breakdown.world_size,
        "nodes": breakdown.nodes,
        "stalls": stalls,
        "skipped": [missing.model_dump() for missing in breakdown.skipped],
        "paper": paper,
        "stability": {"ok": breakdown.stability.ok, "warnings": list(breakdown.stability.warnings)},
        "verdict": {
            "stall": advice.stall,
            "text": advice.text,
            "next_steps": list(advice.next_steps),
            "kind": advice.kind,
            "stalls": list(advice.stalls),
            "open": [
                {"name": stall.name, "high": _round_known(stall.high, decimals)}
                for stall in advice.open
            ],
            "budget_seconds": advice.budget_seconds,
        },
        **_extra_fields(breakdown, profile.left_files),
        "model": model_facts.document(breakdown, profile),
        "run": epoch_document(breakdown.run),
        "energy": model_facts.energy_document(breakdown, profile),
    }


def _extra_fields(breakdown: Breakdown, left_files: Sequence[str]) -> dict[str, Any]:
    typed = breakdown.as_typed
    disturbed = breakdown.disturbed
    step = breakdown.step

    def rounded(name: str) -> dict[str, Any] | None:
        record = getattr(breakdown, name)
        return all_significant(record.model_dump()) if record else None

    return {
        "step_low": round_digits(step.low, SECONDS_DIGITS),
        "step_high": round_digits(step.high, SECONDS_DIGITS),
        "rounds_dropped": breakdown.rounds_dropped,
        "rungs": list(breakdown.rungs),
        "rates": rounded("rates"),
        "communication": rounded("communication"),
        "slow_rank": rounded("slow_rank"),
        "surfacing": [all_significant(item.model_dump()) for item in breakdown.surfacing],
        "startup_seconds": round_digits(breakdown.startup_seconds),
        "notes": list(breakdown.notes),
        "left_files": list(left_files),
        "samples_per_step": round_digits(breakdown.samples_per_step),
        "by_waits": breakdown.by_waits,
        "waits": rounded("waits"),
        # Seconds of a step that was seen and is none of the stalls.
        "disturbed": None
        if disturbed is None
        else {
            "seconds": round_digits(disturbed.time.value, SECONDS_DIGITS),
            "low": round_digits(disturbed.time.low, SECONDS_DIGITS),
            "high": round_digits(disturbed.time.high, SECONDS_DIGITS),
            "steal": round_digits(disturbed.steal),
            "programs": [each.model_dump() for each in disturbed.programs],
        },
        # A step of the job before anything was changed: by which share it is longer than what was measured.
        "as_typed": None
        if typed is None
        else {
            "step_seconds": round_digits(typed.first.step.value, SECONDS_DIGITS),
            "steps": typed.first.steps,
            "share": round(typed.share, 4),
            "cause": typed.cause,
        },
        "host_lead": rounded("host_lead"),
    }


def _round_known(value: float | None, decimals: int) -> float | None:
    return None if value is None else round(value, decimals)


# The words of a report, for ``stash show --explain`` and the tutorial: each is explained only where it is used.

ALWAYS = {
    "step": "one optimizer step of all ranks together, all its gradient accumulation included",
    "rung": "a condition under which the same step is timed; each of the ladder adds one thing to the one below",
    "stall": "what a rung makes a step longer; the stalls add up to the step",
    "±": "half of the 95% interval that is to hold the truth; stalls without one were measured once",
    "unknown": "not measured, for the reason next to it, and not zero; contained in X: its time is part of row X",
    "within noise": "the interval contains zero: this stall may not exist; it may even be measured as negative",
    "saves about": "what a remedy gains by the forecast of `stash whatif`, not a promise",
}
ROWS = {
    "compute": "what one device needs for the step when nothing is in its way",
    "transfer": "copying the batch from the host's memory to the device",
    "contention": "all ranks at work at once without exchanging: shared memory, power and cores, and a slow rank",
    "bubble": "ranks of a pipeline stand still, for no microbatch is there for their stage: by the schedule, and by "
    "stages that are not equally slow",
    "interconnect": "waiting for gradients, shards or activations to be exchanged inside a machine",
    "network": "waiting for gradients, shards or activations to be exchanged between machines",
    "prep": "waiting for samples to be decoded, augmented and collated, their files being in memory",
    "fetch": "waiting for the disk, where files are not in memory",
}
BETWEEN = {
    "loop": "the script's own code on the training thread between steps; a step's compute contains it",
    "collector": "Python's garbage collector; a step's compute contains it",
    "interpreter": "waiting for Python's interpreter, which another thread has; a step's compute contains it",
    "epoch start": "from asking a loader for an iterator to its first batch, once an epoch: "
    "workers, sampler, pickling",
    "epoch end": "the script's own code from an epoch's last batch to the next epoch, without evaluation and saving",
    "evaluation": "forward passes that no step uses",
    "checkpoint": "saving the model's or the optimizer's state, as long as the training thread waits for it",
    "epoch": "a step, and its part of all that lies between the steps of an epoch",
}
"""Rows of an epoch that are no stalls."""
LABELS = {
    "disturbed": "what steps took longer than on a machine with nothing else to do, by the time for which the kernel "
    "counted their threads as ready and without a core; it is subtracted from every stall",
    "samples/s": "what the devices could train if no data were waited for, and what the loaders deliver while "
    "nothing trains; loaders slower than the devices make a data stall",
    "waited": "how long steps stood waiting for the loader: a second estimate of prep and fetch, which leaves out "
    "what workers cost the step otherwise",
    "gradients": "bytes each device exchanges in a step; exposed is what the step waits for them, interconnect and "
    "network together; when run alone, what the exchange takes with nothing else going on; the rest hides behind the "
    "backward pass. The rate is the bus bandwidth, payload / time x 2(p-1)/p for p ranks",
    "slowest": "a rank that is slower than the others even when nothing is exchanged",
    "host ahead": "by how much, at most, the host submits work before the device comes to it; where that is next to "
    "nothing, the device waits for the host",
    "hidden": "a stall that shows only once another is gone",
    "ranks share": "how the job's device mesh divides the work among ranks, axis by axis",
    "pipeline": "what its schedule must leave idle, played with equal stages; not what was measured",
    "bubble": "its passes as they were timed, played again with messages that take no time; means over ranks",
    "groups": "what ranks waited in collectives, as it was seen, and rank 0's bytes; only what all ranks of a group "
    "wait counts as exchange",
    "experts": "rows that ranks send each other by all_to_all_single with split sizes, without answers to them; what "
    "ranks wait less the more rows they get counts as uneven loads",
    "phases": "what the script names with stash.phase, means over ranks; a stall within a phase is part of it",
    "embeddings": "one step of rank 0, looked at; a dense gradient is as large as its table",
    "tokens": "places in the sequences of all replicas, padding included",
    "FLOPs": "counted by PyTorch's formulas for products, convolutions and attention; the peak is the catalog's, and "
    "the step is the one measured, stalls and all",
    "energy": "of what counts it (RAPL: processor packages, whoever uses them; NVML: whole GPUs), the power of the "
    "highest rung's blocks times the step",
    "loader": "starting the loader's workers, once an epoch unless they persist; no part of a step",
    "paper's %": "the percentages of the Stash paper, to compare with its own: of the step under the rung named, not "
    "of the whole step, and with contention counted as interconnect",
    "by waits": "data stalls that were measured as what steps waited, and not as a difference of rungs",
    "measured": "rounds, each of one block of steps under every rung; time; why measuring ended",
}


PARTS = {
    "noise": "what rounds leave open; the only part that measuring longer narrows",
    "method": "the method's own error, as seen on jobs whose stalls are known; never known of transfer, whose ± is "
    "noise and launch alone",
    "launch": "what another launch of the same job may be longer or shorter by",
    "correction": "how well the time that other work took is known, which was subtracted",
}


def explain_words(rows: Iterable[str], labels: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Word and meaning of everything in a report with these rows in its table and these labels in its details."""
    used = (
        ALWAYS
        | {row: (ROWS | BETWEEN)[row] for row in rows}
        | {label: LABELS[label] for label in labels if label in LABELS}
    )
    return tuple(used.items())


# The command that measures the same again: Stash's options as a profile records them, then the job's own words.
# What was masked as a secret stays masked, and where the ranks of several machines met was not recorded.

_PYTHON = (".py", ".pyc")


def command_line(profile: Profile) -> str:
    """One line to type into a shell, on each node of the job."""
    return " ".join(("stash profile", *_options(profile), *job_words(profile.workload.command)))


def _options(profile: Profile) -> Iterator[str]:
    settings = profile.settings
    if not settings.until_decided:
        yield f"--noise {100 * settings.precision:g}"
    yield f"--budget {settings.budget_seconds:g}"
    if any(skipped.why == NOT_ASKED for skipped in profile.skipped):
        yield f"--rungs {','.join(settings.rungs)}"
    if _is_python(profile.workload.command) and profile.world_size:
        # older profiles do not tell
        started = settings.started or profile.world_size // profile.nodes
        if started > 1 or profile.nodes > 1:
            yield f"--nproc-per-node {started}"
        if profile.nodes > 1:
            yield f"--nnodes {profile.nodes}"


def job_words(command: Sequence[str]) -> list[str]:
    """The job's own words, each as a shell takes it, behind ``--`` if they start another launcher."""
    return [*([] if _is_python(command) else ["--"]), *map(shlex.quote, command)]


def _is_python(command: Sequence[str]) -> bool:
    """Whether Stash started the ranks itself, of a script or a module, rather than another launcher."""
    return bool(command) and (command[0] == "-m" or command[0].endswith(_PYTHON))
