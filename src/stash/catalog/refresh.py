"""``stash catalog refresh``: downloads published price lists, checks them, and renews the snapshot.

Knows where the lists are published and what makes one unbelievable. A list that cannot be had or used leaves its
part of the old snapshot as it was. The network is reached only through the ``Transport`` that is handed in.
"""

from __future__ import annotations

import csv
import io
import re
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener
from zlib import error as ZlibError  # noqa: N812  (its real name says nothing)

from stash.catalog import facts, layers, snapshot
from stash.catalog.facts import Instance, Price, PriceKind, is_date
from stash.catalog.offers import Catalog
from stash.catalog.published import DamagedError, parse_gpuhunt
from stash.catalog.snapshot import Part, Snapshot
from stash.core.errors import StashError, one_line

Transport = Callable[[str], bytes]
"""Fetches a URL; raises OSError when it cannot be reached."""

_HOST = "dstack-gpu-pricing.s3.eu-west-1.amazonaws.com"
GPUHUNT = f"https://{_HOST}/v3"
_LISTS = {"aws": "aws", "azure": "azure", "gcp": "gcp", "lambda": "lambdalabs", "runpod": "runpod"}
"""Each cloud, and how gpuhunt calls it, which dates its lists and prices whole machines."""
_MAX_BYTES = 100 * 2**20
"""Bytes of a list, packed or not."""
_MAX_SILENCE, _MAX_SECONDS = 20.0, 300.0
"""Seconds without a byte, and for all of a list."""
_MAX_VERSION = 100
"""Bytes of the text that names a list's version."""
_MIN_SHARE, _FEW = 0.5, 20
_JUMP, _JUMPED_SHARE = 5.0, 0.5


@dataclass(frozen=True)
class Report:
    """What a refresh did."""

    failures: tuple[str, ...]
    """One sentence on each list that could not be used; its part of the snapshot stays as it was."""
    updated: tuple[str, ...]
    offers: int
    path: Path


def fetch_https(url: str) -> bytes:
    """The real transport: the body behind an https URL, of bounded size and time. Raises OSError."""
    return fetch_url(url, "https")


def fetch_url(url: str, scheme: str) -> bytes:
    """The body behind ``url``, asked for, and sent on to, nowhere but over ``scheme``. Raises OSError."""
    if urlsplit(url).scheme != scheme:
        raise URLError(f"{url} is not {scheme}")
    request = Request(url, headers={"User-Agent": "stash-ddl (stash catalog refresh)"})
    try:
        with build_opener(_SameScheme(scheme)).open(request, timeout=_MAX_SILENCE) as answer:
            # at most one byte more than a list may have
            deadline = time.monotonic() + _MAX_SECONDS
            parts = []
            size = 0
            while size <= _MAX_BYTES and (part := answer.read1(min(2**20, _MAX_BYTES + 1 - size))):
                parts.append(part)
                size += len(part)
                if time.monotonic() > deadline:
                    raise OSError(f"it took longer than {_MAX_SECONDS:.0f} s")
            body = b"".join(parts)
            length = answer.headers.get("Content-Length")
    except HTTPException as error:
        raise OSError(f"the connection broke: {error!r}") from error
    if length is not None and len(body) <= _MAX_BYTES and length != str(len(body)):
        raise OSError("the download is not complete")
    return body


