"""``stash catalog``: what can be rented, at which price of which date; and ``stash catalog refresh``.

Parses wishes, asks the catalog and prints the answer: a table as wide as the screen, or JSON. Knows no facts itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from stash.core import parsers, units
from stash.core.errors import UserError
from stash.core.printable import printable, printable_line, strict_json
from stash.ui.commands import App
from stash.ui.options import Options, argument, flag, json_flag, option, quiet_flag

if TYPE_CHECKING:
    from stash.catalog.offers import Answer, Catalog, OfferFilter
    from stash.catalog.page import Nothing

app = App()
_ROWS = 30
"""Of the list that people read."""


def _price(text: str) -> float:
    bare = text.strip().removeprefix("$")
    return units.validate_price(f"${bare}/h" if bare.replace(".", "", 1).isdecimal() else text)


def _instances_option() -> Any:
    return option("FILE", "Read your own machines and prices from this YAML file.", Path)


@dataclass(frozen=True, kw_only=True)
class CatalogOptions(Options):
    """One call of ``stash catalog``."""

    gpu: str | None = option("NAME", "Show only this GPU: V100, A100-80GB, A100-SXM4-80GB.")
    gpus: tuple[float | None, float | None] = option(
        "N",
        'Require this many GPUs: "8", "4-8", "4-" or "-8".',
        parsers.number_range,
        default=(None, None),
    )
    min_gpu_memory: float | None = option(
        "SIZE", "Require this much memory per GPU, like 24GB.", units.validate_size
    )
    cloud: str | None = option(
        "NAME", "Show only this cloud: aws, gcp, azure, lambda, runpod, on-premise …"
    )
    region: str | None = option("NAME", "Show only this region, like us-east-1.")
    min_network: float | None = option(
        "RATE", "Require this sustained network, like 25gbit.", units.validate_rate
    )
    interconnect: str | None = option(
        "NAME", "Require this link between GPUs: nvlink, nvlink3, nvswitch, pcie."
    )
    max_price: float | None = option("DOLLARS/H", 'Pay at most this, like 10 or "$3.06/h".', _price)
    spot: bool = flag("Show spot prices instead of on-demand prices.")
    instances: Path | None = _instances_option()
    json: bool = json_flag("Print every offer as JSON.")

    def wish(self, known: Catalog) -> OfferFilter:
        """What offers have to be; raises UserError for names that ``known`` does not have."""
        from stash.catalog.facts import match_name
        from stash.catalog.offers import OfferFilter

        least, most = self.gpus
        return OfferFilter(
            gpu=self.gpu and _known_gpu(self.gpu, known),
            min_gpu_count=least,
            max_gpu_count=most,
            min_gpu_memory_bytes=self.min_gpu_memory,
            cloud=self.cloud
            and match_name(self.cloud, {item.cloud for item in known.instances}, "cloud", "cloud"),
            region=self.region and match_name(self.region, known.regions, "region", "region"),
            kinds=("spot",) if self.spot else ("on-demand",),
            max_dollars_per_hour=self.max_price,
            min_network_bytes_per_second=self.min_network,
            interconnect=self.interconnect,
        )


@dataclass(frozen=True, kw_only=True)
class CatalogShowOptions(Options):
    """One call of ``stash catalog show``."""

    name: str = argument("NAME", "An instance (p3.8xlarge) or a GPU (A100-SXM4-80GB).")
    instances: Path | None = _instances_option()


@app.callback(invoke_without_command=True)
def catalog(options: CatalogOptions, context: typer.Context) -> None:
    """List machines to rent, cheapest first, with dates and sources of prices.

    Offers of which a required fact is unknown are left out and counted. The exit code is 1 if none is left.

    Examples:
      stash catalog --gpu V100 --min-network 25gbit --cloud aws
      stash catalog --gpu A100-80GB --gpus 8 --spot
      stash catalog show p3.8xlarge
      stash catalog refresh
    """
    if context.invoked_subcommand is not None:
        # Options of the list do nothing before a subcommand, so they are refused rather than
        # ignored.
        for parameter in context.command.params:
            source = context.get_parameter_source(str(parameter.name))
            if source is not None and source.name == "COMMANDLINE":
                raise UserError(
                    f"{parameter.opts[0]} belongs to `stash catalog` alone; options of "
                    f"`stash catalog {context.invoked_subcommand}` stand after it"
                )
        return
    from stash import catalog as facts
    from stash.catalog.page import explain_nothing

    known = facts.load(options.instances)
    wish = options.wish(known)
    answer = known.search(wish)
    lacking = None if answer.offers else explain_nothing(known, wish)
    if options.json:
        print(_format_json(answer, known, lacking))
    else:
        _print(known, lacking, answer)
    if lacking is not None:
        raise typer.Exit(1)


@app.command()
def show(options: CatalogShowOptions) -> None:
    """Print everything known about one instance or GPU, with sources."""
    from stash import catalog as facts
    from stash.catalog.page import sheet
    from stash.ui.terminal import print_page

    print_page(sheet(facts.load(options.instances), options.name))


@dataclass(frozen=True, kw_only=True)
class RefreshOptions(Options):
    """One call of ``stash catalog refresh``."""

    quiet: bool = quiet_flag()


@app.command()
def refresh(options: RefreshOptions) -> None:
    """Download today's price lists from gpuhunt.

    They are kept in ~/.cache/stash (or $XDG_CACHE_HOME, or $STASH_HOME). Without a network, or if a list looks
    broken, the earlier lists stay.
    """
    from rich.text import Text

    from stash.catalog.refresh import fetch_https
    from stash.catalog.refresh import refresh_snapshot as renew
    from stash.ui.terminal import list_console, progress_console

    console = list_console()
    with progress_console(options.quiet).status("downloading price lists"):
        report = renew(transport=fetch_https)
    kept = f"{report.offers} offers from {', '.join(report.updated)}, kept in {report.path}"
    console.print(Text(printable(kept)), soft_wrap=True)
    for failure in report.failures:
        console.print(Text(f"note: {printable_line(failure)}"), style="yellow", soft_wrap=True)


def _known_gpu(name: str, known: Catalog) -> str:
    """``name`` if some instance or GPU goes by it; raises UserError with the nearest names otherwise."""
    from stash.catalog.facts import name_words, unknown_name
    from stash.catalog.offers import has_gpu

    if name_words(name) and (
        any(name_words(name) <= name_words(gpu.name) for gpu in known.gpus)
        or any(has_gpu(item, name) for item in known.instances)
    ):
        return name
    models = {item.gpu_model for item in known.instances if item.gpu_model} | {
        gpu.name for gpu in known.gpus
    }
    raise unknown_name("GPU", name, sorted(models))


def _print(known: Catalog, lacking: Nothing | None, answer: Answer) -> None:
    from rich.text import Text

    from stash.catalog.page import explain_mark, left_out, listing, nothing_text
    from stash.ui.terminal import list_console, list_width

    today = date.today()
    shown = answer.offers[:_ROWS]
    screen = list_width()
    fitted = listing(shown, today, screen)
    console = list_console(max(fitted.width, screen or 0))
    if lacking is None:
        console.print(fitted.text)
    else:
        console.print(Text(printable(nothing_text(lacking))), soft_wrap=True)
    notes = [explain_mark(shown, today), fitted.note if shown else ""]
    if len(answer.offers) > _ROWS:
        notes.append(f"{len(answer.offers) - _ROWS} more; narrow the list, or see all with --json")
    if answer.left_out:
        notes.append(left_out(answer.left_out))
    notes.append(
        "Prices: "
        + ", ".join(known.layers)
        + "; Linux, US dollars; `stash catalog show NAME` has sources."
    )
    for note in filter(None, notes):
        console.print(Text(printable_line(note)), style="dim", soft_wrap=screen is None)


def _format_json(answer: Answer, known: Catalog, lacking: Nothing | None) -> str:
    from stash.catalog.facts import price_age

    today = date.today()
    ages = [price_age(offer.as_of, today) for offer in answer.offers]
    listed = [
        {
            **offer.instance.model_dump(exclude={"as_of", "source", "notes"}),
            **{
                "kind": offer.kind,
                "dollars_per_hour": offer.dollars_per_hour,
                "region": offer.region,
            },
            **{
                "price_as_of": offer.as_of,
                "price_source": offer.source,
                "price_notes": offer.notes,
            },
            "dollars_per_gpu_hour": offer.dollars_per_gpu_hour,
            "price_age_days": None if known_age is None else known_age.days,
            "price_is_old": known_age is None or known_age.is_old,
            "facts_as_of": offer.instance.as_of,
            "facts_source": offer.instance.source,
            "facts_notes": offer.instance.notes,
        }
        for offer, known_age in zip(answer.offers, ages, strict=True)
    ]
    document = {
        **{
            "schema": 2,
            "layers": known.layers,
            "offers": listed,
            "left_out": dict(answer.left_out),
        },
        "nearest": []
        if lacking is None
        else [
            {
                "without": option,
                "offers": len(found),
                "instance": found[0].instance.name,
                "dollars_per_hour": found[0].dollars_per_hour,
            }
            for option, found in lacking.nearest
        ],
    }
    return strict_json(document, indent=2)
