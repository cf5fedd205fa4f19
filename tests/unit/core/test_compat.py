"""torchvision and those who import it work beside a torch that its binaries were not built for."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PREPARE = (
    "import sys; from stash.core.imports import prepare_torchvision as p; p(); p(); "
    "assert 'torchvision' not in sys.modules; "
)


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


@pytest.mark.parametrize(
    "use",
    [
        "import torchvision.transforms.v2, torchvision.models; torchvision.models.get_model('squeezenet1_0')",
        pytest.param("import transformers; transformers.BertForQuestionAnswering", marks=pytest.mark.slow),
        pytest.param("import lightning", marks=pytest.mark.slow),
    ],
)
def test_imports_work_once_prepared(use: str) -> None:
    if find_spec(use.split()[1].split(".", maxsplit=1)[0].rstrip(";")) is None:
        pytest.skip("not installed")
    run = python(PREPARE + use)
    assert run.returncode == 0, run.stderr


def test_a_torchvision_that_already_works_is_left_alone() -> None:
    declare = (
        "import torch; lib = torch.library.Library('torchvision', 'DEF'); "
        "[lib.define(f'{n}(Tensor a, Tensor b, float c) -> Tensor') for n in ('nms', 'qnms')]; "
    )
    run = python(declare + PREPARE + "import stash.core.imports; assert stash.core.imports._declared == []")
    assert run.returncode == 0, run.stderr


def test_an_extension_that_loads_is_trusted(tmp_path: Path) -> None:
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "_C.so").write_bytes(b"")
    code = (
        "import sys, torch, stash.core.imports as c; sys.path.insert(0, {root!r}); seen = []; "
        "torch.ops.load_library = seen.append; c.prepare_torchvision(); "
        "assert seen == [{root!r} + '/torchvision/_C.so'] and c._declared == []"
    )
    run = python(code.format(root=str(tmp_path)))
    assert run.returncode == 0, run.stderr


def test_without_torchvision_nothing_happens() -> None:
    code = "import sys, stash.core.imports as c; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]; "
    run = python(code + "c.prepare_torchvision(); assert 'torch' not in sys.modules and c._declared == []")
    assert run.returncode == 0, run.stderr
