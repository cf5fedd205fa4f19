"""An emulated cluster with known truth: namespaces as hosts, shaped links, emulated accelerators.

``with Testbed(nodes=2, network="1gbit") as bed: bed.run([...], node=1)``. Knows nothing of profiles and
attribution: what is measured on a testbed is measured by the same code as anywhere else.
"""

from __future__ import annotations

from stash.lab.testbed.bed import Started, Testbed

__all__ = ["Started", "Testbed"]
