"""The shape of the sources in figures: circles, lazy imports, names with two meanings, sizes; before and after.

``python bench/house.py [TREE] [--against OTHER]`` prints a Markdown table of one package's folder (this repository's
by default) or of two side by side, and what the figures are made of. Reads text only, with the standard library: what
is imported by a computed name (the agent's import hook) is not seen, and whether a name is a good one neither.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median

OWN = Path(__file__).resolve().parents[1] / "src" / "stash"
LONG_FILE, SHORT_MODULE = 400, 40
EDGES = (
    "cli",
    "__init__",
    *(f"{agent}.{part}" for agent in ("measure.agent", "agent") for part in ("boot", "site", "wraps")),
)
"""Where a lazy import of an own module is right: commands start fast, and the agent waits for torch."""
PATCHES = "measure.agent.wraps"
"""What speaks with torch's insides, which are untyped."""
TESTED = ("measure.agent", "measure.launcher", "agent", "launch")


@dataclass(frozen=True)
class Import:
    """A module imports another of the same package; ``lazy`` if a function does."""

    source: str
    target: str
    lazy: bool


@dataclass(frozen=True)
class House:
    """A package's parsed modules, by name below the package (``keep.catalog.table``, ``cli.__init__``)."""

    package: str
    trees: Mapping[str, ast.Module]
    lines: Mapping[str, int]
    unit_tests: tuple[ast.Module, ...] = ()

    @cached_property
    def imports(self) -> list[Import]:
        """Every import of an own module, under ``TYPE_CHECKING`` too."""
        return [found for name, tree in self.trees.items() for found in self.imports_of(tree, name)]

    def imports_of(self, tree: ast.Module, name: str = "") -> Iterator[Import]:
        """What one file imports of the package; ``name`` is the file's own."""
        inside = {id(node) for function in functions(tree) for node in ast.walk(function)}
        for node in ast.walk(tree):
            for target in self._targets(node, name):
                if target != name:
                    yield Import(name, target, id(node) in inside)

    def _targets(self, node: ast.AST, name: str) -> set[str]:
        if isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = [self.package, *name.split(".")][: -node.level or None] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            dotted = [f"{base}.{alias.name}" for alias in node.names]
        else:
            dotted = []
        return {found for path in dotted if (found := self._module(path)) is not None}

    def _module(self, dotted: str) -> str | None:
        """The module that an imported name is, or lies in."""
        package, *parts = dotted.split(".")
        if package != self.package:
            return None
        while parts:
            name = ".".join(parts)
            if name in self.trees:
                return name
            if f"{name}.__init__" in self.trees:
                return f"{name}.__init__"
            parts.pop()
        return "__init__"


def read(folder: Path) -> House:
    """Parse a package's folder, and the unit tests of its repository, with what they share, if there are any."""
    trees, lines = {}, {}
    for path in sorted(folder.rglob("*.py")):
        name = ".".join(path.relative_to(folder).with_suffix("").parts)
        trees[name], lines[name] = ast.parse(path.read_text()), len(path.read_text().splitlines())
    beside = folder.resolve().parents[1] / "tests"
    tests = [path for part in ("unit", "support") for path in sorted((beside / part).rglob("*.py"))]
    return House(folder.resolve().name, trees, lines, tuple(ast.parse(path.read_text()) for path in tests))


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method, nested ones included."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


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


def within(name: str, places: tuple[str, ...]) -> bool:
    """Whether a module is one of these, or lies in one."""
    return any(name == place or name.startswith(f"{place}.") for place in places)


def wing(name: str) -> str:
    """The folder of the package that a module lies in."""
    return name.partition(".")[0] if "." in name else "."


def meanings(house: House) -> dict[str, list[str]]:
    """Public class names and type aliases that mean different things in different modules, and where."""
    homes: dict[str, dict[str, str]] = defaultdict(dict)
    for name, tree in house.trees.items():
        for node in ast.walk(tree):
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


def untested(house: House) -> tuple[list[str], int]:
    """Modules of the agent and of launching that no unit test imports by name, and how many modules there are."""
    mine = [name for name in house.trees if within(name, TESTED) and not name.endswith(("__init__", "sitecustomize"))]
    imported = {found.target for tree in house.unit_tests for found in house.imports_of(tree)}
    return [name for name in mine if name not in imported], len(mine)


def counted(names: Iterable[str]) -> str:
    """How many, and how many of each: ``3: cli 2, lab 1``."""
    times = Counter(names)
    return f"{times.total()}: {', '.join(f'{name} {n}' for name, n in sorted(times.items()))}".rstrip(": ")


def figures(house: House) -> dict[str, tuple[str, list[str]]]:
    """Per line of the table: its figure, and what it is made of."""
    rings, several, (missing, every) = circles(house), meanings(house), untested(house)
    lazy = [one for one in house.imports if one.lazy]
    stray = [f"{one.source} ← {one.target}" for one in lazy if not within(one.source, EDGES)]
    nodes = [(name, node) for name, tree in house.trees.items() for node in ast.walk(tree)]
    rebound = [f"{name}: {', '.join(node.names)}" for name, node in nodes if isinstance(node, ast.Global)]
    loose = [name for name, node in nodes if isinstance(node, ast.Name) and node.id == "Any"]
    sizes = sorted(
        ((node.end_lineno or 0) - node.lineno + 1, f"{name}.{node.name}")
        for name, tree in house.trees.items()
        for node in functions(tree)
    )
    long = [f"{name} ({size})" for name, size in house.lines.items() if size > LONG_FILE]
    short = [name for name, size in house.lines.items() if size < SHORT_MODULE and not name.endswith("__")]
    return {
        "import circles": (f"{len(rings)}", [", ".join(ring) for ring in rings]),
        "modules in circles": (f"{sum(map(len, rings))}", []),
        "lazy imports of own modules": (counted(wing(one.source) for one in lazy), []),
        "… outside cli and the agent's edge": (f"{len(stray)}", stray),
        "`global` statements": (f"{len(rebound)}", rebound),
        "uses of `Any` outside wraps/": (counted(wing(name) for name in loose if not within(name, (PATCHES,))), []),
        "names with more than one meaning": (f"{len(several)}", [f"{k}: {', '.join(v)}" for k, v in several.items()]),
        "median function": (f"{median(size for size, _ in sizes):g} lines", []),
        "longest function": (f"{sizes[-1][0]} lines ({sizes[-1][1]})", []),
        f"files over {LONG_FILE} lines": (f"{len(long)}", long),
        f"modules under {SHORT_MODULE} lines": (f"{len(short)}", short),
        "modules": (f"{len(house.trees)}, {sum(house.lines.values())} lines", []),
        "agent and launch: modules no unit test imports": (f"{len(missing)} of {every}", missing),
    }


def main(arguments: list[str] | None = None) -> None:
    """Print the table, and under it the details of every tree."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("tree", type=Path, nargs="?", default=OWN, help="a package's folder")
    parser.add_argument("--against", type=Path, metavar="OTHER", help="an older one, shown in a column before")
    chosen = parser.parse_args(arguments)
    columns = [(str(path), figures(read(path))) for path in (chosen.against, chosen.tree) if path is not None]
    print("| what |", " | ".join(path for path, _ in columns), "|\n|", " | ".join(["---"] * (1 + len(columns))), "|")
    for what in columns[0][1]:
        print("|", " | ".join([what, *(found[what][0] for _, found in columns)]), "|")
    for path, found in columns:
        print(f"\n{path}")
        for what, (_, details) in found.items():
            print(*(f"  {what}:" if details else "", *details), sep="\n    ", end="\n" if details else "")


if __name__ == "__main__":
    main()
