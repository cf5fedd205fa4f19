"""The shape of the sources in figures, and what must hold of them: no import circles, one meaning to a name.

``python bench/house.py [TREE]`` prints sizes of the sources, tests and benchmarks of the repository that holds a
package's folder (this one's by default), and then what a reader of the package trips over. Reads text only, with the
standard library: what is imported by a computed name (the agent's import hook) is not seen.
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
EDGES = ("cli", "__init__", *(f"measure.agent.{part}" for part in ("boot", "site", "wraps")))
"""Where a lazy import of an own module is right: commands start fast, and the agent waits for torch."""
COMMANDS = "command"
"""Modules called so, or whose names end with ``_command``, are commands wherever they lie."""
Functions = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Import:
    """A module imports another of the same package; ``lazy`` if a function does."""

    source: str
    target: str
    lazy: bool


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
        inside = {id(node) for function in functions(tree) for node in ast.walk(function)}
        for node in ast.walk(tree):
            for target in {found for path in self._paths(node, name) if (found := self._module(path)) is not None}:
                if target != name:
                    yield Import(name, target, id(node) in inside)

    def _paths(self, node: ast.AST, name: str) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        if not isinstance(node, ast.ImportFrom):
            return []
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


def read(folder: Path) -> House:
    """Parse a package's folder."""
    paths = {".".join(path.relative_to(folder).with_suffix("").parts): path for path in sorted(folder.rglob("*.py"))}
    return House(folder.resolve().name, {name: ast.parse(path.read_text()) for name, path in paths.items()})


def functions(tree: ast.AST) -> list[Functions]:
    """Every function and method, nested ones included."""
    return [node for node in ast.walk(tree) if isinstance(node, Functions)]


def sizes(folder: Path) -> list[str]:
    """Of all files below a folder: files, lines, median file, lines a def, median def, imports, blank lines."""
    texts = [path.read_text() for path in sorted(folder.rglob("*.py"))]
    trees, lines = [ast.parse(text) for text in texts], [text.splitlines() for text in texts]
    every = [(node.end_lineno or 0) - node.lineno + 1 for tree in trees for node in functions(tree)]
    count = sum(map(len, lines)) or 1
    imported = sum(
        (node.end_lineno or 0) - node.lineno + 1
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    blank = sum(not line.strip() for text in lines for line in text)
    return [
        f"{len(texts)}", f"{count:,}", f"{median(map(len, lines)) if lines else 0:g}",
        f"{count / max(1, len(every)):.1f}", f"{median(every) if every else 0:g}", f"{imported / count:.1%}",
        f"{blank / count:.1%}",
    ]  # fmt: skip


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


def at_an_edge(name: str) -> bool:
    """Whether lazy imports are right in a module."""
    last = name.rpartition(".")[2]
    return last == COMMANDS or last.endswith(f"_{COMMANDS}") or any(
        name == edge or name.startswith(f"{edge}.") for edge in EDGES
    )  # fmt: skip


def counted(names: Iterable[str]) -> str:
    """How many, and how many of each folder: ``3: cli 2, lab 1``."""
    times = Counter(name.partition(".")[0] if "." in name else "." for name in names)
    return f"{times.total()}: {', '.join(f'{name} {n}' for name, n in sorted(times.items()))}".rstrip(": ")


def figures(house: House) -> dict[str, tuple[str, list[str]]]:
    """What a reader trips over: each figure, and what it is made of."""
    rings, several = circles(house), meanings(house)
    lazy = [one for one in house.imports if one.lazy]
    stray = [f"{one.source} ← {one.target}" for one in lazy if not at_an_edge(one.source)]
    nodes = [(name, node) for name, tree in house.trees.items() for node in ast.walk(tree)]
    rebound = [f"{name}: {', '.join(node.names)}" for name, node in nodes if isinstance(node, ast.Global)]
    loose = [name for name, node in nodes if isinstance(node, ast.Name) and node.id == "Any"]
    longest = max(
        ((node.end_lineno or 0) - node.lineno + 1, f"{name}.{node.name}")
        for name, node in nodes
        if isinstance(node, Functions)
    )
    return {
        "import circles": (f"{len(rings)}", [", ".join(ring) for ring in rings]),
        "lazy imports of own modules": (counted(one.source for one in lazy), []),
        "… outside commands and the agent's edge": (f"{len(stray)}", stray),
        "`global` statements": (f"{len(rebound)}", rebound),
        "uses of `Any`": (counted(loose), []),
        "names with more than one meaning": (f"{len(several)}", [f"{k}: {', '.join(v)}" for k, v in several.items()]),
        "longest function": (f"{longest[0]} lines ({longest[1]})", []),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path, nargs="?", default=OWN, help="a package's folder")
    tree = parser.parse_args(arguments).tree
    print("| | files | lines | median file | lines a def | median def | imports | blank |\n" + "| --- " * 8 + "|")
    for name, folder in {"src": tree, "tests": tree.parents[1] / "tests", "bench": tree.parents[1] / "bench"}.items():
        if folder.is_dir():
            print("|", " | ".join([name, *sizes(folder)]), "|")
    print("\n| what | figure |\n| --- | --- |")
    found = figures(read(tree))
    for what, (figure, _) in found.items():
        print(f"| {what} | {figure} |")
    for what, (_, details) in found.items():
        if details:
            print(f"\n{what}:", *details, sep="\n    ")


if __name__ == "__main__":
    main()
