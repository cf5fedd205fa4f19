"""Who imports whom in a package: circles, and public names that mean two things.

Reads text only, with the standard library: what is imported by a computed name (the agent's import hook) is not seen.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

OWN = Path(__file__).resolve().parents[1] / "src" / "stash"


@dataclass(frozen=True)
class Import:
    """A module imports another of the same package."""

    source: str
    target: str


@dataclass(frozen=True)
class House:
    """A package's parsed modules, by name below the package (``plan.rules``, ``cli.__init__``)."""

    package: str
    trees: Mapping[str, ast.Module]

    @cached_property
    def imports(self) -> list[Import]:
        """Every import of an own module, under ``TYPE_CHECKING`` too."""
        return [found for name, tree in self.trees.items() for found in self._imports_of(tree, name)]

    def _imports_of(self, tree: ast.Module, name: str) -> Iterator[Import]:
        for node in statements(tree):
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            for target in {found for path in self._paths(node, name) if (found := self._module(path)) is not None}:
                if target != name:
                    yield Import(name, target)

    def _paths(self, node: ast.Import | ast.ImportFrom, name: str) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        above = [self.package, *name.split(".")][: -node.level or None] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        return [f"{base}.{alias.name}" for alias in node.names]

    def _module(self, dotted: str) -> str | None:
        """The module that an imported name is, or lies in."""
        package, *parts = dotted.split(".")
        if package != self.package:
            return None
        for length in range(len(parts), 0, -1):
            name = ".".join(parts[:length])
            if name in self.trees:
                return name
            if f"{name}.__init__" in self.trees:
                return f"{name}.__init__"
        return "__init__"


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below, without what they are made of: far fewer nodes than ``ast.walk`` has."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield child
            yield from statements(child)


def read(folder: Path) -> House:
    """Parse a package's folder."""
    paths = {".".join(path.relative_to(folder).with_suffix("").parts): path for path in sorted(folder.rglob("*.py"))}
    return House(folder.resolve().name, {name: ast.parse(path.read_text()) for name, path in paths.items()})


def circles(house: House) -> list[list[str]]:
    """Groups of modules from each of which all others are reached, largest first (strongly connected components)."""
    targets: dict[str, set[str]] = defaultdict(set)
    for one in house.imports:
        targets[one.source].add(one.target)

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        ahead = [start]
        while ahead:
            new = targets[ahead.pop()] - found
            found |= new
            ahead += new
        return found

    reach = {name: reached(name) for name in house.trees}
    groups = {
        tuple(sorted(m for m in reach[name] if name in reach[m])) for name in house.trees if name in reach[name]
    }
    return [list(group) for group in sorted(groups, key=lambda group: (-len(group), group))]


def meanings(house: House) -> dict[str, list[str]]:
    """Public class names and type aliases that mean different things in different modules, and where."""
    homes: dict[str, dict[str, str]] = defaultdict(dict)
    for name, tree in house.trees.items():
        for node in statements(tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name][name] = f"class of {name}"
        for node in tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=alias)], value=ast.Subscript() | ast.BinOp() as value):
                    if alias[:1].isupper() and not alias.isupper():
                        homes[alias][name] = ast.unparse(value)
    return {
        name: sorted(places)
        for name, places in sorted(homes.items())
        if len(set(places.values())) > 1 and not name.startswith("_")
    }
