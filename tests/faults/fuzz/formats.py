"""Every file format that Stash reads: files to begin with, and how Stash reads and shows one."""

from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import get_args

from breakdowns import CALM
from profile_builder import build
from rich.console import Console

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.analysis.comparison import compare, find_changed_facts, incomparable, network_stall
from stash.analysis.findings.probe_reading import read_probe as read_findings
from stash.analysis.limits import (
    check_requirement,
    judge_limit,
    not_slower,
    parse_limit,
    parse_requirement,
    parse_slower,
)
from stash.catalog import layers, own, snapshot
from stash.catalog.facts import PriceKind
from stash.catalog.offers import Catalog, OfferFilter
from stash.catalog.page import listing, sheet
from stash.catalog.published import DamagedError, parse_gpuhunt
from stash.cli.report_command import read_page
from stash.core import artefact
from stash.core.jsonl import Tail
from stash.core.printable import printable, strict_json
from stash.core.records.profile import Profile, Settings, Workload
from stash.core.redaction import redact_artefact
from stash.lab.testbed import emulation
from stash.lab.zoo.datasets import MANIFEST, read_manifest
from stash.measure.launcher.gathered import GatheredRun
from stash.measure.protocol import orders
from stash.measure.protocol.journal import new_messages
from stash.report import comparison_page, junit, probe_page, profile_contract, profile_page
from stash.report.exports import make_export, openmetrics
from stash.store.page import artefact_listing as listed
from stash.store.store import rows_of, verify_store
from stash.store.storing import open_chosen_store
from stash.ui import html, markdown, terminal
from tests.faults.fuzz import spot_formats
from tests.faults.fuzz.limits import Reader

CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Format:
    """One format: the files of ``corpus/NAME`` are whole, and ``read`` takes them without complaint."""

    name: str
    file: str
    """What a file of it is called where Stash looks for it."""
    read: Reader
    like: str = ""
    """The format whose files it begins with, if they are another's: what is read is the same, what is done is not."""

    @property
    def folder(self):
        return self.like or self.name

    @property
    def corpus(self):
        """The files to begin with, in the order of their names."""
        return [path.read_bytes() for path in sorted((CORPUS / self.folder).iterdir())]


def _shown(path):
    """As ``stash show FILE``, with and without ``--json``, and ``stash report``, with and without ``--markdown``."""
    found = artefact.load_any(path)
    shown = _profile(found, path) if isinstance(found, Profile) else _probe(found)
    page = read_page([str(path)])
    return [*shown, html.render(page), markdown.render(page)]


def _profile(profile, path):
    breakdown = attribute(profile, str(path))
    advice = verdict(breakdown, profile)
    report = terminal.render(profile_page.page(breakdown, advice, profile, explain=True))
    return [strict_json(profile_contract.document(breakdown, advice, profile)), report]


def _probe(probe):
    reading = read_findings(probe, _shipped())
    return [
        strict_json(probe_page.document(probe, reading)),
        terminal.render(probe_page.page(probe, reading, "here.host.json")),
    ]


@lru_cache(maxsize=1)
def _shipped():
    return layers.merge(None, None)


@lru_cache(maxsize=1)
def _known():
    return {(item.cloud, item.name): item for item in _shipped().instances}


def _offered(known, most=2):
    """As ``stash catalog`` and ``stash catalog show NAME``."""
    console = Console(width=100, color_system=None)
    offers = known.query(OfferFilter(kinds=get_args(PriceKind)))
    with console.capture() as capture:
        console.print(listing(offers[:most], date(2026, 11, 22)).text)
    sheets = [
        terminal.render(sheet(known, f"{item.cloud}/{item.name}"))
        for item in known.instances[:most]
    ]
    return [capture.get(), *sheets]


def _own(path):
    mine = own.load_own_file(path)
    instances, prices = mine.place_entries(_known())
    instances = tuple(instances.values())
    return _offered(Catalog(mine.gpus, instances, prices))


def _snapshot(path):
    found = snapshot.load_snapshot(path)
    assert found is not None
    return [
        text for part in found.parts for text in _offered(Catalog((), part.instances, part.prices))
    ]


def _price_list(read):
    def reader(path):
        try:
            read("aws", path.read_bytes().decode("utf-8", "replace"), "somewhere", "2026-11-20", {})
        except DamagedError as error:
            return [printable(str(error))]
        return []

    return reader


