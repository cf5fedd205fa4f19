"""Inputs: files made to break their reader, text made to act on a terminal, secrets among the words of a command."""

from __future__ import annotations

import json
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any

from runs import Outcome

from tests.faults.case import Case, Expected, Room
from tests.faults.fuzz.formats import CORPUS
from tests.faults.fuzz.mutations import ACTS

KIND = "inputs"
SECRET = "s3cr3tValue"
ACTING = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
PYTHON = (sys.executable, "-m")
Content = Callable[[], str]


def _whole(name: str) -> Any:
    return json.loads((CORPUS / name).read_text())


def profile(**fields: Any) -> Content:
    """A profile with some fields replaced."""
    return lambda: json.dumps(_whole("profile-schema-2/one-node.json") | fields)


def blocks(**columns: Any) -> Content:
    """A profile with some columns of its blocks replaced."""

    def text() -> str:
        whole = _whole("profile-schema-2/one-node.json")
        return json.dumps(whole | {"blocks": whole["blocks"] | columns})

    return text


def probe(*path: str | int, value: Any) -> Content:
    """A probe in which one value is replaced."""

    def text() -> str:
        whole = _whole("probe/two-nodes.json")
        holder = whole
        for part in path[:-1]:
            holder = holder[part]
        holder[path[-1]] = value
        return json.dumps(whole)

    return text


