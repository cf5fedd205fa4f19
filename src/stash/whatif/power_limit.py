"""What a lower power limit of its GPUs makes of a profiled step: how much longer it takes, and on how much energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stash.analysis.breakdown import Breakdown
from stash.analysis.usage import gpu_watts, step_energy
from stash.catalog.facts import GpuFacts, found_by_name
from stash.core.errors import UserError
from stash.core.formatting import join_names, plus_minus
from stash.core.intervals import Interval
from stash.core.records.profile import Profile
from stash.core.units import SECONDS, scale_for
from stash.predict.passes import profile_command
from stash.predict.power_limits import PowerEffect, power_points, shipped_fit
from stash.report.model_facts import all_significant, format_energy, round_digits
from stash.ui.page import Chapter, Page

SCHEMA = 1


@dataclass(frozen=True)
class PowerAnswer:
    """Powers are watts of one GPU."""

    workload: str
    gpu: str
    limit: float
    default: float
    draw: float
    """As the profile counted it."""
    effect: PowerEffect
    step: Interval
    """As it was measured."""
    gpu_joules: float | None
    """Of that step."""

    @property
    def limited_step(self) -> Interval:
        """With the limit: the spread of the step and of the published curves."""
        found = self.effect.seconds.scale(self.step.value)
        half = self.step.half_width
        return Interval(value=found.value) if half is None else found.add_error(half)


def limit_power(
    profile: Profile, breakdown: Breakdown, watts: float, known: Sequence[GpuFacts]
) -> PowerAnswer:
    """The answer; raises UserError where no published curve can give one."""
    if profile.is_on_cpu:
        raise UserError(
            f"--power-limit {watts:g}: the job was profiled on CPUs, and published limits are of GPUs; run `stash "
            "profile` on a machine with GPUs first"
        )
    names = sorted({gpu.name for host in profile.hosts for gpu in host.gpus})
    found = found_by_name(names[0], known) if len(names) == 1 else []
    defaults = {gpu.watts for gpu in found}
    default = defaults.pop() if len(defaults) == 1 else None
    if default is None:
        raise UserError(
            f"--power-limit {watts:g}: the default limit of {join_names(names) or 'its GPUs'} is unknown; profile on "
            "GPUs of one type that `stash catalog` lists with their power"
        )
    least = min(point.limit for point in power_points())
    if not least <= watts / default <= 1:
        raise UserError(
            f"--power-limit {watts:g}: {found[0].name} has {default:g} W, and published limits reach down to "
            f"{least:.0%} of that; give {least * default:.0f} to {default:g}"
        )
    draw = gpu_watts(profile.energy)
    if draw is None:
        raise UserError(
            f"--power-limit {watts:g}: what a limit does follows from what the job draws without it, and the energy of "
            f"its GPUs was not counted; run `{profile_command(profile)}` again, where their driver counts it"
        )
    energy = step_energy(breakdown, profile.energy)
    return PowerAnswer(
        workload=profile.workload.name,
        gpu=found[0].name,
        limit=watts,
        default=default,
        draw=draw,
        effect=shipped_fit().predict(watts / default, draw / default),
        step=breakdown.step,
        gpu_joules=None if energy is None else energy.parts.get("gpus"),
    )


def page(answer: PowerAnswer) -> Page:
    return Page(
        title=answer.workload,
        subtitle=(
            f"what if each {answer.gpu} has {answer.limit:g} W instead of {answer.default:g} W",
        ),
        verdict=(_verdict(answer),),
        chapters=(Chapter("why", "Why", facts=_reasons(answer), brief=True),),
    )


def _verdict(answer: PowerAnswer) -> str:
    scale = scale_for(answer.step.value, SECONDS)
    before, after = (
        f"{scale.number(time.value)} {plus_minus(time, scale)} {scale.unit}"
        for time in (answer.step, answer.limited_step)
    )
    seconds, joules = map(_times, answer.effect)
    return (
        f"A step would take {after} instead of {before}, {seconds} times as long, and its GPUs {joules} times "
        "the energy."
    )


def _times(ratio: Interval) -> str:
    return f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _reasons(answer: PowerAnswer) -> tuple[tuple[str, str], ...]:
    points = power_points()
    models, gpus = ({getattr(point, name) for point in points} for name in ("model", "gpu"))
    energy = "" if answer.gpu_joules is None else f"{format_energy(answer.gpu_joules)} a step now; "
    curves = (
        f"{len(models)} models on {join_names(sorted(gpus))} (ml-energy/zeus, 2023-04), relative to default limits; "
        "of other GPUs no curve is published here"
    )
    return (
        ("draw", f"{answer.draw:.0f} W a GPU in the profile"),
        (
            "energy",
            f"{energy}of the GPUs alone: the rest of the machine draws on while steps take longer",
        ),
        ("curves", curves),
        ("next", f"set it with `sudo nvidia-smi -pl {answer.limit:g}` and profile again"),
    )


def document(answer: PowerAnswer) -> dict[str, Any]:
    """``stash whatif --power-limit WATTS --json``: a contract, see docs/format.md; null is unknown."""
    return {
        "schema": SCHEMA,
        "workload": answer.workload,
        "gpu": answer.gpu,
        "limit_watts": answer.limit,
        "default_watts": answer.default,
        "draw_watts": round_digits(answer.draw),
        "step_seconds": all_significant(answer.step.model_dump()),
        "limited_step_seconds": all_significant(answer.limited_step.model_dump()),
        "times_seconds": all_significant(answer.effect.seconds.model_dump()),
        "times_gpu_joules": all_significant(answer.effect.joules.model_dump()),
        "gpu_joules": round_digits(answer.gpu_joules),
    }
