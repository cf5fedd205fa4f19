"""``stash list``, ``query`` and ``store``, ids beside paths, and copies that a measurement keeps."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from probe_builder import p3_8xlarge, probe
from rich.cells import cell_len
from stores import calm_profile, made

from stash.core.artefact import encode_artefact, load, save
from stash.core.errors import StoreError
from stash.report.output import show_then_save
from stash.store.storage import id_of
from stash.store.store import path_of
from stash.store.storing import ENVIRONMENT, open_store, store_for_copies


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return made("runs")


def test_a_list_says_how_many_more_there_are(store, monkeypatch, run_stash):
    assert (
        run_stash("list", "runs", "-n", "1").out.splitlines()[-1] == "3 more; --limit 4 shows all"
    )
    monkeypatch.setenv("COLUMNS", "50")
    text = run_stash("list", "runs", "--limit", "9").out
    assert "Columns that did not fit: ranks, machine, samples/s, most" in text
    assert all(len(line) <= 50 for line in text.splitlines()[:-1])


def test_a_list_of_the_current_folder_names_files_and_what_cannot_be_read(store, run_stash):
    save(calm_profile(1), "mine.stash.json")
    Path("bad.stash.json").write_text("{")
    printed = run_stash("list")
    assert printed.out.splitlines()[1].split()[:2] == ["mine", "2026-11-01"]
    assert "note: left out bad.stash.json: bad.stash.json is damaged or cut short" in printed.err


def test_a_list_reads_on_past_what_cannot_be_read(store, run_stash):
    names = store.contents().stored
    for name in names[:2]:
        Path("runs", name).write_text("{")
        Path("runs", path_of(name)).unlink()
    (row,) = json.loads(run_stash("list", "runs", "-n", "1", "--json").out)
    assert row["file"] == names[2]


def test_a_list_cuts_long_names_and_never_an_id(tmp_path, monkeypatch, run_stash):
    stem = "a-file-of-a-name-that-people-have-to-type-" * 2
    (tmp_path / f"{stem}.stash.json").write_bytes(
        encode_artefact(calm_profile(1, workload={"name": "訓練Größe-" * 5}))
    )
    monkeypatch.setenv("COLUMNS", "60")
    _, row, *_ = run_stash("list", str(tmp_path)).out.splitlines()
    assert row.split()[0] == stem
    (name,) = (word for word in row.split() if word.startswith("訓練"))
    assert name.endswith("…")
    assert cell_len(name) <= 28


def test_an_empty_store_says_how_it_is_filled(tmp_path, run_stash):
    assert "has no artefacts; `stash profile --store" in run_stash("list", str(tmp_path)).out


SQL = "select name, seconds from stalls where name in ('prep', 'network') order by id, name limit 2"


def test_an_answer_is_a_table_csv_json_or_a_file(store, run_stash):
    head, network, prep = run_stash("query", SQL, "--store", "runs").out.splitlines()
    assert (head.split(), network.split(), prep.split()) == (
        ["name", "seconds"],
        ["network", "NULL"],
        ["prep", "0.03"],
    )
    rows = list(
        csv.reader(io.StringIO(run_stash("query", SQL, "--store", "runs", "--format", "csv").out))
    )
    assert rows[:2] == [["name", "seconds"], ["network", ""]]
    assert float(rows[2][1]) == pytest.approx(0.03)
    printed = run_stash("query", SQL, "--store", "runs", "--format", "json")
    assert json.loads(printed.out)[0] == {"name": "network", "seconds": None}
    for ending in ("csv", "json"):
        printed = run_stash("query", SQL, "--store", "runs", "-o", f"answer.{ending}")
        assert Path(f"answer.{ending}").stat().st_size > 20
        assert printed.out == f"Wrote answer.{ending}.\n"


def test_numbers_that_json_does_not_have_are_null(store, run_stash):
    numbers = "'nan'::double a, 'inf'::double b, [1, 'nan'::double] c"
    sql = f"select {numbers}, {{'x': 1}} d, date '2026-11-22' e, 1.5::decimal(3, 1) f"
    (row,) = json.loads(run_stash("query", sql, "--format", "json", "--store", "runs").out)
    assert row == {
        "a": None,
        "b": None,
        "c": [1.0, None],
        "d": {"x": 1},
        "e": "2026-11-22",
        "f": "1.5",
    }


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("query", "selec"), "Parser Error: syntax error"),
        (("query", "select x from profiles"), "profiles has id, created, workload"),
        (("query", "select 1", "--format", "xml"), "--format xml: it must be table, csv or json"),
        (("query", "select 1", "--format", "table", "-o", "x"), "a table is for a screen"),
        (("query", "select 1", "-o", "/dev/null"), "--output /dev/null is not a regular file"),
        (
            ("query", "select 1", "-o", "runs/mine.stash.json"),
            "what was measured or planned ends so",
        ),
        (("list", "nowhere"), "there is no store nowhere"),
        (("list", "gopher://x"), "is no store that can be reached"),
        (("store", "add", "a.stash.json"), "which store? Say --store URL, or set STASH_STORE"),
        (("store", "add", "a.stash.json", "--store", "runs"), "there is no file a.stash.json"),
        (("show", "abcd12"), "there is no file abcd12; if it is an id, say of which store"),
        (
            ("show", "abcd12", "--store", "runs"),
            "runs has no artefact abcd12; `stash list runs` lists all",
        ),
        (("show", "20261101", "--store", "nowhere"), "there is no store nowhere"),
        (("check", "20261120", "--store", "runs", "--max", "step=1s"), "is a probe of a machine"),
    ],
)
def test_what_is_mistyped_is_one_sentence_and_exit_code_2(store, words, sentence, run_stash):
    error = run_stash(*words, code=2).err
    assert error.startswith("error: ")
    assert sentence in error
    assert error.count("\n") == 1


def test_ids_stand_for_files_in_every_command(store, monkeypatch, run_stash):
    monkeypatch.setenv(ENVIRONMENT, "runs")
    first, second = (id_of(name)[:8] for name in store.contents().stored[1:3])
    assert json.loads(run_stash("show", first, "--json").out)["world_size"] == 2
    assert f"before: {first}" in run_stash("compare", first, second).out
    run_stash("check", first, "--against", second, "--slower", "5%")
    run_stash("show", "20261120")  # the probe
    run_stash("show", f"runs/{store.contents().stored[0]}")


def test_files_are_added_to_a_store(store, run_stash):
    save(calm_profile(9), "mine.stash.json")
    save(probe(p3_8xlarge()), "node.host.json")
    assert [
        line.split()[1]
        for line in run_stash(
            "store", "add", "mine.stash.json", "node.host.json", "--store", "new/store"
        ).out.splitlines()
    ] == [
        "mine.stash.json",
        "node.host.json",
    ]
    assert len(open_store("new/store").contents().stored) == 2


def test_verify_names_files_and_exits_with_1(store, run_stash):
    assert "4 artefacts are whole, 0 files are not" in run_stash("store", "verify", "runs").out
    Path("runs/\x1b[2J.txt").write_text("")
    out = run_stash("store", "verify", "runs", code=1).out
    assert "\\x1b[2J.txt: it is called like no artefact" in out
    assert out.endswith("4 artefacts are whole, 1 file is not\n")
    Path("runs/cut.stash.json").write_bytes(b"{")
    assert run_stash("store", "verify", "runs", code=1).out.count("cut.stash.json") == 1


def test_a_measurement_keeps_a_copy(store, monkeypatch, capsys):
    shown = []
    show_then_save(
        calm_profile(9),
        Path("run.stash.json"),
        lambda: shown.append("x"),
        copies=store_for_copies("runs"),
    )
    printed = capsys.readouterr()
    name = store.contents().stored[1]
    assert shown == ["x"]
    assert (
        f"A copy is in runs; `stash show {id_of(name)[:10]} --store runs` shows it." in printed.err
    )
    assert (
        (Path("runs") / name).read_bytes()
        == encode_artefact(calm_profile(9))
        == Path("run.stash.json").read_bytes()
    )


def test_a_store_that_fails_loses_nothing(store, monkeypatch, capsys):
    def fails(*arguments, **options):
        raise StoreError("cannot write the store runs: no space left")

    monkeypatch.setattr("stash.store.storage.ArtefactStorage.put", fails)
    show_then_save(
        calm_profile(9), Path("run.stash.json"), lambda: None, copies=store_for_copies("runs")
    )
    printed = capsys.readouterr().err
    assert printed.startswith(
        "note: no copy was kept: cannot write the store runs: no space left. `stash store add "
    )
    assert load("run.stash.json") == calm_profile(9)


def test_without_duckdb_a_store_keeps_lists_and_shows(store, monkeypatch, run_stash):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    save(calm_profile(9), "mine.stash.json")
    run_stash("store", "add", "mine.stash.json", "--store", "runs")
    run_stash("list", "runs", "--json")
    run_stash("show", "20261109", "--store", "runs", "--json")
    run_stash("store", "verify", "runs")
    assert (
        run_stash("query", "from profiles", "--store", "runs", code=2).err
        == "error: this needs duckdb, which is not installed: type `pip install duckdb`\n"
    )


def test_a_query_without_sql_lists_tables_and_columns(run_stash):
    lines = run_stash("query").out.splitlines()
    assert "stalls" in lines
    assert any(line.split()[:2] == ["step_seconds", "double"] for line in lines)
