"""A study file: workloads × batches × targets × nodes × repeats, and how each cell is measured.

Knows what may be written and what it becomes (seconds, bytes per second, dollars per hour). Knows nothing of which
workloads and instances there are, nor of how a cell is run. ``docs/format.md`` has every field.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from stash.core import units
from stash.core.errors import UserError
from stash.core.files import read_up_to
from stash.core.ladder import NAMES, parse_rungs
from stash.core.units import parse_seconds
from stash.core.user_files import Location, YamlText, load, quantity

MAX_NODES = 1_024
_MAX_IN_A_LIST = 1_000
_PLAIN = r"[A-Za-z0-9][A-Za-z0-9._ +/-]*"
"""What may be a name: it stands in tables, folders and names of clusters."""


def _plain(name: str) -> str:
    if not re.fullmatch(_PLAIN, name):
        raise ValueError("may hold letters, digits and . _ + / - only")
    return name


def _make_list(given: Any) -> Any:
    """One value where several may stand."""
    return given if given is None or isinstance(given, (list, tuple)) else [given]


StudyName = Annotated[str, AfterValidator(_plain), Field(min_length=1, max_length=60)]
CommandWord = Annotated[
    str, BeforeValidator(lambda given: f"{given}" if isinstance(given, (int, float)) else given)
]
"""Of a command; ``0.1`` may stand without quotes."""
StudySeconds = Annotated[float, quantity(parse_seconds), Field(gt=0, le=1e7)]
LinkRate = Annotated[float | None, quantity(units.validate_rate)]
DollarsPerHour = Annotated[float | None, quantity(units.validate_price)]
Batch = Annotated[int, Field(ge=1, le=10**9)]
Nodes = Annotated[int, Field(ge=1, le=MAX_NODES)]
Batches = Annotated[
    tuple[Batch, ...], BeforeValidator(_make_list), Field(min_length=1, max_length=_MAX_IN_A_LIST)
]
NodeCounts = Annotated[
    tuple[Nodes, ...], BeforeValidator(_make_list), Field(min_length=1, max_length=_MAX_IN_A_LIST)
]
Names = Annotated[tuple[str, ...], BeforeValidator(_make_list), Field(max_length=_MAX_IN_A_LIST)]
JobWords = Annotated[tuple[CommandWord, ...], Field(max_length=_MAX_IN_A_LIST)]


class StudyField(BaseModel):
    """What all of them share: no field that is not known, and nothing changes once it is read."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class StudyWorkload(StudyField):
    """A workload of the zoo (``zoo``), or the user's own job (``command``)."""

    zoo: str | None = None
    """Its name in ``stash lab zoo``."""
    command: JobWords = ()
    """What stands after ``stash profile``: ``[train.py, --batch, "{batch}"]``, ``[-m, my.job]``, ``[--, mpirun …]``;
    ``{batch}``, ``{nodes}`` and ``{data}`` are filled in.
    """
    name: StudyName | None = None
    """In tables; else the zoo's name, or the script's."""
    batches: Batches | None = None
    """Samples per device; else the study's, else the workload's own."""

    @model_validator(mode="after")
    def _one_of_both(self) -> StudyWorkload:
        if (self.zoo is None) == (not self.command):
            raise ValueError(
                "give either `zoo:` with a workload's name or `command:` with the job's words"
            )
        if self.batches and self.command and not any("{batch}" in word for word in self.command):
            raise ValueError(
                "`batches:` changes nothing, since no word of `command:` holds {batch}"
            )
        return self


class _Target(StudyField):
    name: StudyName | None = None
    """In tables; else the instance's or the partition's."""
    nodes: NodeCounts | None = None
    """Else the study's."""
    devices: Annotated[int | None, Field(ge=1, le=1024)] = None
    """Ranks a node; else one per GPU."""
    data: str | Annotated[dict[str, str], Field(max_length=_MAX_IN_A_LIST)] | None = None
    """Where data lie there: one path, or one by workload's name. Without: data in memory."""
    price: DollarsPerHour = None
    """Of one node, where the catalog knows none or another is paid."""


class LocalTarget(_Target):
    """The machine that ``stash characterize`` runs on."""

    engine: Literal["local"]
    nodes: Annotated[tuple[Literal[1], ...] | None, BeforeValidator(_make_list)] = None


class SlurmTarget(_Target):
    """A partition of the Slurm cluster whose ``sbatch`` is on this machine; folders are shared with its nodes."""

    engine: Literal["slurm"]
    partition: StudyName
    time: StudySeconds | None = None
    """The job's limit; else three times what the cell is estimated to take."""
    at_once: Annotated[int, Field(ge=1, le=1_000)] = 1
    """Jobs in the queue at a time, once the first one is done."""
    options: JobWords = ()
    """Of ``sbatch``, like ``--gpus-per-node=8`` and ``--constraint=a100``."""
    setup: str = ""
    """Lines of shell before Stash runs: ``module load …``, ``source venv/bin/activate``."""


