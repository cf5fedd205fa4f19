"""``stash features``: the paper's macroscopic model, fitted to profiles of several models on one machine.

Parses, loads, shows; the regression is ``stash.derive.predict.features``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

    models = _models(files or sorted(str(path) for path in Path().glob("*.stash.json")), store)
    found = regress(models, _affordable(terms_known(models), len(models)))
    print_features(models, found, tuple(_supposed(models, found)) if zoo else (), json)


def _models(names: Sequence[str], store: str | None) -> list[Features]:
    from stash.cli.runs import profile_of
    from stash.derive.predict.draws import Draws
    from stash.derive.predict.features import features as seen_from_afar

    if not names:
        raise UserError("no profile is in this folder; name some, like `stash features runs/*.stash.json`")
    profiles = {name: profile_of(name, store)[0] for name in names}
    places = {_place(profile): name for name, profile in profiles.items()}
    if len(places) > 1:
        one, other = list(places.values())[:2]
        raise UserError(f"{one} and {other} are of different machines; one line holds for one kind of machine")
    return [
        seen_from_afar(profile, Draws(), *_known_of(profile.workload.name), source=name)
        for name, profile in profiles.items()
    ]


def _place(profile: Profile) -> tuple[object, ...]:
    devices = sorted({gpu.name for host in profile.hosts for gpu in host.gpus})
    return profile.world_size, profile.nodes, tuple(devices)


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
