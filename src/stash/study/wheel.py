"""This very Stash as a wheel, for machines that have none: whatever it was installed from, they run what runs here.

A wheel is a zip of the package and of what pip knows of it (packaging.python.org, binary distribution format). Its
version has a label made from the content, so that pip replaces an earlier one exactly where they differ.
"""

from __future__ import annotations

import hashlib
import io
import re
import shlex
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import stash
from stash.core.errors import UserError
from stash.core.version import __version__

_NAME = "stash-ddl"
_REMOTE = "~/stash-wheel"
_REQUIREMENTS = "requirements.txt"
_TAGS = "Wheel-Version: 1.0\nGenerator: stash\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@dataclass(frozen=True)
class Wheel:
    """The file, and how a rented machine comes by it."""

    name: str
    content: bytes = field(repr=False)

    def mount(self, folder: Path) -> dict[str, str]:
        """SkyPilot's ``file_mounts``, of a wheel that lies in ``folder`` here."""
        return {f"{_REMOTE}/{self.name}": str(folder / self.name)}

    @property
    def shared(self) -> dict[str, bytes]:
        """What is to lie in that folder."""
        return {self.name: self.content}

    def install(self, work: Path | None, *others: str, extra: str = "") -> str:
        """The line of shell, run in a copy of ``work``: this, ``others``, and what the job there says it needs.

        PyTorch, which is no dependency, is installed where the machine has none.
        """
        own = f"{_REMOTE}/" + shlex.quote(f"{self.name}[{extra}]" if extra else self.name)
        needed = ["-r", _REQUIREMENTS] if work is not None and (work / _REQUIREMENTS).is_file() else []
        return " ".join(["pip install", own, "torch", *map(shlex.quote, [*others, *needed])])


@cache
def own_wheel() -> Wheel:
    """Raises UserError where pip knows nothing of this Stash."""
    known, metadata = _known()
    package = Path(stash.__file__).parent
    own = sorted(path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    files = {f"{package.name}/{path.relative_to(package).as_posix()}": path.read_bytes() for path in own}
    content = hashlib.sha256(metadata.encode())
    for name, data in files.items():
        content.update(f"{name}\0{len(data)}\0".encode() + data)
    whole = f"{__version__}+{content.hexdigest()[:12]}"
    stem = f"{_NAME.replace('-', '_')}-{whole}"
    texts = {
        "METADATA": re.sub(r"(?m)^Version: .*$", f"Version: {whole}", metadata, count=1),
        "WHEEL": _TAGS,
        "entry_points.txt": known.read_text("entry_points.txt") or "",
    }
    facts = {f"{stem}.dist-info/{name}": text.encode() for name, text in texts.items()}
    return Wheel(f"{stem}-py3-none-any.whl", _zipped({**files, **facts}, stem))


def _known() -> tuple[Distribution, str]:
    """What pip knows of this Stash, and its core metadata; raises UserError."""
    try:
        known = distribution(_NAME)
        metadata = known.read_text("METADATA") or known.read_text("PKG-INFO")  # the latter of sources (egg-info)
    except PackageNotFoundError:
        metadata = None
    if not metadata:
        raise UserError(
            "rented machines get the Stash that runs here, and it was never installed here; in its folder, type "
            "`pip install .`"
        )
    return known, metadata


def _zipped(files: dict[str, bytes], stem: str) -> bytes:
    record, lines = f"{stem}.dist-info/RECORD", []
    for name, data in files.items():
        digest = urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    whole = io.BytesIO()
    with ZipFile(whole, "w", ZIP_DEFLATED) as archive:
        for name, data in {**files, record: "".join([*lines, f"{record},,\n"]).encode()}.items():
            archive.writestr(ZipInfo(name), data, ZIP_DEFLATED)  # of no date: the same content is the same file
    return whole.getvalue()
