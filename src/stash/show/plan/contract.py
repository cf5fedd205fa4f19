"""The document that ``stash recommend --json`` prints: a contract, see docs/format.md.

It is the plan's record, with what is derived from it added, so that it can be read back as a ``*.plan.json``.
"""

from __future__ import annotations

from typing import Any

from stash.base.plan import Choice, RentalPlan


def document(plan: RentalPlan) -> dict[str, Any]:
    """Of one plan; seconds, bytes and dollars; what is not known is null."""
    told = plan.model_dump(mode="json")
    told["choices"] = [
        {**_derived(choice), **written} for choice, written in zip(plan.choices, told["choices"], strict=True)
    ]
    return {"chosen": None if plan.chosen is None else plan.chosen.name, **told}


def _derived(choice: Choice) -> dict[str, Any]:
    return {"name": choice.name, "samples_per_second": choice.samples_per_second}
