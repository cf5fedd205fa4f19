"""Start of every Python process that tests launch by day: PyTorch imports its compiler when something is compiled.

Left alone, a job's first optimizer and its DDP import the compiler, a second of work for each rank, to call functions
that do nothing where nothing is compiled. These stand here; whatever else is asked for is the compiler's own.
"""

import importlib
import sys
from types import ModuleType

COMPILER = "torch._dynamo"


class StandIn(ModuleType):
    """In the place of a module until more of it is used than is known."""

    def __init__(self, name, **known):
        super().__init__(name)
        self.__dict__.update(known)

    def __getattr__(self, name):
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)  # somebody goes through all modules
        if isinstance(sys.modules.get(COMPILER), StandIn):
            del sys.modules[COMPILER]
        return getattr(importlib.import_module(self.__name__), name)


class BesideTorch:
    """Puts it there as soon as torch is imported, and not before."""

    def find_spec(self, name, *_):
        if name == "torch":
            sys.meta_path.remove(self)
            sys.modules[COMPILER] = StandIn(
                COMPILER,
                disable=lambda function=None, *_, **__: function or (lambda each: each),
                graph_break=lambda *_, **__: None,
                utils=StandIn(f"{COMPILER}.utils", get_optimize_ddp_mode=lambda: "ddp_optimizer"),
                trace_rules=StandIn(f"{COMPILER}.trace_rules", clear_lru_cache=lambda: None),
            )


sys.meta_path.insert(0, BesideTorch())
