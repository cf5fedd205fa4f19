"""What reads needs no PyTorch, nor any other package that a plain install lacks; what trains says what is missing."""

import shutil
import sys
from pathlib import Path

import pytest
import test_golden_commands as goldens
from commands import run
from test_golden_commands import folder

__all__ = ["folder"]
ROOT = Path(__file__).resolve().parents[3]
READERS = (
    "show w.watch.jsonl",
    "show f.fix.json",
    "report w.watch.jsonl -o out.html",
    "report f.fix.json -o out.html",
    "report rent.plan.json -o out.html",
)


def test_what_the_golden_commands_do_not_read_needs_no_torch_either(folder):
    for kind in ("watch.jsonl", "fix.json"):
        shutil.copy(ROOT / f"tests/golden/schema-1.{kind}", folder / f"{kind[0]}.{kind}")
    for words in READERS:
        assert "exit code 0\n" in goldens.transcript(words, folder), words


@pytest.mark.parametrize(
    ("words", "package"),
    [
        ("lab dataset make images data --count 3", "pillow"),
        ("profile --workload resnet18", "torchvision"),
        ("profile --workload bert_base_qa", "transformers"),
    ],
)
def test_what_is_missing_is_named_by_its_package(folder, words, package):
    text = goldens.transcript(words, folder)
    assert "exit code 2\n" in text
    assert f"needs {package}, which is not installed: type `pip install {package}" in text


@pytest.fixture
def without_scipy(monkeypatch):
    """Before ``folder``, which hides what is lacking."""
    monkeypatch.setattr(goldens, "LACKING", (*goldens.LACKING, "scipy"))


def test_only_schedules_and_fits_need_scipy(without_scipy, folder):
    verbs = {words.split()[0]: words for words in goldens.COMMANDS.values()}
    assert {"show", "compare", "check", "recommend", "whatif", "spot"} <= verbs.keys()
    for verb, words in verbs.items():
        text = goldens.transcript(words, folder)
        lacks = (
            "error: stash schedule needs scipy, which is not installed: type `pip install scipy`"
        )
        assert (lacks in text) is (verb == "schedule"), text
        assert "Traceback" not in text


@pytest.fixture
def bare_python(tmp_path):
    """A Python that has nothing but its own library."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    return python


@pytest.mark.parametrize("verb", ["profile", "fix", "watch"])
def test_the_job_s_python_is_asked_for_torch_before_anything_starts(
    bare_python,
    tmp_path,
    monkeypatch,
    capsys,
    verb,
):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch\n")
    launcher = tmp_path / "bin" / "launch"
    launcher.write_text(f"#!{bare_python}\n")
    launcher.chmod(0o755)
    for program in (bare_python, launcher):
        assert run(monkeypatch, verb, "--", str(program), "train.py") == 2
        sentence = f"train.py needs PyTorch 2.4 or newer, and {bare_python} has none: type `{bare_python} -m pip"
        assert sentence in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.glob("*.json*"))


def test_an_old_torch_is_named_and_an_unknown_one_is_left_to_the_job(tmp_path):
    from stash.core.errors import UserError
    from stash.measure.launcher.job import require_torch

    python = tmp_path / "python"
    for version in ("2.3.1", "1.13.0+cu117"):
        python.write_text(f"#!/bin/sh\necho found {version}\n")
        python.chmod(0o755)
        with pytest.raises(
            UserError, match=rf"has {version.replace('+', '.')}: type .* install 'torch>=2\.4'`"
        ):
            require_torch("train.py", str(python))
    for answer in ("echo found 2.4.0a0+nv", "echo found 10.0", "exit 1", "echo hello"):
        python.write_text(f"#!/bin/sh\n{answer}\n")
        require_torch("train.py", str(python))
    require_torch("train.py", str(tmp_path / "nothing"))
