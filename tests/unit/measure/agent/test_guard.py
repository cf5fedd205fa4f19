"""In a process under the agent no function of Python's changes a file that was there before."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from listening import Recorder
from ranks_in_memory import orders

import stash
from stash.measure.agent import guard
from stash.measure.protocol.orders import Orders
from stash.measure.protocol.put_back import put_back

WAYS = {
    "open": "open(path, 'wb').write(b'job')",
    "append": "open(path, 'a').write('job')",
    "update": "f = open(path, 'r+b'); f.write(b'job'); f.close()",
    "os.open": "os.write(os.open(path, os.O_WRONLY | os.O_TRUNC), b'job')",
    "pathlib": "pathlib.Path(path).write_text('job')",
    "truncate": "os.truncate(path, 3)",
    "remove": "os.remove(path)",
    "unlink in a folder": "os.unlink(os.path.basename(path), dir_fd=os.open(os.path.dirname(path), os.O_RDONLY))",
    "rmtree": "shutil.rmtree(os.path.dirname(path))",
    "replace": "open(path + '.tmp', 'w').write('job'); os.replace(path + '.tmp', path)",
    "move": "shutil.move(path, path + '.bak')",
    "copy": "open(path + '.tmp', 'w').write('job'); shutil.copyfile(path + '.tmp', path)",
    "memory map": "import numpy; m = numpy.memmap(path, mode='r+'); m[:3] = 0; m.flush()",
    "numpy": "import numpy; numpy.save(open(path, 'wb'), numpy.zeros(3))",
    "zip": "import zipfile; zipfile.ZipFile(path, 'w').writestr('a', 'job')",
    "C code": "guard.script.drifted = lambda: True; guard.about_to_write(path, True); open(path, 'wb').write(b'job')",
    "sqlite": "import sqlite3; c = sqlite3.connect(path); c.execute('create table t (a)'); c.commit()",
}


def test_what_sqlite_writes_beside_a_database_goes_and_comes_with_it(given: Orders, tmp_path):
    # GIVEN a database of the user's in which the job writes ahead, and is killed
    path = tmp_path / "mine.db"
    own = sqlite3.connect(path)
    own.execute("create table t (a)")
    own.commit()
    own.close()
    os.utime(path, (1, 1))
    before = path.read_bytes()
    code = (
        "import os, sqlite3\n"
        "from stash.measure.agent import guard\n"
        "from stash.measure.protocol.orders import Orders\n"
        f"guard.protect_files(Orders({given.folder!r}, rungs=(), budget=1, began={given.began}))\n"
        f"c = sqlite3.connect('file:{path}?mode=rw', uri=True)\n"
        "c.execute('pragma journal_mode=wal')\n"
        "c.execute('insert into t values (1)')\n"
        "c.commit()\n"
        f"assert os.path.exists({str(path)!r} + '-wal')\n"
        "os._exit(0)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(stash.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=tmp_path)
    assert str(path) in put_back(given.files.kept).restored
    # THEN it is as it was, and no log is left that would be played into it
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir() if each.name.startswith("mine")) == [
        "mine.db"
    ]


@pytest.fixture
def given(tmp_path) -> Orders:
    (tmp_path / "run").mkdir()
    return orders(tmp_path / "run", began=time.time() - 60)


@pytest.mark.parametrize("way", WAYS)
def test_a_file_is_put_back_however_it_was_changed(given: Orders, tmp_path, way):
    path = tmp_path / "mine" / "file"
    path.parent.mkdir()
    before = b"" if way == "sqlite" else b"what the user had"
    path.write_bytes(before)
    os.utime(path, (1, 1))
    code = (
        "import os, pathlib, shutil, sys\n"
        "from stash.measure.agent import guard\n"
        "from stash.measure.protocol.orders import Orders\n"
        f"orders = Orders({given.folder!r}, rungs=(), budget=1, began={given.began})\n"
        "guard.protect_files(orders)\n"
        f"path = {str(path)!r}\n{WAYS[way]}\n"
        f"assert not os.path.exists(path) or open(path, 'rb').read() != {before!r}, 'the job changed nothing'\n"
    )
    source = Path(stash.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(source)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=tmp_path)
    assert str(path) in put_back(given.files.kept).restored
    assert path.read_bytes() == before
    assert path.stat().st_mtime == 1 or way == "sqlite"


def test_keeping_a_file_is_work_of_stash(listener: Recorder, monkeypatch) -> None:
    moments = list[float]()
    monkeypatch.setattr(listener, "worked_since", moments.append)
    guard._unless_busy(lambda: None)
    assert moments == []
    guard._unless_busy(time.sleep, 0.001)
    assert len(moments) == 1


def test_what_cannot_be_noted_ends_no_training_but_what_cannot_be_kept_is_not_written(tmp_path):
    # GIVEN a ledger that cannot be written, as on a disk that is full
    launch, work = tmp_path / "run" / "launch", tmp_path / "work"
    for folder in (launch, work):
        folder.mkdir(parents=True)
    given = orders(launch, began=time.time() - 60)
    given.files.kept.mkdir(parents=True)
    old = work / "old"
    old.write_text("what the user had")
    os.utime(old, (1, 1))
    code = (
        "import os\n"
        "from stash.measure.agent import guard, script\n"
        "from stash.measure.protocol.orders import Orders\n"
        "notes = []\n"
        "script.passes, script.active, script.note = lambda: 1, lambda: True, notes.append\n"
        f"guard.protect_files(Orders({given.folder!r}, rungs=(), budget=1, began={given.began}))\n"
        "with guard.saving():\n"
        "    os.mkdir('made')\n"
        "    open('made/new', 'w').write('of the job')\n"
        "    os.rename('made/new', 'made/renamed')\n"
        "    os.rename('made', 'saved')\n"
        "assert set(notes) == {'new files of the job are neither removed nor named: Is a directory'}, notes\n"
        "try:\n"
        "    open('old', 'w')\n"
        "except IsADirectoryError:\n"
        "    os._exit(0)\n"
        "raise AssertionError\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(stash.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=work)
    assert (work / "saved" / "renamed").read_text() == "of the job"
    assert old.read_text() == "what the user had"
