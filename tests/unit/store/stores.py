"""Stores for tests: of a few profiles and a probe, put there as commands put them."""

from pathlib import Path

from breakdowns import CALM
from probe_builder import p3_8xlarge, probe
from profile_builder import build

from stash.core.artefact import encode_artefact
from stash.store.storing import open_store


def calm_profile(day, **fields):
    """A calm profile of that day of November."""
    return build(CALM, created=f"2026-11-{day:02}T12:00:00+00:00", **fields)


def made(folder, days=3, probes=True):
    """A store of a profile a day, and of a probe."""
    store = open_store(str(folder))
    for day in range(1, days + 1):
        store.put(encode_artefact(calm_profile(day)), "run.stash.json")
    if probes:
        store.put(encode_artefact(probe(p3_8xlarge())), "node.host.json")
    return store


def put_fix(store):
    """The store with a record of a fix more."""
    golden = Path(__file__).resolve().parents[2] / "golden" / "schema-1.fix.json"
    store.put(golden.read_bytes(), golden.name)
    return store
