"""``stash report``: files that are whole or not there, and one sentence for what is wrong."""

import json
import struct
import sys
from pathlib import Path

import probe_builder
import pytest
from commands import run
from golden_profiles import GOLDEN
from profile_builder import build
from reported import whole

from stash.core.artefact import save

CHARTS = {"ladder", "ranks"}


@pytest.fixture(autouse=True)
def place(tmp_path, home, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    save(whole(), folder / "train.stash.json")
    save(build({"solo": [0.1] * 3, "crowd": [0.2] * 3}), folder / "other.stash.json")
    save(probe_builder.probe(probe_builder.p3_8xlarge()), folder / "vm.host.json")
    return folder


def refused(monkeypatch, capsys, *words, code=2):
    before = set(Path().rglob("*"))
    assert run(monkeypatch, *words) == code
    printed = capsys.readouterr()
    assert set(Path().rglob("*")) == before, "something was written"
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("error: ")
    return printed.err


def test_a_report_is_named_after_its_profile_and_replaces_no_other(monkeypatch, capsys):
    assert run(monkeypatch, "report", "train.stash.json") == 0
    assert run(monkeypatch, "report", "train.stash.json") == 0
    assert capsys.readouterr().out.startswith("Wrote train.html (")
    first = Path("train.html").read_text()
    second = Path("train-2.html").read_text()
    assert first == second
    assert first.startswith("<!DOCTYPE html>")
    assert first.endswith("</html>")


def test_a_report_of_profiles_and_a_probe_has_them_all(monkeypatch):
    assert (
        run(
            monkeypatch,
            "report",
            "train.stash.json",
            "other.stash.json",
            "vm.host.json",
            "-o",
            "all.html",
        )
        == 0
    )
    text = Path("all.html").read_text()
    assert [
        text.count(f"<summary>{name}: ")
        for name in ("train.stash.json", "other.stash.json", "vm.host.json")
    ] == [1] * 3
    assert "other against train: not compared, as it is another job than train" in text


def test_a_probe_of_the_machines_adds_their_links(monkeypatch, capsys):
    host = probe_builder.p3_8xlarge().model_copy(update={"hostname": "node0"})
    save(probe_builder.probe(host), "node0.host.json")
    assert run(monkeypatch, "report", "train.stash.json", "--probe", "node0.host.json") == 0
    text = Path("train.html").read_text()
    assert "All-reduce, by message size" in text
    assert "the links of node1 are unknown" in text
    sentence = refused(monkeypatch, capsys, "report", "train.stash.json", "--probe", "vm.host.json")
    assert (
        "--probe vm.host.json is of ip-10-0-0-7, and train.stash.json of node0, node1" in sentence
    )
    assert "none is given" in refused(
        monkeypatch, capsys, "report", "vm.host.json", "--probe", "vm.host.json"
    )


def test_markdown_is_printed_and_nothing_is_written_unless_it_is_asked_for(monkeypatch, capsys):
    before = set(Path().iterdir())
    assert run(monkeypatch, "report", str(GOLDEN / "one-node.stash.json"), "--format", "md") == 0
    assert capsys.readouterr().out == (GOLDEN / "one-node.expected.md").read_text(encoding="utf-8")
    assert set(Path().iterdir()) == before
    assert run(monkeypatch, "report", str(GOLDEN / "one-node.stash.json"), "-o", "pr.md") == 0
    assert Path("pr.md").read_text(encoding="utf-8") == (GOLDEN / "one-node.expected.md").read_text(
        encoding="utf-8"
    )


def test_what_cannot_be_read_is_one_sentence_and_nothing_is_written(monkeypatch, capsys):
    document = json.loads(Path("train.stash.json").read_text())
    Path("newer.stash.json").write_text(json.dumps({**document, "schema_version": 99}))
    Path("cut.stash.json").write_text(Path("train.stash.json").read_text()[:5000])
    Path("long.stash.json").write_text(
        json.dumps({**document, "notes": ["x"], "stash_version": "v" * 10**7})
    )
    assert "made by a newer Stash" in refused(monkeypatch, capsys, "report", "newer.stash.json")
    assert "damaged or cut short" in refused(monkeypatch, capsys, "report", "cut.stash.json")
    assert "stash_version" in refused(monkeypatch, capsys, "report", "long.stash.json")
    assert "there is no file" in refused(monkeypatch, capsys, "report", "missing.stash.json")
    assert "given twice" in refused(
        monkeypatch, capsys, "report", "train.stash.json", "train.stash.json"
    )
    save(whole(blocks=()), "empty.stash.json")
    assert "has no complete round" in refused(
        monkeypatch, capsys, "report", "empty.stash.json", code=1
    )


def test_every_chart_becomes_a_file_of_each_format_with_its_font_inside(monkeypatch):
    assert (
        run(
            monkeypatch,
            "report",
            "train.stash.json",
            "--format",
            "pdf,svg,png",
            "-o",
            "paper",
            "--width",
            "85",
        )
        == 0
    )
    found = {path.name for path in Path("paper").iterdir()}
    assert found == {f"{name}.{ending}" for name in CHARTS for ending in ("pdf", "svg", "png")}
    for name in CHARTS:
        pdf = Path(f"paper/{name}.pdf").read_bytes()
        picture = Path(f"paper/{name}.png").read_bytes()
        assert pdf.startswith(b"%PDF")
        assert b"Roboto" in pdf
        assert b"/FontFile" in pdf
        # dots
        assert struct.unpack(">I", picture[16:20])[0] == pytest.approx(85 / 25.4 * 300, rel=0.01)
        assert (
            "@font-face{font-family:Roboto;src:url(data:font/ttf;base64,"
            in Path(f"paper/{name}.svg").read_text()
        )


def test_without_vl_convert_a_drawing_is_still_there(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert run(monkeypatch, "report", "train.stash.json", "--format", "svg", "-o", "made") == 0
    capsys.readouterr()
    sentence = refused(
        monkeypatch, capsys, "report", "train.stash.json", "--format", "pdf", "-o", "made"
    )
    assert (
        "PDF needs vl-convert-python, which is not installed: type `pip install vl-convert-python`, or"
        in sentence
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-o", "train.stash.json"), "a page is no JSON"),
        (("--format", "html", "-o", "new.json"), "name a file that ends in .html or .md"),
        (("--format", "jpeg"), "the formats are html, md, png, svg, pdf"),
        (("--format", ","), "it names nothing"),
        (("--format", "svg", "--width", "5"), "a figure is 60 to 1000 mm wide"),
        (("--format", "svg", "--width", "nan"), "a figure is 60 to 1000 mm wide"),
        (("--format", "svg", "-o", "train.stash.json"), "is a file; name a folder"),
        (("--format", "svg", "-o", "/proc/figures"), "choose another folder"),
        (
            ("--format", "svg", "-o", "ladder.svg"),
            "every chart is a picture of its own; say `--format svg -o FOLDER`",
        ),
        (("-o", "ladder.PNG"), "every chart is a picture of its own; say `--format png -o FOLDER`"),
        (("--format", "html,svg", "-o", "all.html"), "several files are written; name a folder"),
        (("--width", "85"), "--width is of pictures; say which, like --format pdf"),
    ],
)
def test_formats_and_places_that_do_not_go_together_are_one_sentence(
    monkeypatch, capsys, words, sentence
):
    assert sentence in refused(monkeypatch, capsys, "report", "train.stash.json", *words)
