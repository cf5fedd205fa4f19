"""How Stash reads and shows files about spot machines: as ``stash spot plan`` and ``show``."""

from stash.core.printable import strict_json
from stash.market.market_importers import import_skypilot
from stash.market.market_table import market_lines
from stash.spot.pages import fleet_plan, run_report
from stash.spot.spot_files import load_spot_log, read_plan
from stash.ui import html, markdown, terminal
from stash.ui.charts.svg import draw_svg


def trace(path):
    """A trace of SkyPilot, as a market."""
    return list(market_lines(import_skypilot([path]).trace))


def plan(path):
    """A plan, shown and reported."""
    found = read_plan(path)
    return [
        strict_json(fleet_plan.document(found)),
        terminal.render(fleet_plan.page(found, path.name)),
        html.render(fleet_plan.page(found, path.name)),
    ]


def log(path):
    """A run's log, shown and reported."""
    found = load_spot_log(path)
    page = run_report.page(found, path.name)
    return [
        strict_json(run_report.document(found)),
        terminal.render(page),
        html.render(page),
        markdown.render(page),
        *(draw_svg(chart, 860) for chart in page.charts),
    ]
