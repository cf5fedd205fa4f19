"""YAML text as plain data, together with the line on which every value stands.

Knows YAML (safely: plain data only), positions and bounds: a few lines of it can name each other until they stand
for more values than any memory holds. Knows nothing of what the data means.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import yaml

from stash.core.errors import UserError
from stash.core.files import read_up_to

Path = tuple[int | str, ...]

MAX_CHARACTERS = 2**17
"""Of a text: some thousand lines, which take a second to read."""
MAX_VALUES = 50_000
"""Each counted wherever it is named."""
_MAX_OF_ONE = 10_000
"""Characters of one value."""


@dataclass(frozen=True)
class Lines:
    """Line numbers (from 1) of the values in a document, by their path: ``("instances", 0, "price")``."""

    numbers: Mapping[Path, int]

    def of(self, path: Path) -> int:
        """The line of the value at ``path``, or of the nearest value around it."""
        while path and path not in self.numbers:
            path = path[:-1]
        return self.numbers.get(path, 1)


def text_of(path: FilePath, what: str, described: str) -> str:
    """The text of ``what`` (``"the study"``), cut off beyond what ``parse`` takes; raises UserError.

    ``described`` ends the sentence about a file that holds none: where such a file is described.
    """
    most = 4 * MAX_CHARACTERS  # bytes, which a character has four of at most
    try:
        content = read_up_to(path, most)
        return codecs.getincrementaldecoder("utf-8-sig")().decode(content, final=len(content) <= most)
    except OSError as error:
        raise UserError(f"cannot read {what} {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file; {described}") from error


def not_yaml(error: yaml.YAMLError, path: FilePath | str) -> UserError:
    """What ``parse`` found wrong with the text of ``path``, with its line."""
    mark = getattr(error, "problem_mark", None)
    line = "" if mark is None else f" line {mark.line + 1}"
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return UserError(f"{path}{line}: it is not valid YAML: {problem}")


def parse(text: str) -> tuple[Any, Lines]:
    """The data in ``text`` (``None`` when empty) and its lines.

    Raises yaml.YAMLError, also for a key given twice and for what is beyond the bounds.
    """
    if len(text) > MAX_CHARACTERS:
        raise yaml.YAMLError(f"it is longer than {MAX_CHARACTERS} characters")
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None, Lines({})
            if _values(node, {}) > MAX_VALUES:
                raise yaml.YAMLError(f"it stands for more than {MAX_VALUES} values")
            numbers: dict[Path, int] = {}
            _walk(node, (), numbers, set())
            return loader.construct_document(node), Lines(numbers)
        finally:
            loader.dispose()
    except RecursionError:
        raise yaml.YAMLError("its values are nested too deep") from None
    # What yaml's own constructors raise for a value that its tag cannot be: the date 2026-13-45, `!!int x`.
    except (ValueError, TypeError, AttributeError, LookupError, OverflowError) as error:
        raise yaml.YAMLError(str(error)) from error


def _values(node: yaml.Node, known: dict[int, int | None]) -> int:
    """How many values ``node`` stands for, those that an alias names counted again; raises yaml.YAMLError."""
    if id(node) in known:
        count = known[id(node)]
        if count is None:
            raise yaml.MarkedYAMLError(problem="a value contains itself", problem_mark=node.start_mark)
        return count
    known[id(node)] = None  # while it is counted
    if isinstance(node, yaml.ScalarNode):
        if len(node.value) > _MAX_OF_ONE:
            raise yaml.MarkedYAMLError(
                problem=f"a value is longer than {_MAX_OF_ONE} characters", problem_mark=node.start_mark
            )
        count = 1
    elif isinstance(node, yaml.MappingNode):
        count = 1 + sum(_values(part, known) for pair in node.value for part in pair)
    else:
        count = 1 + sum(_values(item, known) for item in node.value)
    known[id(node)] = count
    return count


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
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a name is no plain text", problem_mark=key.start_mark)
            name = str(key.value)
            if name in names:
                raise yaml.MarkedYAMLError(problem=f"{name!r} is given twice", problem_mark=key.start_mark)
            names.add(name)
            below = (*path, name)
            _walk(value, below, numbers, seen)
            numbers[below] = key.start_mark.line + 1
