"""What is wrong with fields that make no record, in few words."""

from __future__ import annotations

from pydantic import ValidationError


def first_mistake(error: ValidationError, *above: str) -> str:
    """The first wrong field, as it is called below ``above``, and why: ``workload.batch: field required``."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join([*above, *map(str, first['loc'])])}: {first['msg'].lower()}"
