"""Which server keeps which parameters: whole tensors, so that the servers carry about the same number of bytes.

Whole, because an optimizer may look at a tensor as one (its norm, its rows); the largest tensor is therefore what
limits how even the shares are. Knows names and sizes.
"""

from __future__ import annotations

from collections.abc import Mapping

from stash.base.errors import UserError


def shares(sizes: Mapping[str, int], servers: int) -> tuple[tuple[str, ...], ...]:
    """The names that each of ``servers`` keeps, in the model's order; ``sizes`` in bytes. Raises UserError.

    Largest first, to whoever has least (Graham, 1969): at most a third more than the evenest shares have.
    """
    if servers < 1 or servers > len(sizes):
        raise UserError(
            f"{servers} servers cannot share {len(sizes)} parameters, which stay whole; take 1 to {len(sizes)}"
        )
    load = [0] * servers
    home: dict[str, int] = {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        least = min(range(servers), key=lambda server: (load[server], server))
        home[name] = least
        load[least] += max(1, sizes[name])
    return tuple(tuple(name for name in sizes if home[name] == server) for server in range(servers))
