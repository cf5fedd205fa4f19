"""Where Stash's options end and the job's words begin."""

from pathlib import Path

import pytest

from stash.ui.arguments import find_strays, split_command

TAKES = {"--budget": True, "-o": True, "--output": True, "--isolate": False, "--workload": True}


@pytest.mark.parametrize(
    ("line", "own", "kind", "words"),
    [
        ("train.py --lr 0.1", "", "script", "train.py --lr 0.1"),
        (
            "--budget 5 --isolate train.py -o theirs",
            "--budget 5 --isolate",
            "script",
            "train.py -o theirs",
        ),
        ("--budget=5 train.py", "--budget=5", "script", "train.py"),
        ("-o out.json -m pkg.mod --budget 9", "-o out.json", "module", "pkg.mod --budget 9"),
        (
            "--isolate -- accelerate launch train.py",
            "--isolate",
            "command",
            "accelerate launch train.py",
        ),
        (
            "--workload resnet18 -- --image-size 64",
            "--workload resnet18",
            "command",
            "--image-size 64",
        ),
        ("--isolate", "--isolate", "none", ""),
    ],
)
def test_options_before_the_target_are_ours_and_all_after_it_is_the_jobs(line, own, kind, words):
    found = split_command(line.split(), TAKES)
    assert (list(found.own), found.kind, list(found.words)) == (own.split(), kind, words.split())


PARSES = """
import argparse
from beside import more
parser = argparse.ArgumentParser()
parser.add_argument("--budget-of-epochs"), parser.add_argument('-o'), more(parser)
output = 1
"""


@pytest.mark.parametrize(
    ("line", "notes"),
    [
        ("train.py -o x.json", []),  # it has one
        ("train.py -o x.stash.json", ["-o"]),  # whatever it has: only Stash writes profiles
        ("train.py --output x.json", []),  # a field of this name may be an option
        ("train.py --output=x.stash.json", ["--output"]),
        ("train.py --budget 60", []),  # argparse takes it for --budget-of-epochs
        ("train.py --isolate --isolate --lr 1", ["--isolate"]),
        ("train.py --workload a --isolate", ["--isolate"]),  # the file beside has the first
        ("plain.py -o x.json --budget=60", ["-o", "--budget"]),
        ("--isolate plain.py", []),
        ("plain.py", []),
        ("plain.py -h", []),
        ("gone.py -o x.json", []),
        ("-m pkg.mod -o x.json", []),
        ("-m pkg.mod -o x.stash.json", ["-o"]),
        ("-- torchrun train.py --isolate -o x.stash.json", ["-o"]),
    ],
)
def test_an_option_of_ours_after_the_job_is_told_only_where_the_job_cannot_have_it(
    line, notes, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(PARSES)
    Path("alone").mkdir()
    Path("alone/plain.py").write_text("import torch\n")
    Path("beside.py").write_text("def more(parser):\n    parser.add_argument('--workload')\n")
    assert (
        find_strays(
            split_command(line.replace("plain.py", "alone/plain.py").split(), TAKES), (*TAKES, "-h")
        )
        == notes
    )
