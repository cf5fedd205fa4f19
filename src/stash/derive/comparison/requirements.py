"""Facts that must be so for a check to mean anything: as many ranks, that precision, this machine.

A fact is one that comparisons name (``facts.told``), as text. A requirement *passes* if every profile says it and
*fails* if one says another, and nobody can tell where one does not know.
"""

from __future__ import annotations

from collections.abc import Mapping

from stash.base.errors import UserError
from stash.base.records import Profile, Record
from stash.derive.comparison.facts import UNSAID, told
from stash.derive.comparison.limits import CANNOT_TELL, FAILS, PASSES, Decision

_ALSO = {"batch": "batch per device", "world size": "ranks", "gpu": "gpus"}
"""Other words for a fact; without regard to case, and with ``_`` for a blank."""


class Requirement(Record):
    """One fact and what it must be."""

    name: str
    value: str
    typed: str
    """The whole option, as somebody typed it."""


def parse_requirement(text: str) -> Requirement:
    """What ``--require ranks=8`` asks for; raises UserError."""
    name, sign, value = (part.strip() for part in text.partition("="))
    if not (name and sign and value):
        raise UserError(f"cannot read --require {text!r}; write NAME=VALUE, like ranks=8 or precision=bfloat16")
    return Requirement(name=name, value=value, typed=f"--require {text}")


def required(requirement: Requirement, profiles: Mapping[str, Profile]) -> Decision:
    """Whether all profiles, by their names, say so; raises UserError if there is no such fact."""
    found = {source: _fact(requirement, profile) for source, profile in profiles.items()}
    said = dict.fromkeys(found.values())
    others = [value for value in said if value not in (UNSAID, requirement.value)]
    wrong = [value for value in others if value.casefold() != requirement.value.casefold()]
    verdict = FAILS if wrong else CANNOT_TELL if UNSAID in said else PASSES
    return Decision(
        limit=requirement.typed,
        verdict=verdict,
        sentence=f"{requirement.name} is {' or '.join(said)}; asked for is {requirement.value}",
    )


def _fact(requirement: Requirement, profile: Profile) -> str:
    facts = told(profile)
    known = {_plain(name): name for name in facts}
    wanted = _plain(requirement.name)
    name = known.get(_ALSO.get(wanted, wanted))
    if name is None:
        raise UserError(f"{requirement.typed}: no profile says that; what it says is {', '.join(facts)}")
    return facts[name]


def _plain(name: str) -> str:
    return name.casefold().replace("_", " ").replace("-", " ")
