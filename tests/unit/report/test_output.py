"""What becomes of an artefact: shown first, saved in any case, and said where."""

from pathlib import Path

import pytest

from stash.core.artefact import load_probe
from stash.core.errors import ArtefactError, UserError
from stash.core.output_files import output_file
from stash.core.records.host import Probe
from stash.report.output import show_then_save

PROBE = Probe(
    stash_version="1",
    created="2026-11-01T00:00:00+00:00",
    hosts=(),
    budget_seconds=0,
    elapsed_seconds=0,
)


def test_what_was_measured_is_saved_even_when_it_cannot_be_shown(tmp_path):
    def show():
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        show_then_save(PROBE, tmp_path / "a.host.json", show)
    assert load_probe(tmp_path / "a.host.json") == PROBE


def test_where_it_was_saved_is_said_after_the_report(tmp_path, capsys):
    show_then_save(PROBE, tmp_path / "a b.json", lambda: print("report"))
    printed = capsys.readouterr()
    assert printed.out == (
        f"report\n\nWrote {tmp_path}/a b.json; show it again with `stash show '{tmp_path}/a b.json'`.\n"
    )
    assert printed.err == ""


def test_where_the_output_is_json_nothing_else_is_printed_there(tmp_path, capsys):
    show_then_save(PROBE, tmp_path / "a.json", lambda: print("{}"), json=True)
    printed = capsys.readouterr()
    assert printed.out == "{}\n"
    assert printed.err.startswith("Wrote ")


def test_of_two_that_save_at_once_under_default_names_each_gets_its_own(tmp_path, capsys):
    for _ in range(3):
        show_then_save(PROBE, tmp_path / "a.host.json", lambda: None, new=True)
    (tmp_path / "a-4.host.json").symlink_to(tmp_path / "nowhere")
    show_then_save(PROBE, tmp_path / "a.host.json", lambda: None, new=True)
    names = ["a-2.host.json", "a-3.host.json", "a-4.host.json", "a-5.host.json", "a.host.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert not (tmp_path / "nowhere").exists()
    assert "a-5.host.json" in capsys.readouterr().out


def test_what_cannot_be_saved_in_its_place_is_kept_in_another(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with pytest.raises(ArtefactError, match=rf"gone does not exist.*is in {here}/a\.host\.json"):
        show_then_save(PROBE, tmp_path / "gone" / "a.host.json", lambda: None)
    assert load_probe(here / "a.host.json") == PROBE


@pytest.mark.parametrize(
    ("wanted", "words"), [(".", "is a folder"), ("none/a.json", "there is no folder none")]
)
def test_a_place_that_cannot_be_is_refused(tmp_path, monkeypatch, wanted, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=words):
        output_file(Path(wanted), "run", ".json")
