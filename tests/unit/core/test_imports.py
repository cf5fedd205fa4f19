"""torchvision and those who import it work beside a torch that its binaries were not built for."""

import subprocess
import sys
from importlib.util import find_spec

import pytest


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
