"""Imports that need help: packages that not everybody has, modules lent to a job's interpreter, torchvision beside a
CPU build of torch."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from stash.core.errors import UserError, one_line


def require_package(module: str, purpose: str, package: str = "", instead: str = "") -> Any:
    """The module; raises UserError that says what to install.

    ``package`` is how pip is told of it, if not by the module's name; ``instead`` is what else could be typed.
    """
    top = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or top).partition(".")[0] == top:
            raise missing_package(package or top, purpose, instead) from None
        raise UserError(
            f"{purpose} needs {package or top}, which cannot be imported: {one_line(error)}"
        ) from None


def missing_package(package: str, purpose: str, instead: str = "") -> UserError:
    """What to tell the user; ``package`` is how pip is told of it, more words than one perhaps."""
    answer = f"type `pip install {package}`" + (f", or {instead}" if instead else "")
    return UserError(
        f"{purpose} needs {package.split(maxsplit=1)[0]}, which is not installed: {answer}"
    )


def require_torchvision(purpose: str) -> None:
    """Raise UserError where torchvision is missing, importing nothing.

    It is to be installed beside the torch that is there: alone, pip would replace that by the newest.
    """
    if find_spec("torchvision") is not None:
        return
    try:
        beside = f" torch=={version('torch').partition('+')[0]}"
    except PackageNotFoundError:
        beside = ""
    raise missing_package(f"torchvision{beside}", purpose)


# Modules that the agent needs in a job's interpreter which may lack them are taken from where Stash itself is
# installed. That folder is on the interpreter's path only for the import, since a job whose environment is another
# must not find there what it was not given. Whether what is found fits the interpreter shows when it is imported.

_HOME = str(Path(__file__).resolve().parents[2])


def import_borrowed(name: str) -> ModuleType:
    """The module of that name, the interpreter's own if it has one; raises ImportError if there is none."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        if _HOME in sys.path:
            raise
    sys.path.append(_HOME)
    try:
        return import_module(name)
    finally:
        sys.path.remove(_HOME)


# Wheels of torchvision on PyPI are built for CUDA, so next to a CPU-only torch their compiled extension cannot be
# loaded. Never imports torchvision itself, and imports torch only when called.

# torchvision/csrc/ops/nms.cpp and csrc/ops/quantized/cpu/qnms_kernel.cpp; these are the operators that
# torchvision/_meta_registrations.py refers to even when the extension is missing.
_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_declared: list[Any] = []  # A Library that is collected takes its operators with it.


def prepare_torchvision() -> None:
    """Make ``import torchvision`` possible; call it just before that import, as often as you like.

    The symptom it removes is ``RuntimeError: operator torchvision::nms does not exist``, raised by
    ``import torchvision`` and by everything that imports it when it is installed (transformers,
    lightning). torchvision forgives an extension that cannot be loaded, but then attaches shape
    functions to operators only the extension defines. Declaring their schemas is enough: models and
    transforms are plain Python. What stays missing is what the extension really does: non-maximum
    suppression, the other ``torchvision.ops`` kernels, and the JPEG decoder (use Pillow).

    Does nothing when torchvision is absent, when its extension loads, or when the operators exist.
    """
    # Not importlib.util: import hooks must not see this.
    package = PathFinder.find_spec("torchvision")
    if package is None or not package.submodule_search_locations:
        return
    import torch

    missing = [name for name in _SCHEMAS if not hasattr(torch.ops.torchvision, name)]
    if not missing or any(_loads(Path(folder)) for folder in package.submodule_search_locations):
        return
    library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in missing:
        library.define(_SCHEMAS[name])
    _declared.append(library)


def _loads(package: Path) -> bool:
    """True if torchvision's compiled operators could be loaded, which also registers them."""
    import torch

    operators: Any = torch.ops
    for extension in sorted(package.glob("_C*")):
        try:
            operators.load_library(str(extension))
        except (
            ImportError,
            OSError,
        ):  # Built for another torch: a shared library or symbol is missing.
            continue
        return True
    return False
