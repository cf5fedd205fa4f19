"""Commands of the command line, made of functions that take a model of options; groups that load them when needed."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, update_wrapper
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from stash.core.errors import StashError
from stash.core.printable import printable_line
from stash.ui.options import Options, declarations


def _show_all(ctx: typer.Context, wanted: bool) -> None:
    """Print the whole help, and end."""
    if wanted and not ctx.resilient_parsing:
        print(ctx.command.whole_help(ctx))  # type: ignore[attr-defined]
        raise typer.Exit


HELP_ALL: Any = typer.Option(
    "--help-all",
    metavar="",
    callback=_show_all,
    is_eager=True,
    expose_value=False,
    help="Show all options and commands.",
)


class _PlainHelp:
    """Help as ``ui.help`` lays it out, the same whatever version of typer there is."""

    params: list[Any]

    @property
    def uncommon(self) -> frozenset[str]:
        """Options by field, or commands, that ``--help-all`` shows and ``--help`` does not."""
        return frozenset()

    def get_help_option(self, context: Any) -> Any:
        shown = super().get_help_option(context)  # type: ignore[misc]
        if shown is not None:
            shown.metavar = ""  # some versions show it as if a value followed
            shown.help = "Show this help."
        return shown

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        from stash.ui.help import usage_pieces

        return usage_pieces(self.params)

    def format_help(self, context: Any, formatter: Any) -> None:
        formatter.write(self._write_help(context, False))

    def whole_help(self, context: Any) -> str:
        """What ``--help-all`` shows."""
        return self._write_help(context, True)

    def _write_help(self, context: Any, everything: bool) -> str:
        from stash.ui.help import help_text

        return help_text(self, context, everything)


class OneCommand(_PlainHelp, TyperCommand):
    """One command; its errors say whether it was asked for JSON."""

    @property
    def uncommon(self) -> frozenset[str]:
        model = getattr(self.callback, "model", Options)
        named = {name for name, one in declarations(model).items() if one.kind != "argument"}
        return frozenset(named.difference(model.common)) if model.common else frozenset()

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        declared = declarations(getattr(self.callback, "model", Options))
        if any(one.project for one in declared.values()) and not extra.get("resilient_parsing"):
            from stash.ui.project import read_defaults

            extra["default_map"] = read_defaults(str(info_name), declared, Path.cwd())
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except StashError as error:
            error.as_json = ctx.params.get("json") is True
            raise

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        wants_json = "--json" in args and any(each.name == "json" for each in self.params)
        try:
            return super().parse_args(ctx, args)
        except (
            Exception
        ) as error:  # click's own, whose class some versions of typer keep to themselves
            error.as_json = wants_json  # type: ignore[attr-defined]
            raise


class CommandGroup(_PlainHelp, TyperGroup):
    """A command with commands of its own."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", "[COMMAND …]" if self.invoke_without_command else "COMMAND …"]


class App(typer.Typer):
    """A ``typer.Typer`` of these two, whose functions may take a model of options, and the context after it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            **{"cls": CommandGroup, "add_completion": False, "rich_markup_mode": None, **settings}
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[..., Any]:
        def register_command(function: Callable[..., Any]) -> Callable[..., Any]:
            usual = {"cls": getattr(_model(function), "parsed_by", OneCommand)}
            super(App, self).command(name, **{**usual, **settings})(bind_options(function))
            return function

        return register_command

    def callback(self, **settings: Any) -> Callable[..., Any]:
        def register_callback(function: Callable[..., Any]) -> Callable[..., Any]:
            super(App, self).callback(**settings)(bind_options(function))
            return function

        return register_callback


def bind_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function for typer that makes the model which ``function`` takes; ``function`` itself if it takes none."""
    model = _model(function)
    if model is None:
        return function
    takes_context = len(inspect.signature(function).parameters) > 1
    declared = declarations(model)

    def run(context: typer.Context, **texts: Any) -> Any:
        given = {
            name: value for name, value in texts.items() if value is not None and name in declared
        }
        options = model(**given)
        object.__setattr__(
            options, "from_project", frozenset(filter(partial(_is_of_project, context), given))
        )
        return function(options, context) if takes_context else function(options)

    run.__signature__ = inspect.Signature(list(_parameters(model)))  # type: ignore[attr-defined]
    run.model = model  # type: ignore[attr-defined]
    update_wrapper(run, function, ("__name__", "__doc__", "__module__"), ())
    del run.__wrapped__  # type: ignore[attr-defined] # else typer reads the hints of that
    return run


