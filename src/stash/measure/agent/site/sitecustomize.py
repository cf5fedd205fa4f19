"""Start Stash's agent in every Python process of a profiled job, then run the user's own sitecustomize.

Python imports ``sitecustomize`` from ``PYTHONPATH`` before any script. Nothing here imports torch: the
agent only installs an import hook, and only while the variable STASH_ORDERS names the orders.
"""

import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _start_agent() -> None:
    package_parent = os.path.abspath(os.path.join(_HERE, *[os.pardir] * 4))
    try:
        from stash.measure.agent import boot
    except ImportError:
        sys.path.append(package_parent)
        try:
            from stash.measure.agent import boot
        except ImportError as error:
            print(f"stash: the agent cannot start in {sys.executable}: {error}", file=sys.stderr)
            return
    boot.start()


def _chain_to_users_sitecustomize() -> None:
    paths = [p for p in sys.path if os.path.abspath(p or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if os.environ.get("STASH_ORDERS"):
    _start_agent()
_chain_to_users_sitecustomize()
