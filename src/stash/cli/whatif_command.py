"""``stash whatif``: what a step would be elsewhere, by one profile; or what a model stalls, by many."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from stash.core.errors import UserError
from stash.predict.changes import Alteration
from stash.predict.mesh_shapes import ALL
from stash.store.storing import store_option
from stash.ui.options import argument, flag, json_flag, option

_SHOWN, _LINE = "What is shown", "A line through many models"
_OF_LINE = ("study", "job", "zoo")


@dataclass(frozen=True, kw_only=True)
class WhatIfOptions(Alteration):
    """One call of ``stash whatif``."""

    runs: tuple[str, ...] = argument(
        "RUN...",
        "A profile. With --by-features: profiles of different models (default: this folder's).",
        many=True, default=None,
    )  # fmt: skip
    sweep: tuple[str, ...] = option(
        "A=1..64",
        "Sweep a range (nodes=1..64) or a list (gpu=V100,T4); repeatable once.",
        panel=_SHOWN, many=True,
    )  # fmt: skip
    output: Path | None = option(
        "FILE", "Draw the sweep to this file: .png, .svg, .pdf or .html.", Path, "--output", "-o",
        panel=_SHOWN,
    )  # fmt: skip
    json: bool = json_flag("Print JSON; docs/format.md documents its keys.", _SHOWN)
    by_features: bool = flag("Fit the communication stall to a model's layers and gradients.", panel=_LINE)
    study: Path | None = option(
        "STUDY",
        "Fit one line per machine of this study instead of files.",
        Path, "--from", panel=_LINE,
    )  # fmt: skip
    job: str | None = option(
        "FILE", "Also predict this profile's model by the fitted line.",
        panel=_LINE,
    )  # fmt: skip
    zoo: bool = flag("Also predict every other zoo model by the fitted line.", panel=_LINE)
    store: str | None = store_option()

    def check(self) -> None:
        super().check()
        if self.by_features:
            self._check_line()
            return
        if only := self.given(*_OF_LINE):
            raise UserError(f"{only[0]} belongs to --by-features, a line through many models; give both, or neither")
        if len(self.runs) != 1:
            given = (
                "no profile is given" if not self.runs else f"{self.runs[1]}: a step is predicted from one profile"
            )
            raise UserError(f"{given}; type `stash whatif RUN --nodes 8`, or --by-features for a line by several")
        if not self.sweep and not self.given(*(each.name for each in fields(Alteration) if each.metadata)):
            raise UserError(
                "nothing is changed, so there is nothing to predict; say what, like --nodes 8, --gpu A100-SXM4-80GB, "
                "--network 100gbit, --workers 8, --batch 64 or --dtype amp"
            )
        if self.mesh == ALL and self.sweep:
            raise UserError("--mesh all and --sweep are both lists of forecasts; leave one of them out")
        if self.output is not None and not self.sweep and self.mesh != ALL:
            raise UserError("--output draws a curve; say over what, like --sweep nodes=1..64")

    def _check_line(self) -> None:
        changes = self.given(*(each.name for each in fields(Alteration) if each.metadata), "sweep", "output")
        if changes:
            raise UserError(f"{changes[0]} is about the step of one profile, --by-features about many; leave one out")
        if self.study is not None and self.runs:
            raise UserError("--from takes the profiles of a study; leave out the files, or --from")

    @property
    def wanted(self) -> Alteration:
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
      stash whatif --by-features resnet*.stash.json vgg*.stash.json --zoo
      stash whatif --by-features --from features.yaml --job train.stash.json
    """
    if options.by_features:
        from stash.study.features_command import features

        features(options.runs, options.study, options.job, options.zoo, options.json, options.store)
        return
    from stash.whatif.command import answer

    answer(options.runs[0], options.wanted, options.sweep, options.output, options.json, options.store)
