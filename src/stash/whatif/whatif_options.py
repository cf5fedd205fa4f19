"""``stash whatif``: what a step would be elsewhere, by one profile."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from stash.core import parsers
from stash.core.errors import UserError
from stash.predict.changes import Alteration
from stash.predict.mesh_shapes import ALL
from stash.store.storing import store_option
from stash.ui.options import argument, json_flag, option

_SHOWN = "Output"


@dataclass(frozen=True, kw_only=True)
class WhatIfOptions(Alteration):
    """One call of ``stash whatif``."""

    common: ClassVar[tuple[str, ...]] = (
        "instance",
        "cluster",
        "nodes",
        "gpus",
        "gpu",
        "network",
        "cpus",
        "cache",
        "workers",
        "batch",
        "dtype",
        "sweep",
        "json",
        "output",
    )
    power_limit: float | None = option(
        "WATTS",
        "Predict step and energy under this limit of each GPU.",
        parsers.watts,
        panel="Machines",
    )
    runs: tuple[str, ...] = argument("RUN", "A profile of the job.", many=True, default=None)
    sweep: tuple[str, ...] = option(
        "A=1..64",
        "Sweep a range (nodes=1..64) or a list (gpu=V100,T4); repeatable once.",
        panel=_SHOWN,
        many=True,
    )
    output: Path | None = option(
        "FILE",
        "Draw the sweep to this file: .png, .svg, .pdf or .html.",
        Path,
        "--output",
        "-o",
        panel=_SHOWN,
    )
    json: bool = json_flag("Print JSON; docs/format.md documents its keys.", _SHOWN)
    store: str | None = store_option()

    def check(self) -> None:
        super().check()
        if len(self.runs) != 1:
            given = (
                "no profile is given"
                if not self.runs
                else f"{self.runs[1]}: a step is predicted from one profile"
            )
            raise UserError(f"{given}; type `stash whatif train.stash.json --nodes 8`")
        changes = self.list_given(*(each.name for each in fields(Alteration) if each.metadata))
        if self.power_limit is not None:
            others = [*changes, *self.list_given("sweep", "output")]
            if others:
                raise UserError(
                    f"--power-limit is asked about by itself, of the GPUs that were profiled; leave {others[0]} out"
                )
        elif not self.sweep and not changes:
            raise UserError(
                "nothing is changed, so there is nothing to predict; say what, like --nodes 8, --gpu A100-SXM4-80GB, "
                "--network 100gbit, --workers 8, --batch 64 or --dtype amp"
            )
        if self.mesh == ALL and self.sweep:
            raise UserError(
                "--mesh all and --sweep are both lists of forecasts; leave one of them out"
            )
        if self.output is not None and not self.sweep and self.mesh != ALL:
            raise UserError("--output draws a curve; say over what, like --sweep nodes=1..64")

    @property
    def alteration(self) -> Alteration:
        """What is to be other than measured."""
        facts = {each.name for each in fields(Alteration)}
        typed: dict[str, Any] = {name: text for name, text in self.typed.items() if name in facts}
        return Alteration(**typed)


def whatif(options: WhatIfOptions) -> None:
    """Predict a step on other machines or with other settings.

    Examples:
      stash whatif train.stash.json --network 100gbit --nodes 8
      stash whatif train.stash.json --sweep nodes=1..64 --gpu A100-SXM4-80GB
      stash whatif pretrain.stash.json --mesh all
    """
    from stash.whatif.command import print_answer, print_power_limit

    if options.power_limit is not None:
        print_power_limit(options.runs[0], options.power_limit, options.json, options.store)
        return
    print_answer(
        options.runs[0],
        options.alteration,
        options.sweep,
        options.output,
        options.json,
        options.store,
    )
