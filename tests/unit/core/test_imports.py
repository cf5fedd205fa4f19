"""torchvision and those who import it work beside a torch that its binaries were not built for."""

import subprocess
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from stash.core import imports


@pytest.mark.slow  # torchvision itself is imported so by all tests of the zoo
@pytest.mark.parametrize(
    "use", ["import transformers; transformers.BertForQuestionAnswering", "import lightning"]
)
def test_imports_work_once_prepared(use):
    if find_spec(use.split()[1].rstrip(";")) is None:
        pytest.skip("not installed")
    code = f"import sys; from stash.core.imports import prepare_torchvision as p; p(); {use}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    ("installed", "known", "loads", "declared"),
    [
        (True, (), False, ["nms", "qnms"]),
        (True, ("nms",), False, ["qnms"]),
        (True, ("nms", "qnms"), False, []),
        (True, (), True, []),
        (False, (), False, []),
    ],
)
def test_only_operators_that_nothing_else_declares_are_declared(
    installed,
    known,
    loads,
    declared,
    tmp_path,
    monkeypatch,
):
    (tmp_path / "_C.so").touch()
    made = []

    def load_library(file):
        if not loads:
            raise OSError(f"{file}: undefined symbol")

    def find(name):
        spec = ModuleSpec("torchvision", None, is_package=True)
        spec.submodule_search_locations = [str(tmp_path)]
        return spec if installed else None

    operators = SimpleNamespace(
        torchvision=SimpleNamespace(**dict.fromkeys(known)), load_library=load_library
    )
    library = SimpleNamespace(define=lambda schema: made.append(schema.partition("(")[0]))
    torch = SimpleNamespace(
        ops=operators, library=SimpleNamespace(Library=lambda name, kind: library)
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(imports, "PathFinder", SimpleNamespace(find_spec=find))
    monkeypatch.setattr(imports, "_declared", [])
    imports.prepare_torchvision()
    assert made == declared
