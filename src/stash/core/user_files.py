"""Files that people write, YAML and CSV, as pydantic models: every mistake with its file, line and field.

One format for all of them: ``FILE:LINE: FIELD: what is wrong; what to write instead``. Knows YAML (plain data only),
positions and bounds: a few lines of YAML can name each other until they stand for more values than any memory holds.
Knows nothing of what the data mean.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, BeforeValidator, ValidationError

from stash.core.errors import UnitError, UserError
from stash.core.files import read_up_to
from stash.core.printable import shorten_text
from stash.core.units import find_nearest

M = TypeVar("M", bound=BaseModel)
Location = tuple[int | str, ...]
"""Of a value in a document: ``("instances", 0, "price")``."""

MAX_BYTES = 2**20
MAX_CHARACTERS = 2**17
"""Of YAML: some thousand lines, which take a second to read."""
MAX_VALUES = 50_000
"""Of YAML, each counted wherever it is named."""
MAX_LINES = 500_000
"""Of a table."""
_MAX_COLUMNS = 1_000
_MAX_OF_ONE = 10_000
"""Characters of one value of YAML."""
_MAX_MISTAKES = 20
"""That are listed; of more, how many there are."""
_SUBJECT = re.compile(r"^(Value error,|Input|String|Tuple) ")
"""With which pydantic begins its sentences."""
_PARSING = re.compile(r", unable to (parse|interpret) .*")
"""With which it ends those about text that is no number."""
_SENTENCES = {
    "missing": "is missing",
    "model_type": "must hold named fields",
    "model_attributes_type": "must hold named fields",
    "tuple_type": "must be a list",
}


def text_of(path: Path, what: str, described: str, most: int = MAX_BYTES) -> str:
    """The text of ``what`` (``"the study"``) at ``path``; raises UserError.

    ``described`` ends the sentence about a file that is none: where such a file is described.
    """
    try:
        content = read_up_to(path, most)
    except OSError as error:
        raise UserError(f"cannot read {what} {path}: {error.strerror or error}") from error
    if len(content) > most:
        raise UserError(f"{path} is larger than {most // 2**20} MiB: it is not {what}; {described}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file; {described}") from error


def quantity(parse: Callable[[str], float], bare: bool = False) -> BeforeValidator:
    """Reads a quantity with its unit, like ``10GB/s``; ``bare``: a plain number is one in base units.

    Without ``bare`` a plain number is read by ``parse`` as well, which asks for its unit.
    """

    def read(given: Any) -> Any:
        number = isinstance(given, (int, float)) and not isinstance(given, bool)
        if given is None or (number and bare):
            return given
        if not number and not isinstance(given, str):
            raise ValueError("should be a quantity with its unit")
        try:
            return parse(f"{given:g}" if number else given)
        except UnitError as error:
            raise ValueError(str(error)) from None

    return BeforeValidator(read)


@dataclass(frozen=True)
class YamlText:
    """The plain data of one YAML text, and where everything in it stands."""

    path: Path | str
    data: Any
    numbers: Mapping[Location, int]

    def line(self, where: Location) -> int:
        """The line (from 1) of the value at ``where``, or of the nearest value around it."""
        while where and where not in self.numbers:
            where = where[:-1]
        return self.numbers.get(where, 1)

    def mistake(self, where: Location, why: str) -> UserError:
        """The error about the value at ``where``."""
        return UserError(self.sentence(where, why))

    def sentence(self, where: Location, why: str) -> str:
        field = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in where
        ).lstrip(".")
        return f"{self.path}:{self.line(where)}: {field or 'the file'}: {why}"

    def strip_kinds(self, where: Location, missing: bool) -> Location:
        """``where`` as pydantic has it, without names that are not the document's: of one kind of several."""
        value = self.data
        found = []
        for number, part in enumerate(where):
            inside: Any = value if isinstance(value, dict) else {}
            if isinstance(value, list):
                inside = dict(enumerate(value))
            if part in inside:
                value = inside[part]
            elif not (missing and number == len(where) - 1):
                continue
            found.append(part)
        return tuple(found)


@dataclass(frozen=True)
class UserFile(YamlText, Generic[M]):
    """A document and the model that it holds."""

    content: M


def load(path: Path, model: type[M], what: str, described: str) -> UserFile[M]:
    """The YAML file at ``path``; raises UserError that names every mistake with its line and field."""
    return loads(text_of(path, what, described), path, model)


def loads(text: str, path: Path | str, model: type[M]) -> UserFile[M]:
    """The same of a text; ``path`` is only named in errors."""
    return fit_model(yaml_text(text, path), model)


