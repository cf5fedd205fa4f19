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
    "step": "one optimizer step of all ranks together, including its gradient accumulation",
    "rung": "a condition under which the same step is timed; each rung of the ladder adds one thing to the one below",
    "stall": "the time that one rung adds to the step; compute and all stalls add up to the step",
    "±": "half the width of the 95% interval, or +a −b where it is lopsided; a stall without one was measured once",
    "unknown": 'not measured, for the reason given; this does not mean zero. "Contained in X": its time is in row X',
    "within noise": "the interval contains zero, so this stall may not exist; its estimate may even be negative",
    "saves about": "the gain that `stash whatif` forecasts for a remedy: an estimate, not a promise",
}
ROWS = {
    "compute": "the time of the step on one device with nothing in its way",
    "transfer": "copying the batch from the host's memory to the device",
    "contention": "the cost of all ranks working at once, without exchange: shared memory, power and cores, or a slow rank",
    "bubble": "pipeline ranks idle because no microbatch has reached their stage, due to the schedule or to stages of "
    "unequal speed",
    "interconnect": "waiting for gradients, shards or activations to be exchanged inside a machine",
    "network": "waiting for gradients, shards or activations to be exchanged between machines",
    "prep": "waiting for samples to be decoded, augmented and collated, with their files already in memory",
    "fetch": "waiting for the disk to read files that are not in memory",
}
BETWEEN = {
    "loop": "the script's own code between steps, on the training thread; in the table of the step it is part of compute",
    "collector": "Python's garbage collector; in the table of the step it is part of compute",
    "compilation": "torch.compile after the first step: again; in the table of the step it is part of compute",
    "interpreter": "waiting for another thread to release Python's interpreter; in the table of the step it is part of "
    "compute",
    "collective": "collectives that the script itself calls, where no rung of the ladder goes without them; in the table "
    "of the step they are part of compute",
    "input": "waiting for the loader, where no rung of the ladder goes without it; in the table of the step it is part of "
    "compute",
    "epoch start": "once an epoch, the time until a new iterator of the loader gives its first batch: starting workers, "
    "sampler, pickling",
    "epoch end": "the script's own code between an epoch's last batch and the next epoch, except evaluation and saving",
    "evaluation": "forward passes that belong to no training step",
    "checkpoint": "saving the model's or optimizer's state, while the training thread waits",
    "epoch": "the average time per step over a whole epoch, with everything between steps",
}
"""Rows of an epoch that are no stalls."""
LABELS = {
    "disturbed": "the time that other processes cost the step: while its threads were ready to run and had no core, as the "
    "kernel counts it; it is subtracted from every stall",
    "samples/s": "the rate of the devices if they never waited for data, and of the loaders while nothing trains; loaders "
    "slower than the devices cause a data stall",
    "waited": "how long steps waited for the loader: a second estimate of prep and fetch, without the cores and memory "
    "that workers take from the step",
    "gradients": "bytes each device exchanges in a step; exposed is what the step waits for them, interconnect and "
    "network together; when run alone, what the exchange takes with nothing else going on; the rest hides behind the "
    "backward pass. The rate is the bus bandwidth, payload / time x 2(p-1)/p for p ranks",
    "slowest": "the rank that is slower than the others even without exchange",
    "host ahead": "how far ahead of the device the host submits work, at most; if close to zero, the device waits "
    "for the host",
    "hidden": "a stall that only shows once another is removed",
    "ranks share": "how the job's device mesh divides the work among ranks, axis by axis",
    "pipeline": "the idle time its schedule implies with equal stages, simulated; not a measurement",
    "bubble": "a simulation of its timed passes with messages that take no time; means over ranks",
    "groups": "the time ranks were seen waiting in collectives, and rank 0's bytes; only waiting that all ranks of a group "
    "share counts as exchange",
    "experts": "rows that ranks send each other by all_to_all_single with split sizes, not counting the replies; waiting "
    "that shrinks as a rank gets more rows counts as uneven load",
    "phases": "what the script marks with stash.phase, means over ranks; a phase includes the stalls inside it",
    "embeddings": "as seen in one step of rank 0; a dense gradient is as large as its table",
    "tokens": "positions in the sequences of all replicas, including padding",
    "FLOPs": "counted with PyTorch's formulas for matrix products, convolutions and attention; relative to the catalog's "
    "peak, over the measured step including its stalls",
    "energy": "of what counts it (RAPL: processor packages, whoever uses them; NVML: whole GPUs), the power of the "
    "highest rung's blocks times the step",
    "loader": "starting the loader's workers, once an epoch unless they persist; not part of a step",
    "paper's %": "percentages to compare with the Stash paper: of the step under the named rung rather than of the whole "
    "step, with contention counted as interconnect",
    "by waits": "data stalls measured as the time that steps waited, not as a difference between rungs",
    "measured": "the rounds (each times one block of steps under every rung), the time, and why measuring ended",
}


PARTS = {
    "noise": "the scatter between rounds, the only part that measuring longer narrows",
    "method": "the method's own error, as found on jobs with known stalls; not known for transfer, whose ± is only "
    "noise and launch",
    "launch": "how much another launch of the same job may differ",
    "correction": "the uncertainty of the time subtracted for other processes",
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
