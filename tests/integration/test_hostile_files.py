"""Names, courses and archives that would take all memory or time: one sentence, exit code 2.

Every kind of file as every kind of bomb is in the fault matrix (``tests/faults/cases/parsers.py``).
"""

import gzip

import pytest
from commands import run
from hostile_files import KINDS, ONE

JOB = "job,user,submit,gpus,model,steps\nj1,me,{submit},1,A3C,{steps}\n"
MARKET = (
    "# stash market 1\n# source: x\n# max_gap: 129600\nat,cloud,region,zone,instance,kind,usd_per_hour,available\n"
    "2020-02-27T17:42:36Z,aws,us-east-1,us-east-1b,p3.2xlarge,spot,1.1409,\n"
)


def refused(monkeypatch, capsys, *words):
    assert run(monkeypatch, *words) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert len(printed) < 5_000
    return printed


@pytest.mark.parametrize("words", [("show", "x" * 5000), ("compare", ONE, "x/" * 3000)])
def test_a_name_that_no_file_can_have_is_refused_in_a_sentence(monkeypatch, capsys, words):
    refused(monkeypatch, capsys, *words)


@pytest.mark.parametrize(
    "given",
    [
        {"steps": "1e18"},
        {"steps": "1e308"},
        {"submit": "1e18"},
        {"submit": "1e308"},
        {"steps": "9" * 5000},
    ],
)
def test_a_course_of_centuries_is_refused_with_its_line(tmp_path, monkeypatch, capsys, given):
    values = {"submit": "0", "steps": "1000", **given}
    (tmp_path / "jobs.csv").write_text(JOB.format(**values) + "j2,me,0,1,A3C,1000\n")
    words = [str(tmp_path / "jobs.csv") if word == "FILE" else word for word in KINDS["jobs.csv"]]
    assert "jobs.csv:2: " in refused(monkeypatch, capsys, *words)


def test_a_market_that_unpacks_to_more_than_its_bound_is_refused(tmp_path, monkeypatch, capsys):
    row = MARKET.splitlines(keepends=True)[-1].encode()
    bomb = gzip.compress(MARKET.encode()) + gzip.compress(row * 200_000, 9) * 300
    (tmp_path / "x.market.csv.gz").write_bytes(bomb)
    assert "MiB of text" in refused(
        monkeypatch, capsys, "market", "show", str(tmp_path / "x.market.csv.gz")
    )
