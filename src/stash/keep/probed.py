"""A saved probe's links put into a profile's hosts, machine by machine.

Hosts are matched by hostname, and by order where several nodes have the same one (a testbed's). What the probe
says of a machine's identity is not taken: the profile looked at it itself, and later.
"""

from __future__ import annotations

from collections import defaultdict

from stash.base.errors import UserError
from stash.base.records import Links, Probe, Profile


def links_by_hostname(probe: Probe) -> dict[str, list[Links]]:
    """The measured links of each hostname, in the order of the nodes."""
    found: dict[str, list[Links]] = defaultdict(list)
    for host in probe.hosts:
        if host.links is not None:
            found[host.hostname].append(host.links)
    return dict(found)


def check_probed(probe: Probe, path: str, hostname: str) -> None:
    """Raise UserError when the probe saved at ``path`` measured no link of the machine ``hostname``."""
    measured = links_by_hostname(probe)
    if not measured:
        raise UserError(f"--probe {path} holds no measured link; probe again without --no-measure")
    if hostname not in measured:
        raise UserError(
            f"--probe {path} is of {', '.join(sorted(measured))}, not of this machine ({hostname}); probe this one "
            f"with `stash probe -o {hostname}.host.json`"
        )


def check_of_hosts(probe: Probe, path: str, profile: Profile, of: str) -> None:
    """Raise UserError when the probe saved at ``path`` measured no host of the profile saved at ``of``."""
    measured, hosts = links_by_hostname(probe), {host.hostname for host in profile.hosts}
    if not measured:
        raise UserError(f"--probe {path} holds no measured link; probe again without --no-measure")
    if not hosts & measured.keys():
        raise UserError(
            f"--probe {path} is of {', '.join(sorted(measured))}, and {of} of {', '.join(sorted(hosts))}: give the "
            "probe of the machines that were profiled"
        )


def with_links(profile: Profile, probe: Probe) -> Profile:
    """``profile`` with the probe's links in those hosts that it knows, and a note naming those that it does not."""
    left = {name: list(links) for name, links in links_by_hostname(probe).items()}
    hosts, unknown = [], []
    for host in profile.hosts:
        if left.get(host.hostname):
            hosts.append(host.model_copy(update={"links": left[host.hostname].pop(0)}))
        else:
            hosts.append(host)
            unknown.append(host.hostname)
    notes = profile.notes
    if unknown:
        notes = (
            *notes,
            f"the links of {', '.join(unknown)} are unknown: the probe of {probe.created} did not measure them",
        )
    return profile.model_copy(update={"hosts": tuple(hosts), "notes": notes})