def _is_of_project(context: typer.Context, name: str) -> bool:
    """Whether nobody typed the option, but a pyproject.toml gives it."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT_MAP"


def _model(function: Callable[..., Any]) -> type[Options] | None:
    """The options model that ``function`` takes first."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    model = None if first is None else function.__globals__.get(first.annotation)
    return model if isinstance(model, type) and issubclass(model, Options) else None


def _parameters(model: type[Options]) -> Iterator[inspect.Parameter]:
    """Typer's parameters: every value is a text, as the model reads it."""
    yield inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    for name, one in declarations(model).items():
        required = one.default is ...
        kind: Any = list[str] if one.many else str
        if one.kind == "flag":
            kind = bool
        words: dict[str, Any] = {"metavar": one.metavar, "help": one.help}
        names = one.names or (one.name(name),)
        info: Any = typer.Option(*names, **words, rich_help_panel=one.panel)
        if one.kind == "argument":
            info = typer.Argument(**words, show_default=False)
        default = one.default if isinstance(one.default, (str, bool)) else None
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if required else default,
            annotation=Annotated[kind if required or kind is bool else kind | None, info],
        )
    if model.common:
        yield inspect.Parameter(
            "help_all",
            inspect.Parameter.KEYWORD_ONLY,
            default=False,
            annotation=Annotated[bool, HELP_ALL],
        )


def note(text: str) -> None:
    """One line on standard error that changes nothing."""
    print(printable_line(f"note: {text}"), file=sys.stderr)


@dataclass(frozen=True)
class LazyCommand:
    """Where a command is, and what the list of commands says of it."""

    module: str
    name: str
    """Of a function, or of an ``App``."""
    panel: str
    help: str
    """As the command's own help begins, which a test checks."""

    def load(self, name: str) -> Any:
        """The command itself."""
        try:
            found = getattr(import_module(self.module), self.name)
        except ModuleNotFoundError as error:
            package = (error.name or "stash").partition(".")[0]
            if package == "stash":
                raise
            from stash.core.imports import missing_package

            raise missing_package(package, f"stash {name}") from None
        if isinstance(found, App):
            group = typer.main.get_command(found)
            group.name = name
            return group
        alone = App()
        alone.command(name)(found)
        return typer.main.get_command(alone)


class _Loading(Mapping[str, Any]):
    """Commands by name, each loaded when it is asked for."""

    def __init__(self, table: Mapping[str, LazyCommand]) -> None:
        self._table = table
        self._loaded = dict[str, Any]()

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._table[name].load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


class LazyGroup(CommandGroup):
    """A group that imports a command's module when the command is used, or its help is shown."""

    table: ClassVar[Mapping[str, LazyCommand]] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Loading(self.table)

    def list_commands(self, context: Any) -> list[str]:
        return list(self.table)

    def format_help(self, context: Any, formatter: Any) -> None:
        with self._list_placeholders():
            super().format_help(context, formatter)

    def whole_help(self, context: Any) -> str:
        with self._list_placeholders():
            return super().whole_help(context)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with self._list_placeholders():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _list_placeholders(self) -> Iterator[None]:
        """Within the block the commands are no more than their names and what the list says of them."""
        loaded = self.commands
        self.commands = {
            name: TyperCommand(name, help=each.help, rich_help_panel=each.panel)
            for name, each in self.table.items()
        }
        try:
            yield
        finally:
            self.commands = loaded
