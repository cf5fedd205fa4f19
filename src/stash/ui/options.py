"""How an option is declared: once, as a field of a model that the command, Python and the help all use.

A model is a frozen dataclass below ``Options``. Its fields say by ``option``, ``flag`` and ``argument`` how they are
called, explained and read. Texts are read when the model is made, so ``PlanOptions(deadline="24h")`` is what
``--deadline 24h`` makes, with the same errors. How a command line becomes a model is ``ui.commands``'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Literal

from stash.core.errors import UserError
from stash.core.printable import shorten_text

_KEY = "stash option"
_MAX_TEXT = 200
"""Characters of what was typed that an error repeats."""


def _text(text: str) -> str:
    return text


@dataclass(frozen=True)
class Option:
    """How one field is given on the command line."""

    metavar: str
    help: str
    read: Callable[[str], Any] = _text
    """From what was typed to the value; raises UserError."""
    names: tuple[str, ...] = ()
    """Else made of the field's name."""
    panel: str | None = None
    """Of the help."""
    many: bool = False
    """Whether it may be given several times: the value is a tuple."""
    kind: Literal["option", "flag", "argument"] = "option"
    default: Any = None
    """As it was declared, ``...`` where it must be given."""
    project: Callable[[str], object] | None = None
    """Checks the text that a pyproject.toml gives, if one may (``ui.project``); raises UserError."""

    def name(self, field_name: str) -> str:
        """The option's longest name, or how an argument is shown."""
        if self.kind == "argument":
            return self.metavar
        return max(self.names, key=len, default=f"--{field_name.replace('_', '-')}")


def option(
    metavar: str,
    help: str,
    read: Callable[[str], Any] = _text,
    *names: str,
    default: Any = None,
    panel: str | None = None,
    many: bool = False,
    project: Callable[[str], object] | None = None,
) -> Any:
    """An option that takes a value, ``None`` (of ``many``: no values) unless given; ``default=...``: it must be."""
    return _declare_field(
        Option(metavar, help, read, names, panel, many, default=default, project=project)
    )


def flag(help: str, *names: str, panel: str | None = None) -> Any:
    """An option that is given or not."""
    return _declare_field(Option("", help, names=names, panel=panel, kind="flag", default=False))


def argument(
    metavar: str,
    help: str,
    read: Callable[[str], Any] = _text,
    *,
    many: bool = False,
    default: Any = ...,
) -> Any:
    """A word of the command line that has no name of its own; it must be given unless there is a ``default``."""
    return _declare_field(Option(metavar, help, read, many=many, kind="argument", default=default))


def quiet_flag() -> Any:
    """``--quiet``; the command gives it to ``ui.terminal.progress_console``."""
    return flag("Print the result without progress and notes.", "-q", "--quiet")


def json_flag(
    help: str = "Print JSON; docs/format.md documents its keys.", panel: str | None = None
) -> Any:
    """``--json``."""
    return flag(help, panel=panel)


def markdown_flag() -> Any:
    """``--markdown``."""
    return flag("Print Markdown for a comment or a ticket.")


def _declare_field(one: Option) -> Any:
    if one.default is ...:
        return field(metadata={_KEY: one})
    return field(
        default=() if one.many and one.default is None else one.default, metadata={_KEY: one}
    )


def check_one_format(options: Options) -> None:
    """Raise UserError if options ask for JSON and for Markdown."""
    if len(ways := options.list_given("json", "markdown")) > 1:
        raise UserError(f"{' and '.join(ways)} are two formats of one answer; give one of them")


class Options:
    """Base of the models: texts are read, then ``check`` refuses what contradicts itself."""

    typed: Mapping[str, Any]
    """Fields that were given as text, as they were typed."""
    from_project: frozenset[str] = frozenset()
    """Fields that nobody typed, but a pyproject.toml gives."""
    common: ClassVar[tuple[str, ...]] = ()
    """Fields that ``--help`` shows of a model with many; ``--help-all`` shows all."""

    def __post_init__(self) -> None:
        typed: dict[str, Any] = {}
        for name, declared in declarations(type(self)).items():
            value = getattr(self, name)
            if value != declared.default and (isinstance(value, str) or declared.many):
                typed[name] = tuple(value) if declared.many else value
            many = declared.many
            read = (
                tuple(_read(declared, name, each) for each in value)
                if many
                else _read(declared, name, value)
            )
            object.__setattr__(self, name, read)
        object.__setattr__(self, "typed", typed)
        self.check()

    def check(self) -> None:
        """Raise UserError for options that contradict each other."""

    def list_given(self, *names: str) -> list[str]:
        """Name those of these fields, none with a default, that were typed, as the options are called."""
        known = declarations(type(self))
        return [
            known[name].name(name)
            for name in names
            if name not in self.from_project
            and getattr(self, name) not in (None, (), known[name].default)
        ]


def _read(declared: Option, name: str, value: Any) -> Any:
    if not isinstance(value, str) or declared.kind == "flag":
        return value
    return read_as(declared.name(name), declared.read, value)


def read_as(name: str, read: Callable[[str], Any], text: str) -> Any:
    """What ``read`` makes of ``text``; its errors say which option and what was typed."""
    try:
        return read(text)
    except UserError as error:
        raise type(error)(f"{name} {shorten_text(text.strip(), _MAX_TEXT)}: {error}") from None


def declarations(model: type) -> dict[str, Option]:
    """Find how each field of a model is given: none of what is no model."""
    if model not in _KNOWN:
        declared = fields(model) if is_dataclass(model) else ()
        _KNOWN[model] = {
            each.name: each.metadata[_KEY] for each in declared if _KEY in each.metadata
        }
    return _KNOWN[model]


_KNOWN: dict[type, dict[str, Option]] = {}
