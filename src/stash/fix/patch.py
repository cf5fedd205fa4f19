"""What is kept, written down: a unified diff of the script, options of its command line, or a line to type.

A change gets into source only where the call that was recorded can be found and its value set safely; everything else
is by_words. Files are never changed here without a copy that is kept.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import io
import os
import tokenize
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stash.core.errors import UserError
from stash.core.files import write_whole
from stash.core.formatting import join_names
from stash.fix.script_changes import ScriptChange, Site
from stash.fix.source import POSITIONS, ArgumentFix, Edit, SourceText, TypedChange, apply_edits

_NO_PYTHON = "the patch of it would be no Python, beside the others"
Way = Literal["patch", "command", "setting", "explained"]


@dataclass(frozen=True)
class WrittenChange:
    """How one change gets into the job."""

    way: Way
    how: str = ""
    file: str = ""
    line: int = 0


class _UnwritableError(Exception):
    """No patch does it; the text says what a person does instead."""


@dataclass
class Patch:
    """All edits of one fix, by file."""

    edits: dict[str, list[Edit]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def add(self, change: ScriptChange, script: str | None) -> WrittenChange:
        """Plan how ``change`` is written; ``script`` is the job's own file."""
        outside = " ".join(f"{name}={value}" for name, value in change.variables.items())
        if change.variables and not change.writes:
            return WrittenChange("setting", outside)
        places = [
            each
            for each in (change.site, *change.removes)
            if each is not None and not each.is_in_library
        ]
        place = (places[0].file, places[0].line) if places else ("", 0)
        try:
            edits, words = self._list_edits(change, script)
            if words and not edits:
                return WrittenChange("command", ", ".join(words), *place)
            planned = {file: list(each) for file, each in self.edits.items()}
            for file, edit in edits:
                planned.setdefault(file, []).append(edit)
            try:
                for file in {file for file, _ in edits}:
                    apply_edits(self.texts[file], _join_edits(planned[file]))
            except (SyntaxError, ValueError):
                raise _UnwritableError(change.by_hand or f"{change.text}: {_NO_PYTHON}") from None
            self.edits = planned
        except _UnwritableError as error:
            return WrittenChange("explained", str(error), *place)
        if not change.writes:
            return WrittenChange("patch", "", *(place if places else (edits[0][0], 1)))
        more = [
            *words,
            *filter(None, (change.by_hand, outside and f"and set in the environment: {outside}")),
        ]
        return WrittenChange("patch", "; ".join(more), *place)

    def _list_edits(
        self, change: ScriptChange, script: str | None
    ) -> tuple[list[tuple[str, Edit]], list[str]]:
        """Edits by file, and what a person types; raises _UnwritableError with what to do where no patch does it."""
        if change.line and change.around is None:
            own = None if script is None else self._load_source(script)
            if script is None or own is None or not own.find_imports("torch"):
                raise _UnwritableError(
                    change.by_hand or f"write `{change.line}` before the model is built"
                )
            return [(script, own.line_after_imports(change.line, needs="torch"))], []
        calls = _list_calls(change)
        if not calls:
            raise _UnwritableError(change.by_hand)
        edits: list[tuple[str, Edit]] = []
        words: dict[str, None] = {}
        for site, todo, writes in calls:
            source = None if site.is_in_library else self._load_source(site.file)
            call = None if source is None else source.find_call(site)
            found: list[ArgumentFix]
            if source is None or call is None:
                found = [
                    "it is in a library" if site.is_in_library else "the call was not found again"
                ]
            elif change.removes:
                found = [source.remove_statement(call)]
            elif change.around is not None:
                position = POSITIONS.get((site.kind, change.around.argument))
                found = [
                    source.line_after_imports(change.line),
                    source.around_argument(call, change.around, position),
                ]
            else:
                found = [
                    source.set_argument(
                        call, name, value, POSITIONS.get((site.kind, name)), site.values.get(name)
                    )
                    for name, value in _add_companions(writes, call, site).items()
                ]
            for each in found:
                if isinstance(each, str):
                    raise _UnwritableError(f"{todo}: no patch does, as {each}")
                if isinstance(each, TypedChange):
                    words[each.text] = None
                else:
                    edits += [
                        (site.file, edit) for edit in (each if isinstance(each, tuple) else (each,))
                    ]
        return edits, [*words]

    def _load_source(self, file: str) -> SourceText | None:
        try:
            if file not in self.texts:
                self.texts[file] = text_of(Path(file))
            return SourceText(self.texts[file])
        except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
            return None

    def edited_texts(self) -> dict[str, str]:
        """Each file's text with its edits."""
        return {
            file: apply_edits(self.texts[file], _join_edits(edits))
            for file, edits in self.edits.items()
        }

    def make_diff(self) -> str:
        """A unified diff, as ``git apply`` takes it in the current folder; with a file outside, from the root."""
        parts = []
        outside = any(os.path.isabs(_short_path(file)) for file in self.edits)
        for file, text in self.edited_texts().items():
            name = file.lstrip("/") if outside else _short_path(file)
            name += "\t" * (" " in name)  # else a space ends it, for `patch`
            # A form feed ends no line, though ``str.splitlines`` has it so.
            before, after = (
                list(io.StringIO(each, newline="\n")) for each in (self.texts[file], text)
            )
            lines = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}")
            parts += [
                line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
                for line in lines
            ]
        return "".join(parts)

    def source_digests(self) -> dict[str, str]:
        """SHA-256 of the files that are edited, as they are now."""
        return {file: hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in self.edits}


