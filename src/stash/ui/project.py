"""``[tool.stash]`` of the nearest pyproject.toml: what a project sets for its budgets and limits.

``[tool.stash.profile] budget = "90s"`` is what ``--budget 90s`` would be if nobody typed it. Only options declared
with ``project=`` can be set: none that names a file, a machine or a command to run, since whoever can write a
folder above would decide on it. ``power-price`` is of no command: what a kilowatt-hour costs where the job runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stash.core.errors import UnitError, UserError
from stash.core.files import read_up_to
from stash.core.units import find_nearest, power_price
from stash.ui.options import Option, read_as

COMMANDS = ("check", "profile", "watch")
"""Commands with such options."""
POWER_PRICE = "power-price"
_FILE = "pyproject.toml"
_MOST = 1 << 20
"""Bytes that are read of it."""


class ProjectDefaults(dict[str, "str | list[str]"]):
    """What a file sets for one command: by field of its options, as it would be typed."""

    def __init__(self, file: Path, values: Mapping[str, str | list[str]]) -> None:
        super().__init__(values)
        self.file = file


def find_table(folder: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """Find the nearest pyproject.toml, here or above, with a ``[tool.stash]``; raises UserError for a broken one."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    for above in (folder, *folder.parents):
        file = above / _FILE
        if not (file.is_file() and os.access(file, os.R_OK)):
            continue
        try:
            table = tomllib.loads(read_up_to(file, _MOST).decode()).get("tool", {})
            table = table.get("stash") if isinstance(table, dict) else None
        except ValueError as error:
            raise UserError(f"{file} is not valid TOML: {error}") from None
        if table is not None:
            return file, table
    return None


def read_defaults(
    command: str, declared: Mapping[str, Option], folder: Path
) -> ProjectDefaults | None:
    """What the project sets for ``command``; raises UserError that names the file, the key, and what to write."""
    found = find_table(folder)
    if found is None:
        return None
    file, table = found
    _check_names(file, "tool.stash", table, (*COMMANDS, POWER_PRICE))
    keys = {one.name(name)[2:]: name for name, one in declared.items() if one.project}
    section = table.get(command, {})
    _check_names(file, f"tool.stash.{command}", section, keys)
    where = f"{file}: [tool.stash.{command}]"
    return ProjectDefaults(
        file,
        {
            keys[key]: _typed(f"{where} {key}", declared[keys[key]], value)
            for key, value in section.items()
        },
    )


def read_power_price(folder: Path) -> float | None:
    """Dollars per kilowatt-hour, if the project says so; raises UserError for what is no such price."""
    found = find_table(folder)
    if found is None or not isinstance(found[1], dict) or POWER_PRICE not in found[1]:
        return None
    file, table = found
    try:
        return power_price(table[POWER_PRICE])
    except UnitError as error:
        raise UserError(f"{file}: [tool.stash] {POWER_PRICE}: {error}") from None


def _check_names(file: Path, where: str, table: Any, known: Any) -> None:
    if not isinstance(table, dict):
        raise UserError(f"{file}: {where} is not a table; write [{where}]")
    for name in table:
        if name not in known:
            alike = find_nearest(name, known, 1)
            hint = f"did you mean {alike[0]}?" if alike else f"there are {', '.join(known)}"
            raise UserError(f"{file}: [{where}] has no key {name}; {hint}")


def _typed(where: str, declared: Option, value: Any) -> str | list[str]:
    """A value as it would be typed, if the option can read it."""
    texts = value if isinstance(value, list) and declared.many else [value]
    for text in texts:
        if isinstance(text, bool) or not isinstance(text, (str, int, float)):
            raise UserError(f'{where}: should be a text as it is typed, like "{declared.metavar}"')
        assert declared.project is not None
        read_as(f"{where} =", declared.project, str(text))
    return [str(text) for text in texts] if declared.many else str(value)