def _emulation(path):
    model = emulation.load(path)
    for exchange in filter(None, [model.exchange]):
        exchange.seconds(model.bytes, across_nodes=exchange.network is not None)
    return [printable(emulation.dump(model.scale(0.5, 2.0))), f"{model.compute_seconds:g}"]


def _manifest(path):
    return [printable(str(read_manifest(path.parent)))]


def _orders(path):
    found = orders.load_orders(path)
    return (
        []
        if found is None
        else [printable(f"orders: {found.files.journal} {found.rungs} {found.budget + 1:g}")]
    )


def _journal(path):
    gathered = GatheredRun()
    for message in new_messages(Tail(path)):
        gathered.add_message(message)
    settings = Settings(
        precision=0.02, budget_seconds=1, rungs=tuple(gathered.rungs), isolated=False, why=""
    )
    made = gathered.profile(
        Workload(command=("train.py",), name="train.py"),
        settings=settings,
        ended="budget",
        elapsed_seconds=1.0,
    )
    saved = path.with_name("journal.stash.json")
    artefact.save(made, saved)
    return _shown(saved)


def _compared(path):
    """As ``stash compare --force``, ``stash check``, ``stash show --redact`` and ``stash export``."""
    found = artefact.load_any(path)
    if not isinstance(found, Profile):
        return _probe(redact_artefact(found))
    whole = build(CALM)
    runs = {"whole": attribute(whole, "whole.stash.json"), "changed": attribute(found, str(path))}
    texts = []
    for before, after in (("whole", "changed"), ("changed", "whole")):
        sides = [[found if name == "changed" else whole] for name in (before, after)]
        names = (found.workload.name, (before,), (after,))
        compared = (
            compare([runs[before]], [runs[after]]),
            names,
            find_changed_facts(*sides),
            incomparable(*sides),
            network_stall(*sides),
        )
        texts += [
            strict_json(comparison_page.document(*compared)),
            terminal.render(comparison_page.page(*compared)),
        ]
    decisions = [
        judge_limit(parse_limit("--max", "step=250ms"), [runs["changed"]]),
        not_slower(parse_slower("5%"), [runs["whole"]], [runs["changed"]]),
        check_requirement(parse_requirement("ranks=2"), [found]),
    ]
    return [
        *texts,
        *_profile(redact_artefact(found), path),
        junit.render_junit(decisions, found.workload.name),
        openmetrics([make_export(found)]),
    ]


def _stored(path):
    """As ``stash list``, ``stash store verify`` and a copy kept in a store; what a query would read, but no query."""
    opened = open_chosen_store(str(path.parent))
    there = [path.name]
    rows = [*opened.rows(there)]
    texts = [strict_json([*rows, *opened.blocks(there)])]
    texts += [
        printable(str(each)) for each in (*verify_store(opened)[1], *opened.unreadable.values())
    ]
    lines = [each["artefacts"][0] for each in rows]
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(listed(lines, 120).text)
    kept = open_chosen_store(str(path.parent / "kept"))
    name = kept.put(path.read_bytes(), path.name)
    kept.load(kept.find(name[17:30]))
    return [*texts, capture.get()]


def _digest(path):
    name = "20261122T120000Z-0123456789abcdef01234567.stash.json"
    rows = rows_of(name, path.read_bytes())
    return [] if rows is None else [strict_json(rows)]


FORMATS = (
    Format("profile-schema-1", "run.stash.json", _shown),
    Format("profile-schema-2", "run.stash.json", _shown),
    Format("profile-schema-3", "run.stash.json", _shown),
    Format("probe", "node.host.json", _shown),
    Format("own-instances", "instances.yaml", _own),
    Format("catalog-snapshot", "catalog.json", _snapshot),
    Format("gpuhunt-prices", "aws.csv", _price_list(parse_gpuhunt)),
    Format("emulation", "model.yaml", _emulation),
    Format("dataset", MANIFEST, _manifest),
    Format("orders", "orders.json", _orders),
    Format("journal", "journal.jsonl", _journal),
    Format("compared", "run.stash.json", _compared, like="profile-schema-2"),
    Format("stored", "run.stash.json", _stored, like="profile-schema-2"),
    Format("stored-probe", "node.host.json", _stored, like="probe"),
    Format("digest", "digest.jsonl", _digest),
    Format("spot-trace", "us-east-1a_v100_1.json", spot_formats.trace),
    Format("spot-plan", "job.plan.json", spot_formats.plan),
    Format("spot-log", "job.spotlog.json", spot_formats.log),
)
