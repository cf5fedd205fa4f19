"""What people type with their jobs, as it may be stored and printed: without keys, tokens and passwords.

Arguments of a job are kept by what they look like: numbers, names of options, files of the project, and choices that
the job's own source names; all else may be a secret, is kept as ``…``, and masked in whatever is printed later.
In other text a secret is known by the name before it (``--api-key VALUE``, ``HF_TOKEN=VALUE``), by its place in an
address (``https://user:VALUE@host``), or by the shape that its maker gives it (``hf_…``, ``ghp_…``).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from stash.core.ladder import NAMES, STALLS

MASK = "***"
HIDDEN = "…"
"""An argument that is not kept."""

_ANYWHERE = ("secret", "password", "passwd", "passphrase", "apikey", "credential", "credentials")
"""Words that make a name secret wherever they stand in it: ``--secret-value``."""
_AT_THE_END = (
    "key",
    "token",
    "auth",
    "authorization",
    "pwd",
    "pass",
    "pat",
    "bearer",
    "signature",
    "sig",
    "cookie",
    "pw",
    "otp",
    "pin",
    "passcode",
    "login",
)
"""Words that do so only at its end: ``--api-key`` is secret, ``--key-dim`` and ``--token-dropout`` are not."""
_FILLERS = ("value", "val", "text", "string", "str")
"""Words at the end of a name that say nothing: ``--access-token-value``."""
_ABOUT_IT = (
    "file",
    "path",
    "dir",
    "name",
    "id",
    "stdin",
    "length",
    "len",
    "size",
    "type",
    "env",
    "prompt",
)
"""Words at the end of a name that is about a secret and does not hold it: ``--password-file``."""

_NAME = (
    r"(?=[\w.-]{0,99}(?i:secret|pass|cred|key|token|auth|pw|pat|bearer|sig|cookie|otp|pin|login))"
    r"-{0,2}[A-Za-z_][\w.-]{0,99}"
)
"""Of those that may be secret only: another's value would hide a secret inside it."""
_VALUE = r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'&,;(){}\[\]]+)"
_ASSIGNED = re.compile(
    rf"(?<![\w.-])(?P<name>{_NAME})"
    rf"(?:\s{{0,3}}=\s{{0,3}}|[\"']\s{{0,3}}[=:]\s{{0,3}}|:\s?(?:Bearer|Basic|Token)\s){_VALUE}"
)
"""A colon alone is prose, unless the name is in quotes."""
_OPTION = re.compile(rf"(?<![\w.-])(?=-)(?P<name>{_NAME})\s{{1,3}}(?!--?[A-Za-z]){_VALUE}")
_IN_ADDRESS = re.compile(r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]{0,20}://)[^\s/@\"']{1,500}@")
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{16,}"
    r"|xox[abeprs]-[\w-]{10,}|A(?:KIA|SIA)[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}"
    r"|(?<=Bearer )[\w.~+/-]{8,}=*)"
)
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def mask_words(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command with what looks secret in them masked; their number and order stay."""
    kept: list[str] = []
    for word in words:
        before = kept[-1] if kept else ""
        valued = before.startswith("-") and "=" not in before and is_secret(before)
        kept.append(MASK if valued and not re.match(r"--?[A-Za-z]", word) else mask_text(word))
    return tuple(kept)


def mask_text(text: str, arguments: bool = True) -> str:
    """``text`` with what looks secret in it masked; of text without any, the same text.

    Without ``arguments`` those of the job stay: for whoever typed them and wants to type them again.
    """

    text = _mask_secrets(text)
    return text if _Hidden.pattern is None or not arguments else _Hidden.pattern.sub(HIDDEN, text)


@lru_cache(maxsize=4096)  # records of one plan say the same thousands of times
def _mask_secrets(text: str) -> str:
    def mask_value(found: re.Match[str]) -> str:
        if not is_secret(found["name"]) or found["value"] == MASK:
            return found[0]
        return found[0][: found.start("value") - found.start()] + MASK

    text = _IN_ADDRESS.sub(rf"\g<scheme>{MASK}@", text)
    text = _OPTION.sub(mask_value, text)
    return _SHAPES.sub(MASK, _ASSIGNED.sub(mask_value, text))


def is_secret(name: str) -> bool:
    """Whether the value of an option, a variable or a field with this name is likely a secret."""
    parts = [part.lower() for part in _PARTS.findall(name)]
    while len(parts) > 1 and parts[-1] in _FILLERS:
        parts.pop()
    if not parts or parts[-1] in _ABOUT_IT:
        return False
    return parts[-1] in _AT_THE_END or any(part in _ANYWHERE for part in parts)


# Arguments of a job

_OPTION_NAME = re.compile(r"--?[A-Za-z]|--[A-Za-z][\w.-]{0,60}")
_NAMED = re.compile(
    r"(?P<name>--[A-Za-z][\w.-]{0,60}=|[+~]{0,2}[A-Za-z_][\w./@-]{0,60}=)(?P<value>.*)", re.DOTALL
)
"""``--batch=8``, ``CUDA_VISIBLE_DEVICES=0``, ``+model.depth=3``."""
_ONE_NUMBER = (
    r"[+-]?(?:\d{1,15}|\d{1,3}(?:[_,]\d{3}){1,4}|\d{0,9}\.\d{1,9}|\d{1,9}\.)(?:[eE][+-]?\d{1,3})?"
)
_UNIT = r"(?:%|[kKMGT]i?(?:B|b|bit)?(?:/s)?|B|b|bit|[num]?s|min|h|d)?"
_NUMBERS = re.compile(
    rf"[\[(]?{_ONE_NUMBER}{_UNIT}(?:(?:, ?|[:x/.]){_ONE_NUMBER}{_UNIT}){{0,15}}[\])]?"
)
"""One, or a list: ``0.9,0.999``, ``224x224``, ``10GiB``, ``127.0.0.1:29500``."""
_DIGITS = 24
_PLAIN = frozenset(
    (
        "",
        "true",
        "false",
        "yes",
        "no",
        "on",
        "off",
        "none",
        "null",
        "auto",
        "cpu",
        "cuda",
        "gloo",
        "nccl",
        "bf16",
        "fp16",
        "fp32",
        "float16",
        "float32",
        "bfloat16",
        "c10d",
        "static",
        *NAMES,
        *STALLS,
    )
)
_STARTS = re.compile(
    r"(?:.*/)?(?:python[\d.]*|torchrun|accelerate|launch|deepspeed|horovodrun|mpirun|mpiexec|srun|env|bash|sh|sudo|nice"
    r"|uv|poetry|conda|pixi|run)"
)
"""Programs, and words of theirs, that stand before a script."""
_SCRIPT = (".py", ".pyc", ".sh", ".bash")
_SHORTEST = 3
"""Characters of a word that is looked for in other text: shorter ones are in every text."""
_UNCOMMON = 6
"""Characters of one that stands in other text by no chance, within a longer word too, unless it is a plain one."""
_WORD = re.compile(r"[a-z]+(?:[_-][a-z]+)*")
_LONG = 12
"""Characters of a plain word that hardly any sentence has."""


class _Hidden:
    """What arguments of this process's job were, as a pattern."""

    pattern: re.Pattern[str] | None = None


def kept_words(
    words: Sequence[str], choices: Collection[str] = (), folders: Sequence[Path] = ()
) -> tuple[str, ...]:
    """A job's command as it may be kept: as many words in the same order, ``…`` for what may be a secret.

    ``choices`` are what the job's source names; a path is kept if it exists below one of ``folders``.
    """
    kept: list[str] = []
    begun = False
    for number, word in enumerate(mask_words(words)):
        before = words[number - 1] if number else ""
        names = not begun and (_STARTS.fullmatch(word) is not None or word.endswith(_SCRIPT))
        module = (
            not begun and before in ("-m", "--module") and re.fullmatch(r"[\w.]+", word) is not None
        )
        named = _NAMED.fullmatch(word)
        if number == 0 or names or module or word == "--" or _is_harmless(word, choices, folders):
            kept.append(word)
        elif named is None:
            kept.append(HIDDEN)
        else:
            value = named["value"]
            kept.append(
                named["name"] + (value if _is_harmless(value, choices, folders) else HIDDEN)
            )
        begun = begun or module or word.endswith(_SCRIPT)
    return tuple(kept)


def hide_masked(words: Sequence[str], kept: Sequence[str]) -> None:
    """Mask from now on, in all text of this process, what ``kept`` does not show of ``words``.

    Short plain words (``memory``, ``train``) stay, unless their option's name is a secret's: every sentence has such.
    """
    named = set(_not_kept(words, [word if MASK in word else "" for word in kept]))
    prose = {
        each for each in _not_kept(words, kept) if _WORD.fullmatch(each) and len(each) < _LONG
    } - named
    found = sorted(set(_not_kept(words, kept)) - prose, key=len, reverse=True)
    alone = r"(?<![\w-])(?<!\w\.){}(?![\w-]|\.\w)"
    common = [len(each) < _UNCOMMON or _WORD.fullmatch(each) is not None for each in found]
    parts = [
        (alone if often else "{}").format(re.escape(each))
        for each, often in zip(found, common, strict=True)
    ]
    _Hidden.pattern = re.compile("|".join(parts)) if parts else None


def _not_kept(words: Sequence[str], kept: Sequence[str]) -> Iterator[str]:
    for word, shown in zip(words, kept, strict=True):
        if HIDDEN not in shown and MASK not in shown:
            continue
        named = _NAMED.fullmatch(word)
        value = word if named is None else named["value"]
        attached = [value[2:]] if re.match("-[A-Za-z]", value) else []
        pieces = re.split(r"[\s=:,;@&'\"]+", value)
        below = [each for piece in pieces for each in piece.split("/") if not _WORD.fullmatch(each)]
        for part in (value, repr(value)[1:-1], *attached, *pieces, *below):
            if len(part) >= _SHORTEST and not _is_harmless(part, (), ()):
                yield part


def _is_harmless(value: str, choices: Collection[str], folders: Iterable[Path]) -> bool:
    if value.lower() in _PLAIN or value in (MASK, HIDDEN) or value in choices:
        return True
    if _NUMBERS.fullmatch(value):
        return sum(character.isdigit() for character in value) <= _DIGITS
    if _OPTION_NAME.fullmatch(value):
        return True
    for folder in folders:  # of the project
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            if (folder / value).resolve(strict=True).is_relative_to(folder.resolve()):
                return True
    return False
