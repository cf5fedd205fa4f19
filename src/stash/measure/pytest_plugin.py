"""The pytest fixture ``stash_budget``: this training step may take so long, and its stalls be so large.

pytest imports this module in every session where Stash is installed, so it imports nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from stash.core.records.profile import Profile


@pytest.fixture
def stash_budget(request: pytest.FixtureRequest) -> Callable[..., Profile]:
    """Call it with a training function, its arguments, and limits: ``stash_budget(train, step="250ms", prep="9ms")``.

    The function is profiled as by ``stash.profile``, for at most ``budget`` (seconds, or ``"2m"``), in
    ``nproc_per_node`` processes. Limits are those of ``stash check --max``: the step or a stall, in time, or a stall
    as a share of the step (``"15%"``); ``samples_per_second`` is one from below. A limit that is broken by the whole
    95 % interval fails the test, one inside the interval skips it. Returns the profile; JUnit XML has its figures as
    properties.
    """

    def within(
        train: Callable[..., Any],
        *args: Any,
        budget: float | str = 60.0,
        nproc_per_node: int | None = None,
        samples_per_second: float | None = None,
        **limits: str,
    ) -> Profile:
        from stash.analysis import limits as judging
        from stash.analysis.attribution import attribute
        from stash.core.errors import UserError
        from stash.measure.from_python import profile

        wanted = [judging.parse_limit("--max", f"{name}={value}") for name, value in limits.items()]
        if samples_per_second is not None:
            wanted.append(judging.parse_limit("--min", f"samples/s={samples_per_second:g}"))
        if not wanted:
            raise UserError('stash_budget needs a limit, like step="250ms" or prep="20ms"')
        found = profile(train, *args, budget=budget, nproc_per_node=nproc_per_node, progress=False)
        breakdown = attribute(found, "the profile")
        figures = {stall.name: stall.seconds for stall in breakdown.stalls}
        for name, seconds in {"step": breakdown.step_seconds, **figures}.items():
            request.node.user_properties.append((f"stash.{name}_seconds", seconds))
        decisions = [judging.judge_limit(limit, [breakdown]) for limit in wanted]
        verdict = judging.overall_verdict(decisions)
        not_kept = [each for each in decisions if each.verdict != judging.PASSES]
        text = "\n".join(f"{each.verdict}: {each.sentence}" for each in not_kept)
        if verdict == judging.FAILS:
            pytest.fail(text, pytrace=False)
        if verdict == judging.CANNOT_TELL:
            pytest.skip(f"{text}; a larger budget tells")
        return found

    return within
