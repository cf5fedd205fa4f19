"""Keys, tokens and passwords in words that people type, masked: for whatever is stored or printed.

A secret is known by the name before it (``--api-key VALUE``, ``HF_TOKEN=VALUE``, ``"password": VALUE``), by its place
in an address (``https://user:VALUE@host``), or by the shape that its maker gives it (``hf_…``, ``ghp_…``). One that
stands behind a name which says nothing (``-p VALUE``) cannot be told from any other word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "***"

_ANYWHERE = ("secret", "password", "passwd", "passphrase", "apikey", "credential", "credentials")
"""Words that make a name secret wherever they stand in it: ``--secret-value``."""
_AT_THE_END = ("key", "token", "auth", "authorization", "pwd", "pass", "pat", "bearer", "signature", "sig", "cookie")
"""Words that do so only at its end: ``--api-key`` is secret, ``--key-dim`` and ``--token-dropout`` are not."""
_ABOUT_IT = ("file", "path", "dir", "name", "id", "stdin", "length", "len", "size", "type", "env", "prompt")
"""Words at the end of a name that is about a secret and does not hold it: ``--password-file``."""

_NAME = r"(?=[\w.-]{0,99}(?i:secret|pass|cred|key|token|auth|pwd|pat|bearer|sig|cookie))-{0,2}[A-Za-z_][\w.-]{0,99}"
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
    r"\b(?:hf_[A-Za-z0-9]{8,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{16,}"
    r"|xox[abeprs]-[\w-]{10,}|A(?:KIA|SIA)[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}"
    r"|(?<=Bearer )[\w.~+/-]{8,}=*)"
)
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def masked(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command with what looks secret in them masked; their number and order stay."""
    kept: list[str] = []
    for word in words:
        before = kept[-1] if kept else ""
        valued = before.startswith("-") and "=" not in before and is_secret(before)
        kept.append(MASK if valued and not re.match(r"--?[A-Za-z]", word) else masked_text(word))
    return tuple(kept)


def masked_text(text: str) -> str:
    """``text`` with what looks secret in it masked; of text without any, the same text."""
    text = _IN_ADDRESS.sub(rf"\g<scheme>{MASK}@", text)
    text = _OPTION.sub(_without_value, text)
    return _SHAPES.sub(MASK, _ASSIGNED.sub(_without_value, text))


def _without_value(found: re.Match[str]) -> str:
    if not is_secret(found["name"]) or found["value"] == MASK:
        return found[0]
    return found[0][: found.start("value") - found.start()] + MASK


def is_secret(name: str) -> bool:
    """Whether the value of an option, a variable or a field with this name is likely a secret."""
    parts = [part.lower() for part in _PARTS.findall(name)]
    if not parts or parts[-1] in _ABOUT_IT:
        return False
    return parts[-1] in _AT_THE_END or any(part in _ANYWHERE for part in parts)
