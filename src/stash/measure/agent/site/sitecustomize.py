"""Start Stash's agent in every Python process of a profiled job, then run the user's own sitecustomize.

Python imports ``sitecustomize`` from ``PYTHONPATH`` before any script. Nothing here imports torch: the
agent only installs an import hook, and only while the variable STASH_ORDERS names the orders, or STASH_ATTACHABLE
lets ``stash watch --attach`` in later.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_STASH = os.path.abspath(os.path.join(_HERE, *[os.pardir] * 3))


def _start_agent(begin: str = "start") -> None:
    """With the Stash that lies here, whatever this interpreter has; in no way is it to find more than its own."""
    try:
        _load_stash()
        from stash.measure.agent import boot
    except Exception as error:  # an interpreter that Stash does not support has a syntax of its own
        for name in [name for name in sys.modules if name.partition(".")[0] == "stash"]:
            del sys.modules[name]
        print(f"stash: the agent cannot start in {sys.executable}: {error}", file=sys.stderr)
        return
    getattr(boot, begin)()


def _load_stash() -> None:
    """Make ``stash`` importable from its place, without the folder around it on the path."""
    file = os.path.join(_STASH, "__init__.py")
    spec = importlib.util.spec_from_file_location(
        "stash", file, submodule_search_locations=[_STASH]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["stash"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["stash"])


def _chain_to_users_sitecustomize() -> None:
    paths = [p for p in sys.path if os.path.abspath(p or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if os.environ.get("STASH_ORDERS"):
    _start_agent()
elif os.environ.get("STASH_ATTACHABLE"):
    _start_agent("wait_for_watcher")
_chain_to_users_sitecustomize()