class _SameScheme(HTTPRedirectHandler):
    """Follows a redirection only if it stays as safe as it was."""

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if urlsplit(newurl).scheme != self._scheme:
            raise URLError(f"it sends on to {newurl}, which is not {self._scheme}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def refresh_snapshot(transport: Transport = fetch_https, now: datetime | None = None) -> Report:
    """Renew the snapshot from every list that can be had and believed.

    Raises StashError, and changes nothing, when no list could be.
    """
    path = facts.snapshot_file()
    now = now or datetime.now(timezone.utc)
    old, lost = _load_old(path)
    before = layers.merge(old, None)
    parts, failures = _download_lists(transport, before, old)
    if not parts:
        raise StashError(_why_nothing(failures, old))
    # The new parts, and the old ones that could not be renewed.
    every = [parts.get(name) or (old and old.part(name)) for name in map(_name, _LISTS)]
    renewed = Snapshot(now.isoformat(timespec="seconds"), tuple(part for part in every if part))
    offers = len(layers.merge(renewed, None).prices)
    snapshot.save_snapshot(renewed, path)
    return Report((*lost, *(text for _, text in failures)), tuple(parts), offers, path)


def _load_old(path: Path) -> tuple[Snapshot | None, tuple[str, ...]]:
    """The snapshot so far; a damaged one counts as none and is replaced."""
    try:
        return snapshot.load_snapshot(path), ()
    except StashError as error:
        return None, (f"{error}; it is replaced",)


Failures = list[tuple[bool, str]]
"""Whether the network was at fault, and a sentence."""


def _name(cloud: str) -> str:
    return f"gpuhunt {cloud}"


def _download_lists(
    transport: Transport, before: Catalog, old: Snapshot | None
) -> tuple[dict[str, Part], Failures]:
    parts: dict[str, Part] = {}
    failures: Failures = []
    for cloud in _LISTS:
        name = _name(cloud)
        try:
            parts[name] = _download_part(cloud, transport, before, old.part(name) if old else None)
        except HTTPError as error:
            failures.append((False, f"{name}: the server answers {error.code} for {error.url}"))
        except OSError as error:
            failures.append(
                (True, f"{_HOST} cannot be reached ({getattr(error, 'reason', None) or error})")
            )
            break  # all lists are there
        except DamagedError as error:
            failures.append((False, f"{name}: {error}; not used"))
    return parts, failures


def _why_nothing(failures: Failures, old: Snapshot | None) -> str:
    keeps = (
        f"the snapshot of {old.created[:10]} stays"
        if old
        else "the prices that came with Stash stay"
    )
    if all(network for network, _ in failures):
        return f"the catalog was not refreshed, because this machine seems to be offline; {keeps} ({failures[0][1]})"
    return (
        f"the catalog was not refreshed, because no price list could be used; {keeps}: "
        + "; ".join(text for _, text in failures)
    )


def _download_part(cloud: str, transport: Transport, before: Catalog, old: Part | None) -> Part:
    name = _name(cloud)
    folder = f"{GPUHUNT}/{_LISTS[cloud]}"
    # the newest list's version (20261119-12) has its date
    version = transport(f"{folder}/version")[:_MAX_VERSION].decode(errors="replace").strip()
    match = re.fullmatch(r"(20\d\d)([01]\d)([0-3]\d)-[0-9]{1,9}", version, re.ASCII)
    published = "-".join(match.groups()) if match is not None else ""
    if not is_date(published):
        raise DamagedError(f"its version {version[:30]!r} is not a date and a number")
    body = transport(f"{folder}/{version}/catalog.zip")
    if len(body) > _MAX_BYTES:
        raise DamagedError(f"it is larger than {_MAX_BYTES // 2**20} MB")
    text = _text(body, f"{_LISTS[cloud]}.csv")
    known = {item.name: item for item in before.instances if item.cloud == cloud}
    try:
        listed = parse_gpuhunt(cloud, text, f"{name}, published {published}", published, known)
    except DamagedError:
        raise
    except (csv.Error, ValueError, LookupError, TypeError) as error:
        raise DamagedError(f"it cannot be read ({one_line(error)})") from error
    prices = listed.prices()
    _check_believable(prices, cloud, before, old)
    priced = {key[0] for key in prices}
    instances: tuple[Instance, ...] = tuple(
        item for key, item in listed.instances.items() if key in priced
    )
    rows = [
        Price(cloud, *key, price, listed.as_of, listed.source, "") for key, price in prices.items()
    ]
    return Part(name, instances, tuple(rows))


def _text(body: bytes, member: str) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            if archive.getinfo(member).file_size > _MAX_BYTES:
                raise DamagedError("it unpacks to far more than a price list holds")
            with archive.open(member) as file:  # what it says of its size need not be true
                content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise DamagedError("it unpacks to far more than a price list holds")
        return content.decode("utf-8").replace("\r\n", "\n")
    except (zipfile.BadZipFile, ZlibError, EOFError, NotImplementedError, RuntimeError) as error:
        raise DamagedError(f"it is no whole zip file ({error})") from error
    except KeyError as error:
        raise DamagedError(f"it holds no {member}") from error
    except UnicodeDecodeError as error:
        raise DamagedError("it is not text") from error


def _check_believable(
    prices: Mapping[tuple[str, str, PriceKind], float],
    cloud: str,
    before: Catalog,
    old: Part | None,
) -> None:
    """Raise DamagedError when a list shrank by half or most prices it shares with the catalog jumped."""
    if old is not None and len(old.prices) > _FEW and len(prices) < _MIN_SHARE * len(old.prices):
        raise DamagedError(
            f"it has {len(prices)} offers where the snapshot has {len(old.prices)}; it may be cut off"
        )
    known = {
        (offer.instance.name, offer.region, offer.kind): offer.dollars_per_hour
        for offer in before.query()
        if offer.instance.cloud == cloud
    }
    ratios = [price / known[key] for key, price in prices.items() if key in known]
    jumps = sum(not 1 / _JUMP <= ratio <= _JUMP for ratio in ratios)
    if len(ratios) >= 3 and jumps > _JUMPED_SHARE * len(ratios):
        raise DamagedError(
            f"{jumps} of {len(ratios)} known prices changed more than fivefold; the unit may be wrong"
        )
