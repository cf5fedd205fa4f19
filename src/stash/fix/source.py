"""Arguments of a call changed in Python source, with nothing else touched: its comments, its breaks, its line ends.

The call is found by its place, as it was recorded while it ran, in the tree that ``ast`` makes of the text; edits are
made in the text. Where a value comes from is followed one step: a literal, a name set once in the file, or an
argument of ``argparse`` and its like, which the command line sets without any edit.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from stash.fix.script_changes import Around, Site


@dataclass(frozen=True)
class Edit:
    """Bytes of a text, from ``start`` to ``end``, that become ``new``."""

    start: int
    end: int
    new: str
    closes: bool = False
    """Whether it comes behind all others at its place."""


@dataclass(frozen=True)
class TypedChange:
    """What a person types, or writes into a configuration: an option of the script, or a key by its last name."""

    text: str


ArgumentFix = Edit | tuple[Edit, ...] | TypedChange | str
"""What to do about one argument; a text says why nothing can be done."""


class SourceText:
    """A Python file's text, behind its mark of UTF-8 if it has one; raises SyntaxError if it is no Python."""

    def __init__(self, text: str) -> None:
        self.tree = _parse_tree(text)
        self._bytes = text.encode()
        self._newline = "\r\n" if b"\r\n" in self._bytes else "\n"
        self._lines = text.removeprefix(_MARK).encode().splitlines(keepends=True)
        before = len(self._bytes) - sum(map(len, self._lines))
        self._starts = list(accumulate(map(len, self._lines), initial=before))

    def find_call(self, site: Site) -> ast.Call | None:
        """The call at a site; without columns (Python 3.10) the only one on its line with that name."""
        found = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Call) and not _passes_on(node)
        ]
        if site.column is not None:
            place = (site.line, site.column, site.end_line, site.end_column)
            found = [
                each
                for each in found
                if (each.lineno, each.col_offset, each.end_lineno, each.end_col_offset) == place
            ]
        else:
            names = _CALLED.get(site.kind, ())
            found = [
                each
                for each in found
                if each.lineno <= site.line <= (each.end_lineno or each.lineno)
            ]
            found = [each for each in found if _called_name(each.func) in names]
        return found[0] if len(found) == 1 else None

    def set_argument(
        self, call: ast.Call, name: str, value: Any, position: int | None, now: Any = None
    ) -> ArgumentFix:
        """How the call gets ``value`` as its argument ``name``; ``position``: where it may stand without a name.

        ``now`` is what it got while it ran, if that is known.
        """
        node = _argument_node(call, name, position)
        text = f"{name}={value!r}"
        mappings = _mappings(call)
        if all(each.arg != name for each in call.keywords) and any(
            isinstance(e, ast.Starred) for e in call.args
        ):
            return "its arguments come from a sequence (*)"
        if node is None and len(mappings) > 1:
            return "its arguments come from several mappings (**)"
        if (
            node is None and mappings
        ):  # put over what the mapping may have, here or on another machine
            start, end = self._span(mappings[0])
            return (
                Edit(start, start, "dict("),
                Edit(end, end, f", {text}"),
                Edit(end, end, ")", closes=True),
            )
        if node is None:
            return self._add_argument(call, text)
        return self._set_value(node, value, now)

    def _set_value(self, node: ast.expr, value: Any, now: Any) -> ArgumentFix:
        """How an argument that stands there as ``node`` becomes ``value``."""
        if isinstance(node, ast.Call) and _called_name(node.func) in ("int", "bool"):
            node = node.args[0] if len(node.args) == 1 else node
        if _is_literal(node):
            return Edit(*self._span(node), repr(value))
        if isinstance(node, ast.Name) and (set_at := self._set_once(node.id)) is not None:
            # Else others use it too, or something that is not seen here has set it: an exec of what the user typed.
            reads = sum(
                isinstance(each, ast.Name) and each.id == node.id and isinstance(each.ctx, ast.Load)
                for each in ast.walk(self.tree)
            )
            alone = reads == 1 and now in (None, ast.literal_eval(set_at))
            return Edit(*self._span(set_at if alone else node), repr(value))
        if isinstance(node, ast.Attribute):
            found = self._set_by_option(node.attr, value)
            is_option = isinstance(found, TypedChange) and found.text.startswith("--")
            worked_on = is_option and any(  # a share for each GPU
                isinstance(each, ast.Attribute)
                and each.attr == node.attr
                and isinstance(each.ctx, ast.Store)
                for each in ast.walk(self.tree)
            )
            return Edit(*self._span(node), repr(value)) if worked_on else found
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return _set_in_config(str(node.slice.value), value)
        return f"its value is worked out while the script runs ({ast.unparse(node)})"

    def _add_argument(self, call: ast.Call, text: str) -> Edit | str:
        """The argument behind the last one, on a line of its own where each has one."""
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        _, end = self._span(call)
        if (
            len(given) == 1
            and isinstance(given[0], ast.GeneratorExp)
            and self._span(given[0])[1] == end
        ):
            return "its one argument is a generator without brackets of its own"
        if not given:
            return Edit(end - 1, end - 1, text)
        at = max(self._span(each)[1] for each in given)
        closing = re.match(rb"(?:\s*\))*", self._bytes[at : end - 1])  # of an argument in brackets
        at += closing.end() if closing else 0
        trailing = re.match(rb"\s*,", self._bytes[at : end - 1])
        at += trailing.end() if trailing else 0
        starts = sorted({each.lineno for each in given})
        before = " "
        if len(starts) == len(given) and starts[0] > call.lineno:
            lines = (self._lines[line - 1] for line in starts)
            margin = min((line[: len(line) - len(line.lstrip(b" \t"))] for line in lines), key=len)
            before = self._newline + margin.decode()
        return Edit(at, at, f"{before}{text}," if trailing else f",{before}{text}")

    def around_argument(self, call: ast.Call, around: Around, position: int | None) -> ArgumentFix:
        """Text before and behind an argument, which may stand at ``position``."""
        node = _argument_node(call, around.argument, position)
        unseen = any(isinstance(each, ast.Starred) for each in call.args) or _mappings(call)
        if node is None and around.alone and not unseen:
            return self._add_argument(call, f"{around.argument}={around.before}{around.behind}")
        if node is None or isinstance(node, ast.Starred):
            return f"its argument {around.argument} does not stand there"
        start, end = self._span(node)
        return Edit(start, start, around.before), Edit(end, end, around.behind)

    def remove_statement(self, call: ast.Call) -> Edit | str:
        """The statement that is nothing but this call taken out, by lines; ``pass`` where a block had no other."""
        names = ("body", "orelse", "finalbody")
        blocks = [getattr(node, name, None) for node in ast.walk(self.tree) for name in names]
        for block in [each for each in blocks if isinstance(each, list)]:
            for each in block:
                if isinstance(each, ast.Expr) and each.value is call:
                    start, end = self._span(call)
                    line = self._starts[each.lineno - 1]
                    until = self._starts[min(each.end_lineno or each.lineno, len(self._starts) - 1)]
                    others = (
                        self._bytes[line:start].strip()
                        or self._bytes[end:until].partition(b"#")[0].strip()
                    )
                    return (
                        Edit(start, end, "pass")
                        if len(block) == 1 or others
                        else Edit(line, until, "")
                    )
        return "its value is used"

    def line_after_imports(self, statement: str, needs: str = "") -> Edit:
        """A statement behind the imports at the head of the file, and behind that of the module ``needs``."""
        last = 0
        for node in self.tree.body:
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if isinstance(node, (ast.Import, ast.ImportFrom)) or (is_text and not last):
                last = node.end_lineno or node.lineno
            elif last and not isinstance(node, (ast.Import, ast.ImportFrom, ast.If, ast.Try)):
                break
        last = max(last, min(self.find_imports(needs), default=0))
        if not last:  # behind what runs the file, and its encoding
            last = next((at for at, line in enumerate(self._lines) if not line.startswith(b"#")), 0)
        at = self._starts[last]
        return Edit(at, at, f"\n{statement}\n".replace("\n", self._newline))

    def find_imports(self, name: str) -> list[int]:
        """Lines that end an import which has the module ``name`` among the file's own names."""
        return [
            node.end_lineno or node.lineno
            for node in self.tree.body
            if isinstance(node, ast.Import)
            and any((each.asname or each.name) == name for each in node.names)
        ]

    def _span(self, node: ast.expr) -> tuple[int, int]:
        end_line = node.end_lineno or node.lineno
        end_column = node.end_col_offset or node.col_offset
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[
            end_line - 1
        ] + end_column

    def _set_once(self, name: str) -> ast.expr | None:
        """The literal that a name is set to, if nothing else in the whole file gives that name a value."""
        nodes = list(ast.walk(self.tree))
        values = [
            node.value
            for node in nodes
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr))
            for each in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(each, ast.Name) and each.id == name
        ]
        is_alone = len(values) == sum(_binds(node, name) for node in nodes) == 1
        return values[0] if is_alone and values[0] is not None and _is_literal(values[0]) else None

    def _set_by_option(self, dest: str, value: Any) -> ArgumentFix:
        """The option of an argument parser in this file whose value has that name; else a key of a configuration."""
        calls = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        for node in [
            each for each in calls if _called_name(each.func) in ("add_argument", "option", "add")
        ]:
            words = [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
            option = next((word for word in words if word.startswith("--")), "")
            more = {each.arg: each.value for each in node.keywords}
            named = more.get("dest")
            own = (
                str(named.value)
                if isinstance(named, ast.Constant)
                else option[2:].replace("-", "_")
            )
            if not option or own != dest:
                continue
            action = ast.unparse(more["action"]) if "action" in more else ""
            if value is None:
                return f"None cannot be typed for {option}"
            if "Boolean" in action:
                return TypedChange(option if value else f"--no-{option[2:]}")
            if "store_true" in action or "store_false" in action:
                wanted = bool(value) == ("store_true" in action)
                return (
                    TypedChange(option)
                    if wanted
                    else f"the flag {option} says otherwise: leave that out"
                )
            return TypedChange(f"{option} {value}")
        return _set_in_config(dest, value)


_CALLED: Mapping[str, tuple[str, ...]] = {
    "loader": ("DataLoader",),
    "ddp": ("DistributedDataParallel", "DDP"),
    "optimizer": (
        "SGD",
        "Adam",
        "AdamW",
        "Adagrad",
        "Adadelta",
        "Adamax",
        "ASGD",
        "NAdam",
        "RAdam",
        "RMSprop",
        "Rprop",
    ),
    "zero_grad": ("zero_grad",),
    "copy": ("to", "cuda"),
    "threads": ("set_num_threads",),
}
POSITIONS: Mapping[tuple[str, str], int] = {
    ("loader", "dataset"): 0,
    ("loader", "batch_size"): 1,
    ("loader", "num_workers"): 5,
    ("loader", "pin_memory"): 7,
    ("loader", "worker_init_fn"): 10,
    ("loader", "multiprocessing_context"): 11,
    ("zero_grad", "set_to_none"): 0,
    ("threads", "0"): 0,
}
"""Where arguments may stand without a name."""


def _set_in_config(key: str, value: Any) -> TypedChange:
    return TypedChange(f"{key}: {'null' if value is None else value} in the script's configuration")


def _argument_node(call: ast.Call, name: str, position: int | None) -> ast.expr | None:
    named = next((each.value for each in call.keywords if each.arg == name), None)
    if named is None and position is not None and position < len(call.args):
        return call.args[position]
    return named


def _mappings(call: ast.Call) -> list[ast.expr]:
    return [keyword.value for keyword in call.keywords if keyword.arg is None]


def _called_name(node: ast.expr) -> str:
    return getattr(node, "attr", "") or getattr(node, "id", "")


def _passes_on(call: ast.Call) -> bool:
    """Whether a call has arguments of its own, before or in place of those of what it calls: ``map(DataLoader, …)``,
    ``DataLoader.__init__(self, …)``."""
    func = call.func
    if isinstance(func, ast.Name):
        return hasattr(builtins, func.id)
    return _called_name(func) == "__init__" and not isinstance(
        getattr(func, "value", None), ast.Call
    )


def _binds(node: ast.AST, name: str) -> bool:
    """Whether a node gives ``name`` a value: it is assigned to, a parameter, imported, or what a block is called."""
    if isinstance(node, ast.Name):
        return node.id == name and not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.arg):
        return node.arg == name
    return name in (getattr(node, "name", None), getattr(node, "asname", None))


def _is_literal(node: ast.expr) -> bool:
    return isinstance(getattr(node, "operand", node), ast.Constant)


def apply_edits(text: str, edits: list[Edit]) -> str:
    """The text after all edits; raises ValueError for two that meet, SyntaxError if what comes out is no Python."""
    content = text.encode()
    before = None
    for edit in sorted(edits, key=lambda each: (each.start, each.end), reverse=True):
        if before is not None and edit.end > before:
            raise ValueError("two changes meet in one place")
        content = content[: edit.start] + edit.new.encode() + content[edit.end :]
        before = edit.start
    found = content.decode()
    _parse_tree(found)
    return found


_MARK = "\ufeff"


def _parse_tree(text: str) -> ast.Module:
    return ast.parse(text.removeprefix(_MARK))
