"""``stash characterize``: what it prints before it starts, what it refuses, a study on a cloud of shell scripts."""

import pytest
from commands import run
from studies import LOCAL, PROFILE, SKY

from stash.store.storing import open_store

Patch = pytest.MonkeyPatch
GRID = LOCAL + '- {engine: sky, instance: p3.8xlarge, price: "$12/h", nodes: [1, 2]}\nrepeats: 2\n'
GRID = GRID.replace("targets: [{engine: local}]\n-", "targets:\n- {engine: local}\n-")
SKY_PROGRAM = """#!/bin/sh
# Clusters are files; a launched task leaves its profile where scp looks for it.
echo "$@" >>calls
case "$1" in
launch) touch "cluster-$4"; for last; do :; done; id=$(sed -n 's/^name: stash-//p' "$last")
  cp profile.bytes "remote-stash-$id.stash.json" ;;
down) rm -f "cluster-$3" ;;
status) for c in cluster-*; do [ -e "$c" ] && echo "${c#cluster-}  aws  UP"; done; true ;;
esac
"""


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("STASH_HOME", str(tmp_path / "home"))

    def type_words(line, code=0):
        assert run(monkeypatch, *line.split()) == code
        return capsys.readouterr()

    return type_words


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "profile.bytes").write_bytes(PROFILE)
    (tmp_path / "grid.yaml").write_text(SKY)
    copy = '#!/bin/sh\ncp "remote-${2#*:}" "$3"\n'
    for name, text in (("sky", SKY_PROGRAM), ("scp", copy)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setattr("stash.study.controller._TICK", 0.02)
    return tmp_path


def test_a_dry_run_prints_the_matrix_the_price_and_every_word(tmp_path, typed):
    (tmp_path / "grid.yaml").write_text(GRID)
    report, _, script = typed("characterize grid.yaml --dry-run")[0].partition("# --- ")
    assert all(len(line) <= 80 for line in report.splitlines())
    assert "grid: 24 cells" in report
    assert "2 x p3.8xlarge" in report
    assert "$12 an hour of a node, as given in grid.yaml" in report
    assert script.count("$ sky launch --yes") == 16
    assert script.count("exec ") == 8
    assert not (tmp_path / "grid.study").exists()


@pytest.mark.parametrize(
    ("text", "words", "sentence"),
    [
        (
            SKY,
            "",
            "costs about $1.80; say what the study may cost at most with --max-dollars DOLLARS",
        ),
        (SKY, " --max-dollars -1", "--max-dollars -1: it must be more than 0"),
        (SKY.replace("sky", "skye"), "", "grid.yaml:4: targets[0].engine: there is no such engine"),
        (SKY.replace("p3.8x", "p3.9x"), "", "grid.yaml:4: targets[0].instance: unknown instance"),
    ],
)
def test_what_is_refused_before_anything_is_started(tmp_path, typed, text, words, sentence):
    (tmp_path / "grid.yaml").write_text(text)
    assert sentence in typed(f"characterize grid.yaml{words}", 2)[1]
    assert not (tmp_path / "grid.study").exists()


def test_a_study_on_a_cloud_from_end_to_end(cloud, typed):
    out, _ = typed("characterize grid.yaml --max-dollars 5")
    assert "resnet18 batch 32 on p3.8xlarge: done after" in out
    assert "2 of 2 cells are done." in out
    calls = (cloud / "calls").read_text().splitlines()
    assert [line.split()[0] for line in calls] == ["launch", "launch", "down", "status"]
    assert list(cloud.glob("cluster-*")) == []
    # the cloud gives both the same bytes
    names = open_store(str(cloud / "grid.study" / "results")).contents().stored
    assert [name.endswith(".stash.json") for name in names] == [True]
    typed("characterize grid.yaml --max-dollars 5")
    assert (cloud / "calls").read_text().splitlines() == calls
    typed("report grid.yaml -o grid.html")
    html = (cloud / "grid.html").read_text()
    assert "2 cells: 2 done" in html
    for cell in (cloud / "grid.study" / "cells").iterdir():
        assert f'href="grid.study/cells/{cell.name}/profile.stash.json"' in html
    typed("report grid.yaml --format svg -o paper")
    assert {path.stem for path in (cloud / "paper").iterdir()} == {"stalls-1"}


def test_of_a_study_that_has_measured_nothing_there_is_nothing_to_draw(cloud, typed):
    error = typed("report grid.yaml --format pdf -o paper", 2)[1]
    assert "there is nothing to draw of grid.yaml yet" in error
    assert not (cloud / "paper").exists()
