"""What ``stash whatif`` does with one profile: what its step would be with other machines or settings.

Loads and shows: what it says comes from ``stash.predict`` and ``stash.whatif``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stash.core.errors import UserError

_BEST = 8
"""Meshes that are shown, besides those that cannot be predicted, with the reasons."""

if TYPE_CHECKING:
    from stash.predict.changes import Alteration
    from stash.predict.cluster import Target
    from stash.predict.passes import Base


def print_answer(
    run: str,
    wanted: Alteration,
    over: tuple[str, ...],
    output: Path | None,
    json: bool,
    store: str | None,
) -> None:
    """Print the step of a profile's job as ``wanted``, or its curve ``over`` ranges; raises UserError."""
    from stash.analysis.attribution import attribute
    from stash.catalog.layers import load
    from stash.predict.forecasting import base_of
    from stash.predict.mesh_shapes import ALL
    from stash.store.storing import profile_of

    profile, _ = profile_of(run, store)
    base = base_of(profile, attribute(profile, run), catalog=load, clusters=_load_cluster)
    if over or wanted.mesh == ALL:
        _print_sweep(base, wanted, over, output, json)
    else:
        from stash.report.output import print_output
        from stash.whatif.answers import answer_question
        from stash.whatif.page import document, page

        answer = answer_question(base, wanted)
        print_output(document(answer) if json else page(answer))


def print_power_limit(run: str, watts: float, json: bool, store: str | None) -> None:
    """Print what a limit of each GPU's power makes of a profile's step; raises UserError."""
    from stash.analysis.attribution import attribute
    from stash.catalog.layers import load
    from stash.report.output import print_output
    from stash.store.storing import profile_of
    from stash.whatif.power_limit import document, limit_power, page

    profile, _ = profile_of(run, store)
    answer = limit_power(profile, attribute(profile, run), watts, load().gpus)
    print_output(document(answer) if json else page(answer))


def _load_cluster(file: str) -> Target:
    """Machines that were probed; raises UserError."""
    from stash.core.artefact import PROBE_SUFFIX, load_probe
    from stash.predict.cluster_sources import target_of_probe

    path = Path(file)
    if not path.name.endswith(PROBE_SUFFIX):
        raise UserError(f"--cluster {file} is no *{PROBE_SUFFIX}; `stash probe` writes one")
    return target_of_probe(load_probe(path))


def _print_sweep(
    base: Base, wanted: Alteration, over: tuple[str, ...], output: Path | None, json: bool
) -> None:
    from stash.core.output_files import output_file, write_output
    from stash.core.printable import print_written
    from stash.predict.mesh_shapes import ALL
    from stash.report.output import file_of, print_output
    from stash.whatif.page import sweep_document
    from stash.whatif.sweep import SweptOption, axes, meshes, sweep
    from stash.whatif.sweep_page import page

    target = None if output is None else output_file(output, "", output.suffix)
    name, typed = base.profile.workload.name, wanted.texts
    if wanted.mesh == ALL:
        points = meshes(base, wanted)
        if not json:
            known = [point for point in points if point.forecast is not None]
            points = (*known[:_BEST], *points[len(known) :])
        found: tuple[SweptOption, ...] = (
            SweptOption("mesh", tuple(point.texts[0] for point in points)),
        )
        typed = {option: text for option, text in typed.items() if option != "mesh"}
    else:
        found = axes(over)
        points = sweep(base, wanted, found)
    shown = page(name, typed, found, points, base.breakdown)
    if target is not None:
        write_output(target, file_of(shown, target.suffix.lower()))
    print_output(sweep_document(name, typed, found, points) if json else shown)
    if target is not None:
        print_written(target, json)
