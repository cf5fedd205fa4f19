"""Options of all commands: help that fits, one meaning a name, and each kind of value read alike everywhere."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib import import_module

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from bench.docs import options as reference
from stash.cli.main import COMMANDS, app
from stash.core import parsers
from stash.core.errors import UserError
from stash.measure.ranks import RankOptions, resolve_cluster
from stash.plan.plan_options import PlanOptions
from stash.ui.commands import App
from stash.ui.options import Options, argument, declarations, flag, option


def models():
    """Every options model of a command."""
    for each in COMMANDS.values():
        import_module(each.module)

    def below(model):
        for each in model.__subclasses__():
            yield each
            yield from below(each)

    return [each for each in dict.fromkeys(below(Options)) if each.__module__.startswith("stash.")]


def options():
    """Of every option that takes a value: its field, how it is called, its declaration."""
    for model in models():
        for name, declared in declarations(model).items():
            if declared.kind == "option":
                yield name, declared.name(name), declared


@dataclass(frozen=True, kw_only=True)
class TripOptions(Options):
    """Options of a command that is there for the tests."""

    to: str = argument("TO", "Where.")
    duration: float = option("TIME", "How long.", parsers.duration, default="2h")
    stops: tuple[int, ...] = option(
        "N", "Places on the way.", parsers.whole(1), "--stop", "-s", many=True
    )
    force: bool = flag("Go anyway.")

    def check(self):
        if self.force and self.stops:
            raise UserError("--force and --stop contradict each other")


trips = App()


@trips.command()
def trip(options: TripOptions) -> None:
    """Go there."""
    print(options.to, options.duration, options.stops, options.force)


def gone(*words, app=trips):
    """What the trip prints on both streams."""
    result = CliRunner().invoke(app, [*words])
    if isinstance(result.exception, UserError):
        return "", str(result.exception)
    assert result.exit_code == 0, result.output
    return result.stdout.strip(), result.stderr.strip()


def test_a_command_is_made_of_its_model():
    assert gone("rome") == ("rome 7200.0 () False", "")
    assert (
        gone("rome", "--duration", "90 min", "--stop", "3", "-s", "50k")[0]
        == "rome 5400.0 (3, 50000) False"
    )
    assert gone("rome", "--duration", "90")[0] == "rome 90.0 () False"
    assert gone("rome", "--stop", "none")[1] == "--stop none: it must be a whole number, 1 or more"
    assert gone("rome", "--force", "-s", "1")[1] == "--force and --stop contradict each other"


def test_python_makes_the_same_model_with_the_same_errors():
    assert TripOptions(to="rome", duration="30min").duration == 1800
    assert TripOptions(to="rome", duration=1800.0).duration == 1800
    with pytest.raises(UserError, match="--deadline 3x: unknown time unit 'x'"):
        PlanOptions(deadline="3x")
    asked = PlanOptions(
        deadline="24h", confidence="90%", min_gpu_memory="40 GB", quota=("p3.2xlarge=2",)
    )
    assert (asked.deadline, asked.confidence, asked.min_gpu_memory) == (86400, 0.9, 40e9)
    assert asked.quota == (("p3.2xlarge", 2),)


def test_times_are_read_alike_everywhere():
    times = [each for each in options() if each[2].metavar == "TIME"]
    assert len(times) > 15
    for _, called, declared in times:
        forms = {"90s": 90, "2m": 120, "2h": 7200, "90 min": 5400, "1h30m": 5400, "2min": 120}
        forms["24"] = 24
        for text, seconds in forms.items():
            assert declared.read(text) in (seconds, (seconds, seconds)), (called, text)
        for text in ("soon", "30x", "1h30x"):
            with pytest.raises(UserError):
                declared.read(text)


def test_sizes_are_read_alike_everywhere():
    for name, called, declared in options():
        if declared.metavar == "SIZE":
            assert declared.read("16GB") == declared.read("16 GB") == 16e9, called
            assert declared.read("16 GiB") == 16 * 2**30, called
            if name != "bucket":  # MiB, as of DDP's bucket_cap_mb
                with pytest.raises(UserError, match="has no unit"):
                    declared.read("200")


def test_money_is_read_alike_everywhere():
    for _, called, declared in options():
        if declared.metavar.startswith("DOLLARS"):
            assert declared.read("$20") == declared.read("20") == 20, called
    assert {
        called for _, called, declared in options() if declared.metavar.startswith("DOLLARS")
    } == {
        "--max-dollars",
        "--max-price",
        "--late-costs",
    }


def test_shares_are_read_alike_everywhere():
    shares = [each for each in options() if each[0] in ("confidence", "cache", "utilization")]
    assert len(shares) > 3
    for _, called, declared in shares:
        assert declared.read("0.9") == declared.read("90%") == declared.read("90 %") == 0.9, called
    for _, called, declared in options():
        if declared.metavar == "PCT":
            assert declared.read("2") == declared.read("2%") == 0.02, called


def test_an_option_that_commands_explain_differently_has_its_one_meaning_in_the_reference():
    """Who gives an option to another command meets this, and has to say what it means in both, or to rename it."""
    said_differently = {name for name, texts in reference.helps().items() if len(texts) > 1}
    assert len(said_differently) > 20
    assert said_differently == set(reference.MEANINGS)


def test_the_list_of_commands_says_what_their_help_says():
    root = get_command(app)
    for name, listed in COMMANDS.items():
        first = inspect.cleandoc(root.commands[name].help).split("\n\n")[0]
        assert " ".join(first.split()) == listed.help


def test_a_precision_is_given_in_per_cent_and_a_fraction_is_refused():
    assert parsers.percent("2.0") == 0.02
    assert parsers.percent("0.05") == 0.0005
    with pytest.raises(UserError, match=r"that would be 0\.02 % of the step.*type 2%$"):
        parsers.percent("0.02")
    with pytest.raises(UserError, match="more than 0"):
        parsers.percent("0")
    with pytest.raises(UserError, match="at most 100%"):
        parsers.percent("500")


def test_the_cluster_is_of_machines_like_this_one(monkeypatch):
    monkeypatch.setattr("stash.measure.host.gpus.count_gpus", lambda: 8)
    found = resolve_cluster(RankOptions(nnodes=2, node_rank=1, rdzv_endpoint="head:29500"))
    assert (found.nproc, found.nnodes, found.node_rank, found.rdzv_endpoint) == (
        8,
        2,
        1,
        "head:29500",
    )
    assert resolve_cluster(RankOptions(), ranks=False).nproc == 1
