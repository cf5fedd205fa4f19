"""How large the house is and how it is built, in figures that reformatting does not change: `make house` prints them.

Size is counted in syntax (nodes of Python's own tree, statements, functions), since lines can be packed. The
figures of ``src`` in ``bench/house.json`` are a ratchet: ``make check`` (``--check``) fails where one of them has
risen, until the same commit changes the file, so that growth is seen in a diff. Reads text only, with the standard
library; options of the command line are counted by ``bench.docs.options``, which needs Stash.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RATCHET = ROOT / "bench" / "house.json"
TREES = ("src", "tests", "bench")
LONG = 50
"""Lines of a function that is looked at again."""
MOVING = 6
"""Fields of one class that change after it was built, from which on they hide a state machine."""
PREPOSITIONS = {
    *("of", "that", "with", "without", "in", "on", "by", "for", "from"),
    *("at", "over", "to", "between", "beside", "beyond", "as"),
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class SourceFile:
    """One parsed file."""

    path: Path
    text: str
    tree: ast.Module


def read_sources(folder: Path) -> list[SourceFile]:
    """Parse every Python file below ``folder``; raises SyntaxError for one that is none."""
    paths = sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)
    texts = [path.read_text(encoding="utf-8") for path in paths]
    return [
        SourceFile(path, text, ast.parse(text)) for path, text in zip(paths, texts, strict=True)
    ]


def count_syntax(sources: list[SourceFile]) -> dict[str, int]:
    """Count files, lines, nodes, statements (docstrings are none), functions and classes."""
    nodes = [node for source in sources for node in ast.walk(source.tree)]
    return {
        "files": len(sources),
        "lines": sum(source.text.count("\n") for source in sources),
        "nodes": len(nodes),
        "statements": sum(isinstance(node, ast.stmt) and not _is_docstring(node) for node in nodes),
        "functions": sum(isinstance(node, _FUNCTIONS) for node in nodes),
        "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
    }


def count_obstacles(sources: list[SourceFile]) -> dict[str, int]:
    """Count what makes code hard to live in; each figure is best at zero."""
    found: Counter[str] = Counter()
    for source in sources:
        nodes = list(ast.walk(source.tree))
        uses = Counter(_used_name(node) for node in nodes)
        found["fmt: skip"] += len(re.findall(r"#\s*fmt:\s*skip", source.text))
        for node in nodes:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                found["lazy imports"] += node.col_offset > 0
            elif isinstance(node, _FUNCTIONS):
                found.update(_describe_function(node, uses))
            elif isinstance(node, ast.ClassDef):
                found[f"classes with {MOVING} or more fields changed after construction"] += (
                    len(set(_moving_fields(node))) >= MOVING
                )
            for attribute in _stored_attributes(node):
                found["writes to other objects' attributes"] += _owner(attribute) not in (
                    "self",
                    "cls",
                )
    return dict(sorted(found.items()))


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _used_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _describe_function(
    node: ast.FunctionDef | ast.AsyncFunctionDef, uses: Mapping[str, int]
) -> dict[str, int]:
    name = node.name.lstrip("_")
    is_private = node.name.startswith("_") and not node.name.startswith("__")
    return {
        "functions that are one participle": "_" not in name and name.endswith(("ed", "en")),
        "functions that begin with a preposition": name.split("_")[0] in PREPOSITIONS,
        f"functions over {LONG} lines": (node.end_lineno or node.lineno) - node.lineno + 1 > LONG,
        "private functions called once": is_private
        and not node.decorator_list
        and uses.get(node.name) == 1,
    }


def _stored_attributes(node: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that an assignment writes."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    for target in targets:
        for inner in ast.walk(target):
            if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                yield inner


def _owner(attribute: ast.Attribute) -> str:
    return attribute.value.id if isinstance(attribute.value, ast.Name) else ""


def _moving_fields(node: ast.ClassDef) -> Iterator[str]:
    for method in node.body:
        if isinstance(method, _FUNCTIONS) and method.name not in ("__init__", "__post_init__"):
            for inner in ast.walk(method):
                for attribute in _stored_attributes(inner):
                    if _owner(attribute) == "self":
                        yield attribute.attr


def count_packages(source: Path) -> dict[str, int]:
    """Nodes of each package below ``src/*``, the largest first."""
    sizes: dict[str, int] = defaultdict(int)
    for top in (path for path in source.iterdir() if path.is_dir()):
        for each in read_sources(top):
            inside = each.path.relative_to(top).parts
            sizes[inside[0] if len(inside) > 1 else top.name] += sum(1 for _ in ast.walk(each.tree))
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def count_words(root: Path) -> int:
    """Words of the documentation and the README."""
    pages = [*root.glob("docs/**/*.md"), *root.glob("README.md")]
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def count_site_words(root: Path) -> int:
    """Words of the pages that the site has, without what it generates."""
    from bench.docs.site import OFF_SITE

    pages = root.glob("docs/**/*.md")
    shown = [page for page in pages if not page.relative_to(root).as_posix().startswith(OFF_SITE)]
    return sum(len(page.read_text(encoding="utf-8").split()) for page in shown)


def measure_ratchet(sources: list[SourceFile]) -> dict[str, int]:
    """The figures that may only rise where the same commit says so."""
    from bench.docs.options import count_options, count_undocumented

    syntax = count_syntax(sources)
    return {
        **{name: syntax[name] for name in ("nodes", "statements", "functions")},
        "options": count_options(),
        "undocumented options": count_undocumented(ROOT),
    }


def find_risen(now: Mapping[str, int], kept: Mapping[str, int]) -> list[str]:
    """One sentence for each figure that is above the one that is kept."""
    return [
        f"{name} of src: {value:,}, and {RATCHET.name} has {kept.get(name, 0):,}"
        for name, value in now.items()
        if value > kept.get(name, 0)
    ]


def print_figures(root: Path) -> None:
    """All figures of a repository's folder, for people."""
    for name in TREES:
        if (root / name).is_dir():
            print(
                f"{name:6s}",
                "  ".join(f"{k} {v:,}" for k, v in count_syntax(read_sources(root / name)).items()),
            )
    sources = read_sources(root / "src")
    for name, value in count_obstacles(sources).items():
        print(f"{name}: {value:,}")
    print(
        "nodes by package:",
        ", ".join(f"{name} {nodes:,}" for name, nodes in count_packages(root / "src").items()),
    )
    print(
        f"words of docs and README: {count_words(root):,}, of them on the site {count_site_words(root):,}"
    )
    results = root / "bench/RESULTS.md"
    if results.is_file():
        print(
            f"words of {results.name}, apart: {len(results.read_text(encoding='utf-8').split()):,}"
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.house", description=__doc__)
    parser.add_argument(
        "root", type=Path, nargs="?", default=ROOT, help="a repository's folder (default: this one)"
    )
    parser.add_argument(
        "--check", action="store_true", help=f"compare with {RATCHET.name}: exit code 1 if risen"
    )
    options = parser.parse_args(arguments)
    if not options.check:
        print_figures(options.root)
    if options.root != ROOT:
        return 0
    now = measure_ratchet(read_sources(ROOT / "src"))
    if not options.check:
        RATCHET.write_text(json.dumps(now, indent=1) + "\n")
        return 0
    risen = find_risen(now, json.loads(RATCHET.read_text()))
    for sentence in risen:
        print(
            f"{sentence}; make it smaller, or run `make house` and commit the file", file=sys.stderr
        )
    return 1 if risen else 0


if __name__ == "__main__":
    raise SystemExit(main())
