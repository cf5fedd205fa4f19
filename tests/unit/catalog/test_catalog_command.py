"""``stash catalog``: a table as wide as the screen, JSON, and mistakes in one sentence."""

import json
from datetime import date

import pytest
from catalogs import box, small
from typer.testing import CliRunner

from stash.catalog.command import app
from stash.catalog.facts import Instance, Offer
from stash.catalog.offers import OfferFilter
from stash.catalog.page import explain_mark, explain_nothing, listing, nothing_text
from stash.core.errors import UserError

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize(
    "arguments",
    [[], ["--spot"], ["--gpus", "8"], ["show", "p3.16xlarge"], ["show", "A100-SXM4-80GB"]],
)
@pytest.mark.parametrize("columns", [80, 120])
def test_everything_printed_fits_the_screen(arguments, columns):
    result = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert max(len(line) for line in result.stdout.splitlines()) <= columns


def test_a_narrow_screen_loses_columns_and_never_part_of_a_name():
    words = ["--gpu", "V100", "--gpus", "4-", "--spot"]
    everything = CliRunner(env={"COLUMNS": None}).invoke(app, words, catch_exceptions=False).stdout
    assert {"cloud", "vCPU", "GiB", "interconnect", "$/GPU", "age"} <= set(
        everything.splitlines()[0].split()
    )
    # into a pipe: all of them, lines as long as they are
    assert "Columns that did not fit" not in everything
    for columns in ("80", "30"):
        narrow = (
            CliRunner(env={"COLUMNS": columns}).invoke(app, words, catch_exceptions=False).stdout
        )
        rows = [line for line in narrow.splitlines() if line.rstrip().endswith("*")]
        assert any("Standard_NC24rs_v3" in row for row in rows)
        assert len(rows) == len(
            [line for line in everything.splitlines() if line.rstrip().endswith("*")]
        )
        assert "Columns that did not fit" in narrow


def test_prices_that_may_be_old_are_marked_and_the_mark_is_explained():
    old, fresh = (
        Offer(
            Instance(cloud="aws", name=name, as_of="2026", source=""),
            "on-demand",
            1.0,
            None,
            as_of,
            "",
            "",
        )
        for name, as_of in (("old", "2026-07-20"), ("fresh", "2026-11-01"))
    )
    today = date(2026, 11, 20)
    head, *rows = listing((old, fresh), today).text.plain.splitlines()
    assert [row.rpartition("  ")[2].strip() for row in rows[:1]] == ["123 d *"]
    assert rows[1].rstrip().endswith("19 d")
    # how many GPUs it has is unknown
    assert {row[head.index("$/GPU") :].split()[0] for row in rows} == {"?"}
    assert "older than 90 days" in explain_mark((old, fresh), today)
    assert explain_mark((fresh,), today) == ""


def test_when_nothing_fits_the_command_says_which_wish_is_too_much():
    arguments = ["--gpu", "V100", "--min-network", "25gbit", "--max-price", "10", "--cloud", "aws"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 1
    assert "no on-demand offer fits\n" in result.stdout
    assert "without --max-price: p3.16xlarge at $24.48/h and 1 more" in result.stdout
    result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["offers"] == []
    assert {
        "without": "--max-price",
        "offers": 2,
        "instance": "p3.16xlarge",
        "dollars_per_hour": 24.48,
    } in (document["nearest"])


def test_a_kind_without_any_price_is_no_wishs_fault():
    known = small((box("free", gpu_count=0), 1.0))
    sentence = explain_nothing(known, OfferFilter(kinds=("spot",), min_gpu_count=2))
    assert nothing_text(sentence) == "no spot price is known; `stash catalog refresh` gets today's"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "V1000"], "unknown GPU 'V1000'; did you mean V100"),
        (["--gpu", " "], "unknown GPU"),
        (["--cloud", "awz"], "--cloud awz: no such cloud in the catalog; did you mean aws"),
        (
            ["--region", "us-east-9"],
            "--region us-east-9: no such region in the catalog; did you mean us-east-1",
        ),
        (["--max-price", "10 EUR"], "not in US dollars"),
        (["--max-price", "€10"], "not in US dollars"),
        (["--max-price", "$2000/month"], "not per hour"),
        (["--max-price", "0"], "zero"),
        (["--min-network", "25"], "has no unit"),
        (["--min-network", "25Gb/s"], "may mean bits or bytes"),
        (["--gpus", "many"], "--gpus many: write it like"),
        (["--gpus", "8-4"], "at least 8 and at most 4"),
        (
            ["--instances", "/nowhere.yaml"],
            "cannot read the instances file /nowhere.yaml: No such file",
        ),
        (["show", "p3.9xlarge"], "unknown instance 'p3.9xlarge'; did you mean"),
        (["show", "A100"], "several variants"),
        (["--spot", "show", "p3.8xlarge"], "--spot belongs to `stash catalog` alone"),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(arguments, message):
    with pytest.raises(UserError) as caught:
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
