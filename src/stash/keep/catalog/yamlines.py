"""YAML text as plain data, together with the line on which every value stands.

Knows YAML (safely: plain data only) and positions; knows nothing of what the data means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

Path = tuple[int | str, ...]


@dataclass(frozen=True)
class Lines:
    """Line numbers (from 1) of the values in a document, by their path: ``("instances", 0, "price")``."""

    numbers: Mapping[Path, int]

    def of(self, path: Path) -> int:
        """The line of the value at ``path``, or of the nearest value around it."""
        while path and path not in self.numbers:
            path = path[:-1]
        return self.numbers.get(path, 1)


def parse(text: str) -> tuple[Any, Lines]:
    """The data in ``text`` (``None`` when empty) and its lines; raises yaml.YAMLError, also for a key given twice."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, Lines({})
        numbers: dict[Path, int] = {}
        _walk(node, (), numbers, set())
        return loader.construct_document(node), Lines(numbers)
    except (ValueError, RecursionError, OverflowError) as error:  # e.g. the date 2026-13-45
        raise yaml.YAMLError(str(error)) from error
    finally:
        loader.dispose()


def _walk(node: yaml.Node, path: Path, numbers: dict[Path, int], seen: set[int]) -> None:
    numbers[path] = node.start_mark.line + 1
    if id(node) in seen:  # an alias: the same value in several places
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            _walk(item, (*path, number), numbers, seen)
    if isinstance(node, yaml.MappingNode):
        names: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in names:
                raise yaml.MarkedYAMLError(problem=f"{name!r} is given twice", problem_mark=key.start_mark)
            names.add(name)
            below = (*path, name)
            _walk(value, below, numbers, seen)
            numbers[below] = key.start_mark.line + 1
