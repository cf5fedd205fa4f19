"""``stash show``: the text, the document, and what it refuses."""

import json
import math

import pytest
from golden_profiles import GOLDEN
from profile_builder import build

from stash.cli.main import main
from stash.cli.show_command import ShowOptions, show
from stash.core.artefact import save
from stash.core.errors import UserError


def test_show_explains_its_words_after_the_report(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    show(ShowOptions(file=str(GOLDEN / "one-node.stash.json"), explain=True))
    report, words = capsys.readouterr().out.split("\n  Words\n")
    assert report.startswith((GOLDEN / "one-node.expected.txt").read_text(encoding="utf-8"))
    assert "\n  What else helps\n  - Accumulate gradients" in report
    assert "\n  What each +/- is made of\n  compute       noise +/- " in report
    assert "  prep          waiting for samples to be decoded" in words
    with pytest.raises(UserError, match="--explain is about the report of a profile"):
        show(ShowOptions(file=str(GOLDEN / "one-node.stash.json"), json=True, explain=True))


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        (math.nan, "is not a profile: blocks.seconds.5: input should be a finite number"),
        (-1.0, "is damaged: rank 1's steps under crowd in round 1"),
    ],
)
def test_a_damaged_time_in_a_file_is_one_sentence_that_names_it_and_exit_code_2(
    tmp_path, monkeypatch, capsys, seconds, sentence
):
    file = tmp_path / "a.stash.json"
    save(build({"solo": [0.1, 0.1], "crowd": [0.2, 0.3]}), file)
    document = json.loads(file.read_text(encoding="utf-8"))
    document["blocks"]["seconds"][-1] = seconds
    file.write_text(json.dumps(document), encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["stash", "show", str(file)])
    with pytest.raises(SystemExit) as left:
        main()
    printed = capsys.readouterr()
    assert left.value.code == 2
    assert printed.out == ""
    assert f"{file} {sentence}" in " ".join(printed.err.split())
    assert "Traceback" not in printed.err


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("created", "0000-00-00"),
        ("created", "99999-01-01"),
        ("created", ""),
        ("choices.0.rented.price.as_of", "2026-13-45"),
        ("choices.1.rented.price.as_of", "x"),
    ],
)
def test_a_date_of_a_plan_that_is_none_is_one_sentence_that_names_it_and_exit_code_2(
    tmp_path, monkeypatch, capsys, field, text
):
    document = json.loads((GOLDEN / "schema-1.plan.json").read_text(encoding="utf-8"))
    *above, name = field.split(".")
    inside = document
    for part in above:
        inside = inside[int(part) if part.isdecimal() else part]
    inside[name] = text
    file = tmp_path / "a.plan.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["stash", "show", str(file)])
    with pytest.raises(SystemExit) as left:
        main()
    printed = capsys.readouterr()
    assert (left.value.code, printed.out) == (2, "")
    assert printed.err.startswith(f"error: {file} is not a plan: {field}: {text!r} is not a date;")
