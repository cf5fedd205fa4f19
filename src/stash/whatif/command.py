"""``stash whatif``: what a profiled job's step would be with other machines or settings.

Parses, loads, shows: what it says comes from ``stash.predict`` and ``stash.whatif``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stash.core.errors import UserError
from stash.predict.changes import Alteration
from stash.store.storing import store_option
from stash.ui.options import argument, json_flag, option

if TYPE_CHECKING:
    from stash.predict.cluster import Target
    from stash.predict.passes import Base

_SHOWN = "What is shown"


@dataclass(frozen=True, kw_only=True)
class WhatIfOptions(Alteration):
    """One call of ``stash whatif``."""

    run: str = argument("RUN", "A profile, of `stash profile`.")
    sweep: tuple[str, ...] = option(
        "A=1..64",
        "A curve over a range, like nodes=1..64, or a list, like gpu=V100,T4; give it twice for two dimensions.",
        panel=_SHOWN, many=True,
    )  # fmt: skip
    output: Path | None = option(
        "FILE", "Draw the sweep's curve into this file: .png, .svg, .pdf or .html.", Path, "--output", "-o",
        panel=_SHOWN,
    )  # fmt: skip
    json: bool = json_flag("Print the answer as JSON; its keys are a contract (docs/format.md).", _SHOWN)
    store: str | None = store_option()

    def check(self) -> None:
        super().check()
        if self.output is not None and not self.sweep:
            raise UserError("--output draws a curve; say over what, like --sweep nodes=1..64")

    @property
    def wanted(self) -> Alteration:
        """What is to be other than measured."""
        facts = {each.name for each in fields(Alteration)}
        typed: dict[str, Any] = {name: text for name, text in self.typed.items() if name in facts}
        return Alteration(**typed)


def whatif(options: WhatIfOptions) -> None:
    """Say what a step would be on machines never touched, beside what was measured, and how sure that is.

    Examples:

        stash whatif train.stash.json --network 100gbit --nodes 8

        stash whatif train.stash.json --sweep nodes=1..64 --gpu A100-SXM4-80GB
    """
    base = _base(options.run, options.store)
    if options.sweep:
        _sweep(base, options.wanted, options.sweep, options.output, options.json)
    else:
        _answer(base, options.wanted, options.json)


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


def _answer(base: Base, wanted: Alteration, json: bool) -> None:
    from stash.report.output import printed
    from stash.whatif.answers import answered
    from stash.whatif.page import document, page

    answer = answered(base, wanted)
    printed(document(answer) if json else page(answer))


def _sweep(base: Base, wanted: Alteration, over: tuple[str, ...], output: Path | None, json: bool) -> None:
    from stash.report.output import file_of, output_file, printed, write_output
    from stash.whatif.answers import taken_for
    from stash.whatif.page import sweep_document
    from stash.whatif.sweep import axes, sweep
    from stash.whatif.sweep_page import page, swept

    found = axes(over)
    target = None if output is None else output_file(output, "", output.suffix)
    points = sweep(taken_for(base, wanted), wanted, found)
    name, measured = base.profile.workload.name, base.breakdown
    shown = page(swept(name, wanted.texts, found, points, measured.samples_per_second, measured.step_seconds))
    if target is not None:
        write_output(target, file_of(shown, target.suffix.lower()))
    printed(sweep_document(name, wanted.texts, found, points) if json else shown)
