"""What commands share of their command line: an option in one line, numbers above zero.

Knows how options are spelt and checked; what they are for, the commands know.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from stash.core.errors import UnitError, UserError

MIN_PERCENT = 0.05


# Commands --------------------------------------------------------------------------------------------------


class _HelpIsAFlag:
    """Some versions of typer show ``--help`` as if a value followed it."""

    def get_help_option(self, context: Any) -> Any:
        shown = super().get_help_option(context)  # type: ignore[misc]
        if shown is not None:
            shown.metavar = ""
        return shown


class OneCommand(_HelpIsAFlag, TyperCommand):
    """One command."""


class CommandGroup(_HelpIsAFlag, TyperGroup):
    """A command with commands of its own."""


class App(typer.Typer):
    """A ``typer.Typer`` of these two."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=CommandGroup, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[..., Any]:
        return super().command(name, **{"cls": OneCommand, **settings})


# Options ---------------------------------------------------------------------------------------------------


def option(
    metavar: str, text: str, *names: str, panel: str | None = None, least: int | None = None
) -> typer.models.OptionInfo:
    """An option that takes a value; its name is the parameter's unless ``names`` are given."""
    made: typer.models.OptionInfo = typer.Option(*names, metavar=metavar, help=text, min=least, rich_help_panel=panel)
    return made


def flag(name: str, text: str, panel: str | None = None) -> typer.models.OptionInfo:
    """An option that is given or not, which help must not show as if a value followed it."""
    made: typer.models.OptionInfo = typer.Option(name, metavar="", help=text, rich_help_panel=panel)
    return made


def positive(name: str, value: float, words: str = "more than 0", finite: bool = False) -> float:
    """``value``; raises UserError saying that the option must be ``words`` if it is not."""
    if not value > 0 or (finite and not math.isfinite(value)):  # what is no number is not above 0 either
        raise UserError(f"{name} {value:g}: it must be {words}{'' if math.isfinite(value) else ', and finite'}")
    return value


def seconds_of(name: str, text: str, zero: bool = False) -> float:
    """The duration that option ``name`` was given, above 0 unless ``zero`` may be.

    Only of ``--seconds`` a bare number says its unit.
    """
    from stash.core.units import parse_seconds

    try:
        value = parse_seconds(text, named="s" if name == "--seconds" else "")
    except UnitError as error:
        raise UnitError(f"{name} {text}: {error}") from None
    return value if zero and value == 0 else positive(name, value, finite=True)


def percent(name: str, value: float) -> float:
    """The fraction that ``value`` per cent are; raises UserError for what looks like a fraction already.

    No step is known to a two-thousandth of itself, so what is less is Python's way of writing it (0.02 for 2 %).
    """
    if 0 < value < MIN_PERCENT:
        raise UserError(
            f"{name} {value:g} would be {value:g} % of the step: it is given in per cent, so for a fraction of "
            f"{value:g} type {name} {value * 100:g}"
        )
    return positive(name, value) / 100


PublicOption = Annotated[
    bool, flag("--public", "Let others read what is written, as your umask allows; else only you may.")
]