def yaml_text(text: str, path: Path | str) -> YamlText:
    """The plain data of a YAML text; raises UserError with the line of what is none."""
    try:
        data, numbers = parse(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UserError(f"{path}{line}: it is not valid YAML: {problem}") from error
    return YamlText(path, {} if data is None else data, numbers)


def fit_model(document: YamlText, model: type[M]) -> UserFile[M]:
    """The document as ``model``; raises UserError that names every mistake, the first line's first."""
    mistakes = dict(_unknown_fields(document.data, model, ()))
    content = None
    try:
        content = model.model_validate(document.data)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        inside = {detail["loc"][:1] for detail in found if len(detail["loc"]) > 1}
        for detail in found:
            empty = detail["type"] == "too_short"
            if detail["type"] == "extra_forbidden" or (empty and detail["loc"] in inside):
                continue  # an unknown name is listed already; entries that are there and wrong are no missing ones
            where = document.strip_kinds(detail["loc"], detail["type"] == "missing")
            if detail["type"] == "union_tag_invalid":
                where = (*where, _discriminator(detail))
            mistakes.setdefault(where, _describe_mistake(detail, document.data, model))
    if content is None or mistakes:
        ordered = sorted(mistakes.items(), key=lambda item: document.line(item[0]))
        raise UserError(_join_mistakes(document.sentence(*item) for item in ordered))
    return UserFile(document.path, document.data, document.numbers, content)


def _join_mistakes(mistakes: Iterable[str]) -> str:
    lines = [*mistakes]
    more = len(lines) - _MAX_MISTAKES
    return "\n".join([*lines[:_MAX_MISTAKES], f"and {more} more mistakes"] if more > 0 else lines)


def _describe_mistake(detail: Mapping[str, Any], data: Any, model: type[BaseModel]) -> str:
    """What pydantic found, in the words of all files."""
    kind = detail["type"]
    context = detail.get("ctx", {})
    if kind == "union_tag_invalid":
        tags = context["expected_tags"].replace("'", "")
        return f"there is no such {_discriminator(detail)}; use one of {tags}"
    if kind == "union_tag_not_found":
        field = _discriminator(detail)
        return f"needs `{field}:`, one of {', '.join(_tags(model, field))}"
    if kind == "too_short" and context.get("min_length") == 1:
        return "needs at least one entry"
    return _SENTENCES.get(kind) or _clean_message(detail)


def _discriminator(detail: Mapping[str, Any]) -> str:
    """The field that says which of several kinds a value is."""
    return str(detail["ctx"]["discriminator"]).strip("'")


def _clean_message(detail: Mapping[str, Any]) -> str:
    return _PARSING.sub("", _SUBJECT.sub("", detail["msg"]).partition(" or instance of ")[0])


def _unknown_fields(data: Any, annotation: Any, where: Location) -> Iterator[tuple[Location, str]]:
    """Every name in ``data`` that no field of the model has: a mistyped one would silently be a default."""
    kinds = [*_kinds(annotation)]
    if isinstance(data, dict):
        models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if len(models) > 1:
            models = [model for model in models if _is_tagged(data, model)]
        known = models[0].model_fields if models else {}
        for name, value in ((str(key), value) for key, value in data.items() if models):
            if name in known:
                yield from _unknown_fields(value, known[name].annotation, (*where, name))
                continue
            alike = find_nearest(name, known, 1)
            hint = f"did you mean {alike[0]}?" if alike else f"there are {', '.join(known)}"
            yield (*where, name), f"there is no such field; {shorten_text(hint, 400)}"
    elif isinstance(data, list):
        items = next(
            (get_args(kind)[0] for kind in kinds if get_origin(kind) in (tuple, list)), None
        )
        for number, item in enumerate(data):
            yield from _unknown_fields(item, items, (*where, number))


def _kinds(annotation: Any) -> Iterator[Any]:
    """The types that a field may have, without their constraints."""
    if get_origin(annotation) is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for each in get_args(annotation):
            yield from _kinds(each)
    else:
        yield annotation


def _is_tagged(data: Mapping[Any, Any], model: type[BaseModel]) -> bool:
    """Whether a field of ``data`` marks it as this one of several kinds."""
    return any(data.get(name) in _literals(field) for name, field in model.model_fields.items())


def _literals(field: Any) -> tuple[Any, ...]:
    """What a field that distinguishes kinds may be."""
    is_tag = get_origin(field.annotation) is Literal and field.is_required()
    return get_args(field.annotation) if is_tag else ()


def _tags(model: type[BaseModel], name: str) -> Iterator[str]:
    """The values of the field ``name`` that distinguish the items of lists in ``model``."""
    for field in model.model_fields.values():
        for kind in _kinds(field.annotation):
            for item in _kinds(get_args(kind)[0]) if get_origin(kind) is tuple else ():
                if (
                    isinstance(item, type)
                    and issubclass(item, BaseModel)
                    and name in item.model_fields
                ):
                    yield from _literals(item.model_fields[name])


def parse(text: str) -> tuple[Any, Mapping[Location, int]]:
    """The data in ``text`` (``None`` when empty) and its lines, from 1.

    Raises yaml.YAMLError, also for a key given twice and for what is beyond the bounds.
    """
    if len(text) > MAX_CHARACTERS:
        raise yaml.YAMLError(f"it is longer than {MAX_CHARACTERS} characters")
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None, {}
            numbers: dict[Location, int] = {}
            if _walk(node, (), numbers, {}) > MAX_VALUES:
                raise yaml.YAMLError(f"it stands for more than {MAX_VALUES} values")
            return loader.construct_document(node), numbers
        finally:
            loader.dispose()
    except RecursionError:
        raise yaml.YAMLError("its values are nested too deep") from None
    # What yaml's own constructors raise for a value that its tag cannot be: the date 2026-13-45, `!!int x`.
    except (ValueError, TypeError, AttributeError, LookupError, OverflowError) as error:
        raise yaml.YAMLError(str(error)) from error


def _walk(
    node: yaml.Node, path: Location, lines: dict[Location, int], counts: dict[int, int]
) -> int:
    """Note the lines of all that is in ``node``; how many values it stands for, an alias's counted again.

    ``counts`` is of nodes by identity, 0 while one is counted. Raises yaml.YAMLError.
    """
    lines[path] = node.start_mark.line + 1
    if id(node) in counts:  # an alias: the same value in several places
        if not counts[id(node)]:
            raise _error_at(node, "a value contains itself")
        return counts[id(node)]
    counts[id(node)] = 0
    count = 1
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            count += _walk(item, (*path, number), lines, counts)
    elif isinstance(node, yaml.MappingNode):
        names: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _error_at(key, "a name is no plain text")
            name = str(key.value)
            if name in names:
                raise _error_at(key, f"{name!r} is given twice")
            names.add(name)
            below = (*path, name)
            count += 1 + _walk(value, below, lines, counts)
            lines[below] = key.start_mark.line + 1
    elif len(node.value) > _MAX_OF_ONE:
        raise _error_at(node, f"a value is longer than {_MAX_OF_ONE} characters")
    counts[id(node)] = count
    return count


def _error_at(node: yaml.Node, problem: str) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def table_rows(
    text: str, path: Path, described: str, most: int = MAX_LINES
) -> list[tuple[int, list[str]]]:
    """The rows of a CSV text with their lines, within bounds: the one way to read one; raises UserError."""
    if text.count("\n") > most + 1:
        raise UserError(f"{path} has more than {most:,} lines; {described}")
    if any(line.count(",") >= _MAX_COLUMNS for line in io.StringIO(text)):
        raise UserError(
            f"{path} is not a table: a line has more than {_MAX_COLUMNS:,} columns; {described}"
        )
    try:
        reader = csv.reader(io.StringIO(text, newline=""))
        return [(reader.line_num, row) for row in reader]  # a cell may have several lines
    except csv.Error as error:
        raise UserError(f"{path} is not a table: {error}; {described}") from error


def load_rows(
    path: Path,
    row: type[M],
    what: str,
    described: str,
    most: int = 100_000,
    most_bytes: int = MAX_BYTES,
) -> list[tuple[int, M]]:
    """The rows of a CSV file with their lines; columns in any order, others are ignored.

    Each field of ``row`` is a column, with an example of what to write; one with a default may be missing, or empty.
    Raises UserError that names every mistake.
    """
    columns = {
        name: str(field.examples[0]) for name, field in row.model_fields.items() if field.examples
    }
    needed = [name for name in columns if row.model_fields[name].is_required()]
    example = ",".join(columns[name] for name in needed)
    text = text_of(path, what, described, most_bytes)
    lines = table_rows(text, path, f"its first line is {','.join(needed)}")
    head = [name.strip() for name in lines[0][1]] if lines else []
    _check_head(path, head, list(columns), needed, example)
    filled = [(number, line) for number, line in lines[1:] if any(map(str.strip, line))]
    if not 0 < len(filled) <= most:
        raise UserError(
            f"{path} has {len(filled):,} lines below its first; it needs 1 to {most:,}, like {example}"
        )
    rows = []
    mistakes = []
    for number, line in filled:
        cells = dict(zip(head, map(str.strip, line), strict=False))
        given = {name: cells.get(name, "") for name in columns if name in needed or cells.get(name)}
        try:
            rows.append((number, row.model_validate(given)))
        except ValidationError as error:
            for detail in error.errors(include_url=False, include_input=False):
                name = str(detail["loc"][0])
                why = f"{shorten_text(given[name], 60)!r} {_clean_message(detail)}"
                mistakes.append(f"{path}:{number}: {name}: {why}; write it like {columns[name]}")
    if mistakes:
        raise UserError(_join_mistakes(mistakes))
    return rows


def _check_head(
    path: Path, head: list[str], columns: list[str], needed: list[str], example: str
) -> None:
    """Raise UserError for a table without a column that is needed, or with a mistyped one."""
    missing = next((name for name in needed if name not in head), None)
    if missing is not None:
        alike = find_nearest(missing, head, 1)
        hint = f" ({alike[0]} is another)" if alike else ""
        first = f"its first line has to be {','.join(needed)}, and the others like {example}"
        raise UserError(f"{path} has no column {missing}{hint}; {first}")
    for name in head:
        alike = [] if name in columns else find_nearest(name, columns, 1)
        if alike and alike[0] not in head:
            raise UserError(f"{path}: there is no column {name}; did you mean {alike[0]}?")
