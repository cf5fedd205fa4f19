"""Anybody's error in one line, and errors that a program tells apart by their code."""

import json
import re
from pathlib import Path

import pytest

from stash.cli.main import main
from stash.core.errors import (
    ArtefactError,
    JobError,
    StashError,
    StoreError,
    UnitError,
    UserError,
    one_line,
)

ROOT = Path(__file__).parents[3]
ONE, OTHER = (
    str(ROOT / "tests/golden/one-node.stash.json"),
    str(ROOT / "docs/pictures/squeezenet1_0.stash.json"),
)


def test_an_error_of_a_library_is_one_line_without_its_source():
    error = RuntimeError(
        "[/src/gloo/pair.cc:598] Connection closed by peer [10.0.0.2]:1234\nmore\n"
    )
    assert one_line(error) == "Connection closed by peer [10.0.0.2]:1234"
    assert one_line(ValueError()) == "ValueError"


def test_every_class_has_a_code_of_its_own_and_an_error_may_have_another():
    classes = (StashError, UserError, UnitError, ArtefactError, StoreError, JobError)
    assert [each("x").code for each in classes] == [
        "failed",
        "usage",
        "unit",
        "artefact",
        "store",
        "job",
    ]
    assert ArtefactError("x", code="artefact_newer").code == "artefact_newer"
    assert str(ArtefactError("x", code="artefact_newer")) == "x"


def test_every_code_is_on_the_page_that_promises_them():
    page = (ROOT / "docs/how-to/integrations.md").read_text().partition("## Errors for programs")[2]
    sources = "".join(path.read_text() for path in (ROOT / "src/stash").rglob("*.py"))
    given = set(re.findall(r'\bcode="(\w+)"', sources)) | set(
        re.findall(r'^    code = "(\w+)"$', sources, re.MULTILINE)
    )
    assert len(given) > 12
    assert given == set(
        re.findall(r"`([a-z_]+)`", "".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)))
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["show", "nothing.stash.json"], "artefact_missing"),
        (["show", "newer.stash.json"], "artefact_newer"),
        (["show", "cut.stash.json"], "artefact_damaged"),
        (["whatif", "rent.plan.json", "--nodes", "2"], "artefact_kind"),
        (["show", "text.txt"], "artefact"),
        (["compare", ONE, OTHER], "different_jobs"),
        (["check", ONE, "--against", OTHER, "--slower", "5%"], "different_jobs"),
        (["compare", ONE, ONE], "same_run"),
        (["check", ONE], "usage"),
        (["show", ONE, "--nonsense"], "usage"),
        (["whatif", ONE, "--network", "10 gbots"], "unit"),
        (["list", "s3x://nowhere"], "usage"),
    ],
)
def test_a_command_that_was_asked_for_json_says_which_error_it_was(
    words, code, monkeypatch, capsys, tmp_path
):
    monkeypatch.chdir(tmp_path)
    content = Path(ONE).read_text()
    Path("newer.stash.json").write_text(
        content.replace('"schema_version": 1', '"schema_version": 99')
    )
    Path("cut.stash.json").write_text(content[:2000])
    Path("text.txt").write_text("no JSON")
    Path("rent.plan.json").write_text((ROOT / "tests/golden/schema-1.plan.json").read_text())
    for asked in (["--json"], []):
        monkeypatch.setattr("sys.argv", ["stash", *words, *asked])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert ended.value.code == 2
        assert err.strip()
        if asked:
            error = json.loads(out)["error"]
            assert error["code"] == code
            assert error["message"].splitlines()[0][:40] in err
        else:
            assert out == ""
