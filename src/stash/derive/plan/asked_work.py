"""How much is to be trained, from what was typed: epochs, samples, steps or tokens, or a data set's name.

What was not typed comes from the profile where that knows it. Every way of saying it ends in samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stash.base.errors import UserError
from stash.base.plan import TrainingWork
from stash.base.words.quantities import listed
from stash.base.words.units import parse_count
from stash.derive.plan.typed import number
from stash.keep.catalog.datasets import known_dataset

EXAMPLE = "--epochs 90 --samples 1281167"
_WAYS = ("epochs", "steps", "tokens")


@dataclass(frozen=True)
class TrainedJob:
    """What a profile knows of how much its job trains."""

    samples_per_step: float | None = None
    """Of the whole job, as it was profiled."""
    dataset_samples: int | None = None


def work(typed: Mapping[str, str], job: TrainedJob) -> TrainingWork:
    """The training that these options ask for, by their names; raises UserError if they do not agree on one."""
    ways = [name for name in _WAYS if name in typed]
    if len(ways) > 1:
        raise UserError(f"--{ways[0]} and --{ways[1]} both say how much is to be trained; give one of them")
    _refuse_idle(typed, ways)
    if ways == ["steps"]:
        return _of_steps(typed, job)
    if ways == ["tokens"]:
        return _of_tokens(number(typed, "tokens", parse_count), "", typed)
    if "dataset" in typed and "samples" in typed:
        raise UserError("--samples and --dataset both say how large an epoch is; give one of them")
    if ways == ["epochs"] or "dataset" in typed:
        return _of_epochs(typed, job)
    if "samples" in typed:
        samples = number(typed, "samples", parse_count)
        return TrainingWork(samples=samples, text=f"{samples:,.0f} samples")
    raise UserError(
        f"how much is to be trained? Say it like {EXAMPLE}, --epochs 90 --dataset imagenet, --samples 50M, --steps "
        "100k or --tokens 300B --tokens-per-sample 1024"
    )


def _refuse_idle(typed: Mapping[str, str], ways: list[str]) -> None:
    """Options that would say nothing beside others."""
    for way in ("steps", "tokens"):
        beside = [f"--{name}" for name in ("samples", "dataset") if name in typed]
        if way in ways and beside:
            raise UserError(f"--{way} and {listed(beside)} both say how much is to be trained; give one of them")
    if "tokens-per-sample" in typed and "tokens" not in typed and "dataset" not in typed:
        raise UserError("--tokens-per-sample turns tokens into samples; say how many, like --tokens 300B")


def _of_steps(typed: Mapping[str, str], job: TrainedJob) -> TrainingWork:
    steps = number(typed, "steps", parse_count)
    if job.samples_per_step is None:
        raise UserError(
            "--steps: the profile does not know how many samples a step has; give --samples instead, or profile "
            "with --batch"
        )
    samples = steps * job.samples_per_step
    text = f"{steps:,.0f} steps of {job.samples_per_step:,.0f} samples, as profiled: {samples:,.0f} samples"
    return TrainingWork(samples=samples, text=text)


def _of_epochs(typed: Mapping[str, str], job: TrainedJob) -> TrainingWork:
    epochs = number(typed, "epochs", parse_count) if "epochs" in typed else 1.0
    many = f"{epochs:g} epoch{'' if epochs == 1 else 's'}"
    if "samples" in typed:
        samples = number(typed, "samples", parse_count)
        return TrainingWork(samples=epochs * samples, text=f"{many} of {samples:,.0f} samples")
    if "dataset" in typed:
        found = known_dataset(typed["dataset"])
        if found.samples is None:
            return _of_tokens(epochs * (found.tokens or 0), f"{many} of {found.name}: ", typed)
        return TrainingWork(samples=epochs * found.samples, text=f"{many} of {found.name}, {found.samples:,} samples")
    if job.dataset_samples is None:
        raise UserError(
            "--epochs: how large is an epoch? The profile does not know; add --samples 1281167, or --dataset imagenet"
        )
    text = f"{many} of {job.dataset_samples:,} samples, as profiled"
    return TrainingWork(samples=epochs * job.dataset_samples, text=text)


def _of_tokens(tokens: float, about: str, typed: Mapping[str, str]) -> TrainingWork:
    if "tokens-per-sample" not in typed:
        raise UserError(
            f"{about}{tokens:,.0f} tokens are how many samples? Add --tokens-per-sample, the length of a sequence, "
            "like 1024"
        )
    length = number(typed, "tokens-per-sample", parse_count)
    samples = tokens / length
    text = f"{about}{tokens:,.0f} tokens, {length:,.0f} a sample: {samples:,.0f} samples"
    return TrainingWork(samples=samples, text=text)
