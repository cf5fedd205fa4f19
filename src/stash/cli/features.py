"""``stash features``: the paper's macroscopic model, fitted to profiles of several models on one machine.

Parses, loads, shows; the regression is ``stash.derive.predict.features``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.base.errors import UserError
from stash.cli.options import flag
from stash.cli.storing import StoreOption

if TYPE_CHECKING:
    from stash.base.records import Profile
    from stash.derive.predict.features import Features, Regression
    from stash.show.features import Supposed

FILES_HELP = "Profiles of different models on the same machines; without any, all of this folder."
ZOO_HELP = "Also every zoo model that was not profiled, by the fitted line (builds them; some seconds)."
JSON_HELP = "Print coefficients and errors as JSON (docs/format.md)."


def features(
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE", help=FILES_HELP)] = None,
    zoo: Annotated[bool, flag("--zoo", ZOO_HELP)] = False,
    json: Annotated[bool, flag("--json", JSON_HELP)] = False,
    store: StoreOption = None,
) -> None:
    """Say how the communication stall grows with a model's layers and gradients, and how wrong that is.

    Examples:

        stash features resnet*.stash.json vgg*.stash.json

        stash features --zoo
    """
    from stash.cli.output import print_features
    from stash.derive.predict.features import regress, terms_known

    found_here = sorted(str(path) for path in Path().glob("*.stash.json"))
    models = _models(files or found_here, store, named=bool(files))
    found = regress(models, _affordable(terms_known(models), len(models)))
    print_features(models, found, tuple(_supposed(models, found)) if zoo else (), json)


def _models(names: Sequence[str], store: str | None, named: bool) -> list[Features]:
    from stash.cli.runs import profile_of
    from stash.derive.predict.draws import Draws
    from stash.derive.predict.features import features as seen_from_afar

    profiles = {name: profile_of(name, store)[0] for name in names}
    if not named:  # of a folder, those that have an exchange at all
        profiles = {name: profile for name, profile in profiles.items() if profile.world_size > 1}
    if not profiles:
        raise UserError(
            "no profile of several ranks is in this folder; name some, like `stash features runs/*.stash.json`"
        )
    _refuse_different_machines(profiles)
    return [
        seen_from_afar(profile, Draws(), *_known_of(profile.workload.name), source=name)
        for name, profile in profiles.items()
    ]


def _refuse_different_machines(profiles: Mapping[str, Profile]) -> None:
    places = {_place(profile): name for name, profile in profiles.items()}
    if len(places) > 1:
        (first, one), (second, other) = list(places.items())[:2]
        raise UserError(
            f"{one} is of {first} and {other} of {second}; one line holds for one kind of machine, so name those "
            "of one"
        )


def _place(profile: Profile) -> str:
    """What exchanges, in words: ``"2 ranks on 1 node of V100"``."""
    from stash.base.words.counting import counted

    devices = sorted({gpu.name for host in profile.hosts for gpu in host.gpus})
    where = f"{counted(profile.world_size, 'rank')} on {counted(profile.nodes, 'node')}"
    return f"{where} of {' and '.join(devices)}" if devices else f"{where} of CPUs"


def _known_of(name: str) -> tuple[bool | None, bool | None]:
    """Whether a zoo model has residual links and batch norm; nobody knows of others."""
    from stash.lab.zoo.registry import WORKLOADS

    spec = WORKLOADS.get(name)
    if spec is None:
        return None, None
    if "residual" in spec.arguments:
        return bool(spec.arguments["residual"]), bool(spec.arguments["batch_norm"])
    return (False, name.endswith("_bn")) if name.startswith("vgg") else (None, None)


def _affordable(terms: Sequence[str], models: int) -> tuple[str, ...]:
    """Terms beyond the plain line only where models are left to tell how wrong it is."""
    from stash.derive.predict.features import LINE

    return tuple(terms) if models > len(terms) else LINE


def _supposed(models: Sequence[Features], found: Regression) -> Iterator[Supposed]:
    from stash.derive.predict.features import by_the_line
    from stash.lab.zoo.registry import WORKLOADS
    from stash.lab.zoo.sizes import trained_tensors
    from stash.show.features import Supposed

    profiled = {model.name for model in models}
    for spec in WORKLOADS.values():
        if spec.name in profiled:
            continue
        layers = trained_tensors(spec)
        seconds = by_the_line(found, layers, spec.gradient_bytes, *_known_of(spec.name))
        if seconds is not None:
            yield Supposed(spec.name, layers, spec.gradient_bytes, seconds)