def acting(name: str) -> Content:
    """The file with what acts on a terminal at the end of every text in it that is free to be anything."""

    def hurt(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: hurt(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [hurt(item, key) for item in value]
        fixed = key in ("rung", "rungs", "device", "feed", "scope", "source", "target", "blocks", "values", "kind")
        return value + ACTS if isinstance(value, str) and not fixed else value

    return lambda: json.dumps(hurt(_whole(name)))


def _bomb(step: str) -> Content:
    """Anchors, each naming the one before it ten times."""
    lines = ["x0: &x0 {a: 1, b: 2}", *(step.format(i=i, before=i - 1) for i in range(1, 12))]
    return lambda: "\n".join(lines) + "\ninstances: []\n"


DEEP = '{"schema_version": 2, "workload": ' + "[" * 100_000
LONG = '{"schema_version": 2, "workload": ' + "9" * 5000 + "}"
SHOWN: tuple[tuple[str, str, Content, str], ...] = (
    ("JSON nested 100,000 deep", "a.stash.json", lambda: DEEP, "nested too deep"),
    ("an integer of 5,000 digits", "a.stash.json", lambda: LONG, "a number is too long"),
    ("NaN seconds", "a.stash.json", profile(elapsed_seconds=float("nan")), "elapsed_seconds: input should be"),
    ("infinite seconds", "a.stash.json", profile(elapsed_seconds=float("inf")), "elapsed_seconds: input should be"),
    ("1e300 seconds", "a.stash.json", profile(elapsed_seconds=1e300), "elapsed_seconds: input should be less"),
    ("a run of 10^12 blocks", "a.stash.json", blocks(rank={"times": [10**12], "values": [0]}), "blocks.rank.times"),
    ("a run of -1 blocks", "a.stash.json", blocks(rank={"times": [-1], "values": [0]}), "blocks.rank.times.0"),
    (
        "10^12 steps in one block", "a.stash.json",
        blocks(step_seconds={"lengths": [10**12], "items": [1.0]}), "lengths that add up",
    ),
    ("a rank of 10^30", "a.stash.json", blocks(rank=[10**30]), "blocks.rank.0"),
    ("a name of two million letters", "a.stash.json", profile(ended="x" * 2_000_000), "ended: string should have"),
    ("a schema from the future", "a.stash.json", profile(schema_version=10**40), "made by a newer Stash"),
    ("a negative schema", "a.stash.json", profile(schema_version=-7), "no Stash ever wrote"),
    ("a profile cut in half", "a.stash.json", lambda: profile()()[:2000], "damaged or cut short"),
    ("a list instead of a profile", "a.stash.json", lambda: "[1, 2]", "no schema_version"),
    ("ranks that are none", "a.stash.json", profile(ranks=[]), "names no rank"),
    (
        "copies in 10^-300 s", "a.host.json",
        probe("hosts", 0, "links", "copies", 0, "timings", 0, "seconds", 0, value=1e-300),
        "copies.0.timings.0.seconds.0",
    ),
    (
        "copies of no bytes", "a.host.json",
        probe("hosts", 0, "links", "copies", 0, "timings", 0, "bytes", value=0),
        "copies.0.timings.0.bytes",
    ),
    (
        "an exchange of no ranks", "a.host.json",
        probe("hosts", 0, "links", "exchanges", 0, "ranks", value=0), "exchanges.0.ranks",
    ),
    ("-3 cores", "a.host.json", probe("hosts", 0, "cores", value=-3), "hosts.0.cores"),
    ("infinite memory", "a.host.json", probe("hosts", 0, "memory_bytes", value=float("inf")), "memory_bytes"),
)  # fmt: skip
INSTANCES: tuple[tuple[str, str, Content, str], ...] = (
    ("a bomb of aliases", "a.yaml", _bomb("x{i}: &x{i} [*x{before}" + ", *x{before}" * 9 + "]"), "more than 50000"),
    ("a bomb of merge keys", "a.yaml", _bomb("x{i}: &x{i} {{<<: [*x{before}" + ", *x{before}" * 9 + "]}}"), "50000"),
    ("a value that contains itself", "a.yaml", lambda: "gpus: &a [*a]\n", "contains itself"),
    ("an object of Python's", "a.yaml", lambda: "gpus: !!python/object/apply:os.system [id]\n", "not valid YAML"),
    ("YAML nested 5,000 deep", "a.yaml", lambda: "gpus: " + "[" * 5_000, "nested too deep|not valid YAML"),
    ("20,000 mistakes", "a.yaml", lambda: "gpus:\n" + "- {}\n" * 20_000, "more mistakes"),
    ("a megabyte", "a.yaml", lambda: "# " + "x" * 2**20, "is larger than"),
    ("an infinite size", "a.yaml", lambda: "gpus:\n- {name: a, fp32_tflops: .inf}\n", "fp32_tflops"),
    ("a size of 1e999 bytes", "a.yaml", lambda: "gpus:\n- {name: a, memory: 1e999 GB}\n", "cannot read the size"),
    ("the 45th of the 13th month", "a.yaml", lambda: "gpus:\n- {name: a, as_of: '2026-13-45'}\n", "is not a date"),
    ("a name that is a list", "a.yaml", lambda: "? [a, b]\n: c\n", "a name is no plain text"),
)
MODELS: tuple[tuple[str, str, Content, str], ...] = (
    ("a bomb as a model", "m.yaml", _bomb("x{i}: &x{i} [*x{before}" + ", *x{before}" * 9 + "]"), "more than 50000"),
    ("a model of 1e999 bytes", "m.yaml", lambda: "layers:\n- {name: a, bytes: 1e999 kB}\n", r"layers\[0\].bytes"),
    ("an infinite rank", "m.yaml", lambda: "layers: []\nslow_ranks: {0: .inf}\n", "layers|slow_ranks"),
)
DATA: tuple[tuple[str, str, Content, str], ...] = (
    ("a description nested deep", "stash-dataset.json", lambda: DEEP, "is damaged"),
    ("a description of -1 samples", "stash-dataset.json",
     lambda: '{"format": 1, "kind": "images", "seed": 0, "count": -1, "complete": true, "bytes": 1}', "is damaged"),
)  # fmt: skip
SNAPSHOTS: tuple[tuple[str, str, Content, str], ...] = (
    ("a snapshot nested deep", "catalog.json", lambda: DEEP, "snapshot .* is damaged"),
    ("an infinite price", "catalog.json", lambda: _snapshot(4, float("inf")), "not a positive number"),
    ("an offer of no instance", "catalog.json", lambda: _snapshot(1, "none"), "is of no instance"),
)


def _snapshot(column: int, value: Any) -> str:
    whole = _whole("catalog-snapshot/catalog.json")
    whole["parts"][0]["prices"][0][column] = value
    return json.dumps(whole)


def _command(file: str, *words: str) -> Callable[[Room], tuple[str, ...]]:
    """The words, with the file and its folder filled in."""
    return lambda room: tuple(
        word.replace("{file}", str(room.outside / file)).replace("{folder}", str(room.outside)) for word in words
    )


def _put(file: str, content: Content) -> Callable[[Room], None]:
    def prepare(room: Room) -> None:
        (room.outside / file).write_text(content())

    return prepare


def _short(outcome: Outcome, room: Room) -> str | None:
    output = len(outcome.stdout) + len(outcome.stderr)
    return f"{output} characters were printed" if output > 60_000 else None


def _refused(rows: tuple[tuple[str, str, Content, str], ...], *words: str, fast: int = 5) -> Iterator[Case]:
    """Each file is refused with status 2 and the sentence of its row; every ``fast``-th in `make test-all`."""
    for number, (name, file, content, says) in enumerate(rows):
        yield Case(
            KIND, name, prepare=_put(file, content), program=_command(file, *words),
            expected=Expected((2,), (says,), (ACTING, "Traceback")), check=_short,
            pace="slow" if number % fast else "fast",
        )  # fmt: skip


def _harmless(name: str, file: str, content: Content, *words: str) -> Case:
    """The file is read, and nothing that is printed acts on a terminal."""
    return Case(
        KIND, name, prepare=_put(file, content), program=_command(file, *words), check=_short,
        expected=Expected((0,), (r"\\x1b\]0;owned|\\u001b\]0;owned",), (ACTING, "Traceback")), pace="fast",
    )  # fmt: skip


WORDS = ("--api-key", SECRET, f"--token={SECRET}", f"https://me:{SECRET}@host/data", f"HF_TOKEN={SECRET}")


def _kept_secret(outcome: Outcome, room: Room) -> str | None:
    """Neither in what is printed nor in the artefact, which is its owner's alone."""
    artefact = room.work / "run.stash.json"
    texts = [outcome.stdout, outcome.stderr, *([artefact.read_text()] if artefact.exists() else [])]
    if any(SECRET in text for text in texts):
        return "a secret is told"
    if artefact.exists() and stat.S_IMODE(artefact.stat().st_mode) != 0o600:
        return "the artefact can be read by others"
    return _short(outcome, room)


def _log_is_private(outcome: Outcome, room: Room) -> str | None:
    """The whole of what was cut is where the last lines say, in a folder of the user's alone."""
    logs = list(room.temporary.glob("stash-*/output.log"))
    if len(logs) != 1 or str(logs[0]) not in outcome.stderr:
        return "the log of the whole is not named"
    if stat.S_IMODE(logs[0].parent.stat().st_mode) != 0o700:
        return "the log's folder can be read by others"
    return _kept_secret(outcome, room)


STRANGE = f"tr{ACTS.replace(chr(0), '')}ain.py"


def _with_strange_name(room: Room) -> None:
    shutil.copy(room.work / "train.py", room.work / STRANGE)


PROFILES = [
    Case(
        KIND, "secrets among the words of a job", ("wordy.py", *WORDS), check=_kept_secret, pace="quick",
        expected=Expected((0,), (), ("Traceback",), rounds=1),
    ),
    Case(
        KIND, "secrets among the words of a dry run", ("wordy.py", *WORDS), ("--dry-run",), check=_kept_secret,
        expected=Expected((0,), (r"--api-key '?\*\*\*'?",)), pace="quick",
    ),
    Case(
        KIND, "an exception of 3 MB that acts on terminals", ("wordy.py", "--fails"), check=_log_is_private,
        expected=Expected((1,), ("ValueError", "characters left out", "the end"), (ACTING,), leaves=("stash-*",)),
    ),
    Case(
        KIND, "a job that prints 200,000 lines and fails", ("wordy.py", "--prints"), check=_log_is_private,
        expected=Expected((1,), ("exit code 3",), (ACTING,), leaves=("stash-*",)),
    ),
    Case(
        KIND, "a script whose name acts on terminals", (STRANGE,), prepare=_with_strange_name,
        expected=Expected((0,), (r"\\x1b\]0;owned",), (ACTING, "Traceback"), rounds=1),
    ),
]  # fmt: skip

_MODEL = (*PYTHON, "stash.lab.testbed.train_emulated", "--model", "{file}")
CASES = [
    *PROFILES,
    *_refused(SHOWN, *PYTHON, "stash", "show", "{file}"),
    *_refused(INSTANCES, *PYTHON, "stash", "catalog", "--instances", "{file}"),
    *_refused(MODELS, *_MODEL, fast=99),
    *_refused(DATA, *PYTHON, "stash", "lab", "dataset", "make", "images", "{folder}"),
    *_refused(SNAPSHOTS, "env", "STASH_HOME={folder}", *PYTHON, "stash", "catalog"),
    _harmless("a profile all of whose texts act", "a.stash.json", acting("profile-schema-2/one-node.json"),
              *PYTHON, "stash", "show", "{file}"),
    _harmless("the same as JSON", "a.stash.json", acting("profile-schema-2/one-node.json"),
              *PYTHON, "stash", "show", "--json", "{file}"),
    _harmless("a probe all of whose texts act", "a.host.json", acting("probe/two-nodes.json"),
              *PYTHON, "stash", "show", "{file}"),
    _harmless("the same probe as JSON", "a.host.json", acting("probe/two-nodes.json"),
              *PYTHON, "stash", "show", "--json", "{file}"),
    _harmless("an instance whose name acts", "a.yaml",
              lambda: f"instances:\n- {{name: {json.dumps(ACTS)}, price: $1/h, gpu: V100}}\n",
              *PYTHON, "stash", "catalog", "--instances", "{file}", "--cloud", "on-premise"),
]  # fmt: skip
