"""The manifests that `stash schedule advise --engine kueue` prints, against the schemas of Kueue's own resources.

``python -m bench.kueue CHECKOUT`` takes a checkout (or a bare copy) of kubernetes-sigs/kueue and validates every
object of Gavel's trace against the ``openAPIV3Schema`` of its version, with fields that it does not know refused.
Rules in CEL, which only an API server runs, are not checked.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from bench.schedule import load
from bench.table import report, table
from stash.schedule.advice_now import advice
from stash.schedule.kueue import objects

KINDS = ("resourceflavors", "clusterqueues", "localqueues", "workloadpriorityclasses")
FOLDER = "config/components/crd/bases/kueue.x-k8s.io_"


def schemas(checkout: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The schema of each kind and version, at HEAD."""
    found = {}
    for plural in KINDS:
        words = ["git", "-C", str(checkout), "show", f"HEAD:{FOLDER}{plural}.yaml"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        spec = yaml.safe_load(done.stdout)["spec"]
        for version in spec["versions"]:
            key = spec["names"]["kind"], f"{spec['group']}/{version['name']}"
            found[key] = closed(version["schema"]["openAPIV3Schema"])
            found[key]["properties"]["metadata"] = {"type": "object"}
    return found


def closed(schema: Any) -> Any:
    """The same, with unknown fields refused wherever fields are listed."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "x-kubernetes-preserve-unknown-fields" not in schema:
        found.setdefault("additionalProperties", False)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    given = parser.parse_args()
    known = schemas(given.checkout)
    jobs, cluster, matrix = load("jobs")
    rows: dict[tuple[str, str], list[str]] = {}
    for one in objects(advice(jobs, cluster, matrix, "max-min"), cluster):
        key = one["kind"], one["apiVersion"]
        wrong = [
            f"{list(each.path)}: {each.message}" for each in jsonschema.Draft4Validator(known[key]).iter_errors(one)
        ]
        rows.setdefault(key, []).append("; ".join(wrong))
    report("Objects against Kueue's schemas:", table(
        ("kind", "version", "objects", "wrong", "first"),
        ((*key, len(found), sum(map(bool, found)), next(filter(None, found), None)) for key, found in rows.items()),
    ))  # fmt: skip


if __name__ == "__main__":
    main()