class SkyTarget(_Target):
    """An instance of a cloud, or pods of a Kubernetes cluster, through SkyPilot's ``sky``."""

    engine: Literal["sky"]
    instance: str | None = None
    """As the catalog has it."""
    accelerators: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+(:\d+)?$")] | None = None
    """``A100:8``, for Kubernetes, which has no instances."""
    cloud: StudyName | None = None
    """Else the instance's; ``kubernetes`` for a cluster."""
    region: StudyName | None = None
    spot: bool = False
    setup: str | None = None
    """Lines of shell on each node before the first cell; else this version of Stash is installed."""

    @model_validator(mode="after")
    def _something_to_rent(self) -> SkyTarget:
        if (self.instance is None) == (self.accelerators is None):
            raise ValueError("give either `instance:` or, for Kubernetes, `accelerators:`")
        if self.accelerators is not None and self.cloud is None:
            raise ValueError("`accelerators:` needs `cloud:`, like kubernetes")
        return self


class EmulatedTarget(_Target):
    """An instance of the catalog, emulated on this machine: devices that take published times, links at one scale."""

    engine: Literal["emulated"]
    instance: str
    data: None = None
    precision: Literal["fp32", "fp16"] = "fp32"
    interconnect: LinkRate = None
    """Bus bandwidth of an all-reduce inside a node; else the catalog's."""
    network: LinkRate = None
    """What collectives reach between nodes; else the catalog's."""
    ranks: Annotated[int | None, Field(ge=1, le=1024)] = None
    """At most so many stand for a node's devices, on links on which they wait as long; else one for each device."""


StudyTarget = Annotated[
    LocalTarget | SlurmTarget | SkyTarget | EmulatedTarget, Field(discriminator="engine")
]


def _rungs(given: Any) -> Any:
    try:
        return parse_rungs(",".join(given) if isinstance(given, (list, tuple)) else given)
    except (UserError, TypeError) as error:
        raise ValueError(str(error)) from None


class StudySettings(StudyField):
    """How each cell is measured: the options of ``stash profile``."""

    noise: Annotated[float, Field(ge=0.05, le=100)] = 2.0
    """Per cent of a step."""
    budget: StudySeconds = 60.0
    rungs: Annotated[tuple[str, ...], BeforeValidator(_rungs)] = NAMES
    patience: StudySeconds = 300.0


class Selection(StudyField):
    """Some cells: those that have one of each field that is given."""

    workload: Names | None = None
    batch: Batches | None = None
    target: Names | None = None
    nodes: NodeCounts | None = None

    @model_validator(mode="after")
    def _selects(self) -> Selection:
        if not self.model_fields_set:
            raise ValueError("give at least one of workload, batch, target and nodes")
        return self


class Study(StudyField):
    """A whole study file."""

    name: StudyName | None = None
    """Else the file's."""
    workloads: Annotated[tuple[StudyWorkload, ...], Field(min_length=1, max_length=_MAX_IN_A_LIST)]
    batches: Batches | None = None
    targets: Annotated[tuple[StudyTarget, ...], Field(min_length=1, max_length=_MAX_IN_A_LIST)]
    nodes: NodeCounts = (1,)
    repeats: Annotated[int, Field(ge=1, le=100)] = 1
    exclude: Annotated[tuple[Selection, ...], Field(max_length=_MAX_IN_A_LIST)] = ()
    """Cells of the product that are left out."""
    settings: StudySettings = StudySettings()
    results: str | None = None
    """A store, as a folder or a URL, that gets every profile; else ``results`` in the study's folder."""


_SCRIPTS = (".py", ".sh")
_MAX_SCRIPT = 2**26
"""Bytes of one."""


@dataclass(frozen=True)
class StudyFile:
    """A checked study, and where everything in it stands."""

    path: Path
    study: Study
    document: YamlText

    @property
    def name(self) -> str:
        return self.study.name or self.path.name.split(".")[0]

    @property
    def folder(self) -> Path:
        """Where its commands run, and its paths begin."""
        return self.path.resolve().parent

    def script(self, words: Sequence[str]) -> str:
        """The SHA-256 of the scripts that a command names: an edited one is another workload. Empty without any."""
        found = hashlib.sha256()
        for word in words:
            if word.endswith(_SCRIPTS):
                with suppress(OSError):  # named, and not here: whoever runs it will say so
                    found.update(read_up_to(self.folder / word, _MAX_SCRIPT))
        return found.hexdigest() if any(word.endswith(_SCRIPTS) for word in words) else ""

    def missing_script(self, words: Sequence[str]) -> str | None:
        """The script that a command begins with, if it is missing here, and so wherever cells run; an absolute path
        may be one of those machines' own.
        """
        script = words[0] if words and words[0].endswith(_SCRIPTS) else ""
        here = not script or Path(script).is_absolute() or (self.folder / script).is_file()
        return None if here else script

    def mistake(self, where: Location, why: str) -> UserError:
        """The error about the value at ``where``: with its line, its field and ``why``."""
        return self.document.mistake(where, why)


def read_study(path: Path) -> StudyFile:
    """The study at ``path``; raises UserError with line and field of every mistake."""
    file = load(path, Study, "the study", "a study is written in YAML, see docs/format.md")
    return StudyFile(path, file.content, file)
