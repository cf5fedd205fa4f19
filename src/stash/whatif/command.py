"""``stash whatif``: what a profiled job's step would be with other machines or settings.

Parses, loads, shows: what it says comes from ``stash.predict`` and ``stash.whatif``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.core.errors import UserError
from stash.store.storing import StoreOption
from stash.ui.options import flag, option

if TYPE_CHECKING:
    from stash.predict.cluster import Target
    from stash.predict.passes import Base

FILE_HELP = "A profile, of `stash profile`."
JSON_HELP = "Print the answer as JSON; its keys are a contract (docs/format.md)."
SWEEP_HELP = "A curve over a range, like nodes=1..64, or a list, like gpu=V100,T4; give it twice for two dimensions."
CLUSTER_HELP = "Machines as a YAML file describes them (docs/how-to/what-if.md), or as `stash probe` measured them."
OUTPUT_HELP = "Draw the sweep's curve into this file: .png, .svg, .pdf or .html."
_MACHINES, _JOB, _SHOWN = "Machines", "The job", "What is shown"


def _machine(metavar: str, text: str, *names: str) -> typer.models.OptionInfo:
    return option(metavar, text, *names, panel=_MACHINES)


def _job(metavar: str, text: str, *names: str) -> typer.models.OptionInfo:
    return option(metavar, text, *names, panel=_JOB)


def whatif(
    run: Annotated[str, typer.Argument(metavar="RUN", help=FILE_HELP, show_default=False)],
    instance: Annotated[str | None, _machine("NAME", "Instances of this type (`stash catalog`).")] = None,
    cluster: Annotated[str | None, _machine("FILE", CLUSTER_HELP)] = None,
    nodes: Annotated[str | None, _machine("N", "Machines.")] = None,
    gpus: Annotated[str | None, _machine("N", "Devices of a node, a rank each.")] = None,
    gpu: Annotated[str | None, _machine("NAME", "Another GPU, like A100-SXM4-80GB.")] = None,
    network: Annotated[str | None, _machine("RATE", "Of a node, like 100gbit.")] = None,
    cpus: Annotated[str | None, _machine("N", "Hardware threads of a node.")] = None,
    memory: Annotated[str | None, _machine("SIZE", "Of a node; what of the data it caches follows.")] = None,
    disk: Annotated[str | None, _machine("RATE", "Of a node's storage, like 500MB/s.")] = None,
    cache: Annotated[str | None, _machine("PERCENT", "Of the data set that fits into memory.")] = None,
    workers: Annotated[str | None, _job("N", "Of each rank's loader.")] = None,
    batch: Annotated[str | None, _job("N", "Samples of a device in one pass.")] = None,
    accumulate: Annotated[str | None, _job("N", "Passes of a step, gradients exchanged once.")] = None,
    compress: Annotated[str | None, _job("HOW", "Gradients on the way: fp16, or like 4x.")] = None,
    bucket: Annotated[str | None, _job("SIZE", "DDP's bucket_cap_mb, in MiB.")] = None,
    trained_in: Annotated[str | None, _job("HOW", "fp32 or amp.", "--precision-of-training")] = None,
    algorithm: Annotated[str | None, _job("NAME", "Of all-reduces: ring, tree or hierarchical.")] = None,
    sharding: Annotated[str | None, _job("HOW", "none, zero1, zero2 or zero3 (FSDP).")] = None,
    bucket_view: Annotated[str | None, _job("on|off", "DDP's gradient_as_bucket_view.")] = None,
    lasting: Annotated[str | None, _job("TIME", "Of the training: how much of it a disk's burst lasts.")] = None,
    over: Annotated[list[str] | None, option("A=1..64", SWEEP_HELP, "--sweep", panel=_SHOWN)] = None,
    output: Annotated[Path | None, option("FILE", OUTPUT_HELP, "--output", "-o", panel=_SHOWN)] = None,
    json: Annotated[bool, flag("--json", JSON_HELP, panel=_SHOWN)] = False,
    store: StoreOption = None,
) -> None:
    """Say what a step would be on machines never touched, beside what was measured, and how sure that is.

    Examples:

        stash whatif train.stash.json --network 100gbit --nodes 8

        stash whatif train.stash.json --sweep nodes=1..64 --gpu A100-SXM4-80GB
    """
    given = {
        "instance": instance, "cluster": cluster, "nodes": nodes, "gpus": gpus, "gpu": gpu, "network": network,
        "cpus": cpus, "memory": memory, "disk": disk, "cache": cache, "workers": workers, "batch": batch,
        "accumulate": accumulate, "compress": compress, "bucket": bucket, "precision-of-training": trained_in,
        "algorithm": algorithm, "sharding": sharding, "bucket-view": bucket_view, "lasting": lasting,
    }  # fmt: skip
    typed = {name: text for name, text in given.items() if text is not None}
    if output is not None and not over:
        raise UserError("--output draws a curve; say over what, like --sweep nodes=1..64")
    if over:
        _sweep(_base(run, store), typed, over, output, json)
    else:
        _answer(_base(run, store), typed, json)


def _base(run: str, store: str | None) -> Base:
    from stash.analysis.attribution import attribute
    from stash.catalog.layers import load
    from stash.predict.forecasting import base_of
    from stash.store.storing import profile_of

    profile, _ = profile_of(run, store)
    return base_of(profile, attribute(profile, run), catalog=load, clusters=_cluster)


def _cluster(file: str) -> Target:
    """Machines of a file; raises UserError."""
    from stash.core.artefact import PROBE_SUFFIX, load_probe
    from stash.core.records.base import SUFFIX
    from stash.core.user_files import text_of
    from stash.predict.cluster_file import target_of_text
    from stash.predict.cluster_sources import of_probe

    path = Path(file)
    if path.name.endswith(SUFFIX):
        raise UserError(f"--cluster {file} is a profile; give a *{PROBE_SUFFIX} of `stash probe`, or a description")
    if path.name.endswith(PROBE_SUFFIX):
        return of_probe(load_probe(path))
    described = "docs/how-to/what-if.md shows what such a file says"
    return target_of_text(text_of(path, "the cluster", described), file)


def _answer(base: Base, typed: dict[str, str], json: bool) -> None:
    from stash.report.output import printed
    from stash.whatif.answers import answered
    from stash.whatif.page import document, page

    answer = answered(base, typed)
    printed(document(answer) if json else page(answer))


def _sweep(base: Base, typed: dict[str, str], over: list[str], output: Path | None, json: bool) -> None:
    from stash.report.output import file_of, output_file, printed, write_output
    from stash.whatif.page import sweep_document
    from stash.whatif.sweep import axes, sweep
    from stash.whatif.sweep_page import page, swept

    found = axes(over)
    target = None if output is None else output_file(output, "", output.suffix)
    points = sweep(base, typed, found)
    name, measured = base.profile.workload.name, base.breakdown
    shown = page(swept(name, typed, found, points, measured.samples_per_second, measured.step_seconds))
    if target is not None:
        write_output(target, file_of(shown, target.suffix.lower()))
    printed(sweep_document(name, typed, found, points) if json else shown)