def _list_calls(change: ScriptChange) -> list[tuple[Site, str, Mapping[str, Any]]]:
    """The calls that are edited: what is done to each in words, and which arguments it gets."""
    if change.removes:
        return [(site, f"take out the call at {_place_of(site)}", {}) for site in change.removes]
    if change.site is None or not (change.writes or change.around):
        return []
    if change.around is not None:
        return [(change.site, change.text, {})]
    written = [(site, change.writes) for site in (change.site, *change.also)]
    written += [(site, {"non_blocking": True}) for site in change.copies]
    return [
        (
            site,
            f"at {_place_of(site)} set "
            + join_names(
                [f"{name}={new!r}" if name != "0" else repr(new) for name, new in writes.items()]
            ),
            writes,
        )
        for site, writes in written
    ]


def _place_of(site: Site) -> str:
    return f"{_short_path(site.file)}:{site.line}"


def _add_companions(writes: Mapping[str, Any], call: ast.Call, site: Site) -> dict[str, Any]:
    """With what the call has beside them and PyTorch refuses then, set to None as trials do."""
    given, found = {each.arg for each in call.keywords}, dict(writes)  # of a mapping: None
    if found.get("num_workers") == 0 and given & {"prefetch_factor", None}:
        found["prefetch_factor"] = None
    if found.get("num_workers") == 0 and site.values.get("multiprocessing_context"):
        found["multiprocessing_context"] = None
    if found.get("fused") and given & {"foreach", None}:
        found["foreach"] = None
    return found


def _join_edits(edits: Sequence[Edit]) -> list[Edit]:
    """Each edit once, and insertions at one place as one, in the order in which they came, what closes last."""
    found: list[Edit] = []
    for edit in sorted(dict.fromkeys(edits), key=lambda each: each.closes):
        same = next(
            (each for each in found if each.start == each.end == edit.start == edit.end), None
        )
        if same is None:
            found.append(edit)
        else:
            found[found.index(same)] = Edit(same.start, same.end, same.new + edit.new)
    return found


def text_of(path: Path) -> str:
    """A Python file's text, its line ends and mark of UTF-8 as they are; raises ValueError for other encodings."""
    content = path.read_bytes()
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    if encoding not in ("utf-8", "utf-8-sig", "ascii"):
        raise ValueError(f"{path} is in {encoding}")
    return content.decode()


def _short_path(file: str) -> str:
    """A path as it is named in this folder, with no way out of it; else whole."""
    path = os.path.relpath(file)
    return file if path.startswith("..") else path


def apply(patch: Patch, sources: dict[str, str]) -> list[str]:
    """Write the edited files; the value says where each is kept as it was. Raises UserError, and then none is changed."""
    after = patch.edited_texts()
    for file, digest in sources.items():
        path = Path(file)
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise UserError(
                f"{_short_path(file)} has changed since it was measured; nothing was applied: run `stash fix` again"
            )
        if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
            raise UserError(
                f"no permission to write {_short_path(file)}; nothing was applied: the patch is in its file"
            )
    # before any is written: there may be no room for a copy
    copies = {file: _keep_copy(Path(file)) for file in after}
    for file, text in after.items():
        status = os.stat(file)
        write_whole(Path(file), text, mode=None)
        _give(Path(file), status)
    return [
        f"Changed {_short_path(file)}; as it was: {_short_path(str(copy))}"
        for file, copy in copies.items()
    ]


def _give(path: Path, status: os.stat_result) -> None:
    """The owner and mode of another file; who may not give a file away could not have had it from another either."""
    with suppress(PermissionError):
        os.chown(path, status.st_uid, status.st_gid)
        os.chmod(path, status.st_mode & 0o7777)


def _keep_copy(path: Path) -> Path:
    names = [f"{path.name}.orig", *(f"{path.name}.orig-{number}" for number in range(2, 1000))]
    for copy in map(path.with_name, names):
        try:
            status = path.stat()
            write_whole(copy, path.read_bytes(), mode=status.st_mode & 0o777, new=True)
            _give(copy, status)
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(
                f"no copy of {path} could be kept ({error.strerror}); nothing was applied"
            ) from None
        return copy
    raise UserError(f"there are 1,000 copies of {path} already; remove some")
