"""What ``stash whatif --by-features`` does: the paper's macroscopic model, fitted to profiles of several models.

Loads and shows; the regression is ``stash.study.regression``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from stash.core.errors import UserError
from stash.core.printable import strict_json
from stash.core.records.profile import Profile
from stash.core.units import counted
from stash.lab.zoo.registry import WORKLOADS, feature_study, traits
from stash.predict.draws import Draws
from stash.predict.exposure import exchanged
from stash.report.output import printed
from stash.store.storing import profile_of
from stash.study import regression
from stash.study.feature_study import PlaceFeatures, place_features
from stash.study.features_page import FittedLine, Supposed, document, document_of_places, page
from stash.study.regression import LINE, Features, Regression, by_the_line, regress, terms_known
from stash.study.study_run import measured


def features(
    files: Sequence[str], study: Path | None, job: str | None, zoo: bool, json: bool, store: str | None
) -> None:
    """Print the line through the profiles of these ``files``, or of all here, or one for each place of a ``study``.

    It says also what the model of the profile ``job`` would stall, and those of the ``zoo``. Raises UserError.
    """
    asked = _Asked(None if job is None else _model_of(job, store), zoo)
    if study is not None:
        _print_places(study, asked, json)
        return
    found_here = sorted(str(path) for path in Path().glob("*.stash.json"))
    models = _models(files or found_here, store, named=bool(files))
    line = _line(models, asked)
    printed(document(line) if json else page(line))


class _Asked(NamedTuple):
    """Whose stall the line is to tell."""

    job: Supposable | None
    zoo: bool


class Supposable(NamedTuple):
    """A model that need not have exchanged anything yet."""

    name: str
    layers: int
    gradient_bytes: float


def _model_of(word: str, store: str | None) -> Supposable:
    profile = profile_of(word, store)[0]
    work = exchanged(profile)
    if work is None or not work.gradients:
        raise UserError(f"{word} does not hold the model's gradients; profile again with this Stash")
    return Supposable(profile.workload.name, len(work.gradients), float(sum(work.gradients)))


def _line(models: Sequence[Features], asked: _Asked, place: str = "") -> FittedLine:
    """The line through ``models``, and what it says of those that were asked for."""
    found = regress(models, terms_known(models))
    supposed = []
    if asked.job is not None:
        seconds = by_the_line(found, asked.job.layers, asked.job.gradient_bytes, None, None)
        if seconds is None:  # a user's model: residual links are unknown
            seconds = by_the_line(regress(models, LINE), asked.job.layers, asked.job.gradient_bytes, None, None)
        supposed.append(Supposed(*asked.job, seconds or 0.0))
    return FittedLine(tuple(models), found, (*supposed, *(_supposed(models, found) if asked.zoo else ())), place)


def _print_places(study: Path, asked: _Asked, json: bool) -> None:
    """A line for every place of the study that has models enough; raises UserError where none has."""
    _, reading, profiles = measured(study)
    found = place_features(profiles, {name: traits(name) for name in feature_study()}, Draws())
    fitting = [each for each in found if len({model.name for model in each.models}) >= len(LINE)]
    if not fitting:
        done = counted(reading.counts().get("done", 0), "cell")
        raise UserError(
            f"{study} has no place at which {len(LINE)} models exchanged something ({done} done); run it first, "
            f"like `stash characterize {study}`"
        )
    lines = [(each, _line(each.models, asked, _named(each))) for each in fitting]
    if json:
        print(strict_json(document_of_places(study.name.split(".")[0], lines)))
        return
    for number, (_, line) in enumerate(lines):
        print("\n" if number else "", end="")
        printed(page(line))


def _named(each: PlaceFeatures) -> str:
    place = each.place if each.nodes == 1 else f"{each.nodes} × {each.place}"
    return place if each.batch is None else f"{place} at batch {each.batch}"


def _models(names: Sequence[str], store: str | None, named: bool) -> list[Features]:
    profiles = {name: profile_of(name, store)[0] for name in names}
    if not named:  # of a folder, those that have an exchange at all
        profiles = {name: profile for name, profile in profiles.items() if profile.world_size > 1}
    if not profiles:
        raise UserError(
            "no profile of several ranks is in this folder; name some, like `stash whatif --by-features "
            "runs/*.stash.json`"
        )
    _refuse_different_machines(profiles)
    return [
        regression.features(profile, Draws(), *traits(profile.workload.name), source=name)
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
    devices = sorted({gpu.name for host in profile.hosts for gpu in host.gpus})
    where = f"{counted(profile.world_size, 'rank')} on {counted(profile.nodes, 'node')}"
    return f"{where} of {' and '.join(devices)}" if devices else f"{where} of CPUs"


def _supposed(models: Sequence[Features], found: Regression) -> Iterator[Supposed]:
    profiled = {model.name for model in models}
    for spec in WORKLOADS.values():
        if spec.name in profiled:
            continue
        layers = spec.trained_tensors
        seconds = by_the_line(found, layers, spec.gradient_bytes, *spec.traits)
        if seconds is not None:
            yield Supposed(spec.name, layers, spec.gradient_bytes, seconds)
