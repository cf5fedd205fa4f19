"""``[tool.stash]`` of pyproject.toml: defaults of budgets and limits, where they come from, what is none."""

from pathlib import Path

import pytest

from stash.cli.main import main
from stash.core.errors import UserError
from stash.monitor.watch_options import WatchCommandOptions
from stash.ui.options import declarations
from stash.ui.project import read_defaults, read_power_price

WATCH = declarations(WatchCommandOptions)
GOLDEN = str(Path(__file__).parents[2] / "golden/one-node.stash.json")


def write(folder, text):
    file = folder / "pyproject.toml"
    file.write_text(text)
    return file


def read(folder, text):
    write(folder, text)
    return read_defaults("watch", WATCH, folder)


def stash(monkeypatch, folder, *words):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["stash", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_the_nearest_file_with_a_table_counts(tmp_path):
    here = tmp_path / "a" / "b"
    here.mkdir(parents=True)
    file = write(tmp_path, '[tool.stash.watch]\nstuck-after = "5min"\nmax-dollars = 40\n')
    write(tmp_path / "a", "[tool.ruff]\nline-length = 99\n")
    found = read_defaults("watch", WATCH, here)
    assert found == {"stuck_after": "5min", "max_dollars": "40"}
    assert found.file == file
    assert read(here, "[tool.stash.check]\n") == {}


def test_without_a_table_there_are_none(tmp_path):
    assert read(tmp_path, "[project]\nname = 'x'\n") is None


def test_a_project_says_what_power_costs(tmp_path):
    assert read_power_price(tmp_path) is None
    write(tmp_path, '[tool.stash]\npower-price = "$0.15/kWh"\n[tool.stash.watch]\n')
    assert read_power_price(tmp_path) == 0.15
    assert read_defaults("watch", WATCH, tmp_path) == {}


@pytest.mark.parametrize("price", ['"0.15"', "0.15", '"€0.15/kWh"', '"$3/h"'])
def test_a_price_of_power_that_is_none_is_refused(tmp_path, price):
    write(tmp_path, f"[tool.stash]\npower-price = {price}\n")
    with pytest.raises(
        UserError, match=r"pyproject.toml: \[tool.stash\] power-price: .*\$0.12/kWh"
    ):
        read_power_price(tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[tool.stash.watch]\nstuck-after = "soon"', "stuck-after = soon: "),
        (
            "[tool.stash.watch]\nmax-dollars = true",
            'max-dollars: should be a text as it is typed, like "DOLLARS"',
        ),
        ('[tool.stash.watch]\nmax-dollars = ["9"]', "max-dollars: should be a text"),
        ("[tool.stash.watch]\nmax-dolars = 9", "has no key max-dolars; did you mean max-dollars"),
        (
            '[tool.stash.watch]\non-alert = "rm"',
            "has no key on-alert; there are stuck-after, max-dollars",
        ),
        ("[tool.stash.wach]", r"\[tool.stash\] has no key wach; did you mean watch"),
        ("[tool]\nstash = 3", r"tool.stash is not a table; write \[tool.stash\]"),
        ("[tool.stash]\nwatch = 3", r"tool.stash.watch is not a table; write \[tool.stash.watch\]"),
        ("[tool.stash", "is not valid TOML"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_file(text, why, tmp_path):
    with pytest.raises(UserError, match=why) as raised:
        read(tmp_path, text)
    assert str(raised.value).startswith(str(tmp_path / "pyproject.toml"))


def test_a_limit_of_the_project_is_checked_unless_one_is_typed(tmp_path, monkeypatch, capsys):
    write(tmp_path, '[tool.stash.check]\nmax = ["step=1ms"]\n')
    assert stash(monkeypatch, tmp_path, "check", GOLDEN) == 1
    assert "(--max step=1ms)" in capsys.readouterr().out
    assert stash(monkeypatch, tmp_path, "check", GOLDEN, "--max", "step=9s") == 0


def test_help_says_whose_a_default_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    file = write(tmp_path, '[tool.stash.profile]\nbudget = "90s"\n')
    assert stash(monkeypatch, tmp_path, "profile", "--help") == 0
    assert f"(default90s,by{file})" in "".join(capsys.readouterr().out.split())


def test_a_projects_limits_do_not_hinder_the_check_of_a_plan(tmp_path, monkeypatch, capsys):
    """A plan has limits of its own, and refuses those that are typed."""
    write(tmp_path, '[tool.stash.check]\nmax = ["step=1ms"]\n')
    plan = "train.plan.json"
    monkeypatch.setattr("stash.plan.records.is_plan", lambda file: file == plan)
    for words, refused in (((), False), (("--max", "step=1s"), True)):
        assert stash(monkeypatch, tmp_path, "check", plan, GOLDEN, *words) == 2
        assert ("a plan has limits of its own" in capsys.readouterr().err) is refused
