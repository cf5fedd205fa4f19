"""Small catalogs by hand: instances with chosen facts, at on-demand prices."""

from pathlib import Path
from tempfile import TemporaryDirectory

from stash.catalog import own
from stash.catalog.facts import Instance, Price
from stash.catalog.offers import Catalog


def box(name, **facts):
    base = {"cloud": "here", "as_of": "2026-11-20", "source": "made up"}
    return Instance.model_validate({**base, "name": name, **facts})


def small(*items):
    """A catalog of instances at on-demand prices."""
    prices = [
        Price(item.cloud, item.name, "r1", "on-demand", price, "2026-11-20", "made up", "")
        for item, price in items
        if price is not None
    ]
    return Catalog((), tuple(item for item, _ in items), tuple(prices))


def own_file(text, name="own.yaml"):
    """What a user's file of this text says."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(text)
        return own.load_own_file(path)
