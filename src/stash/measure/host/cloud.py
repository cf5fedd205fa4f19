"""Which cloud a machine is rented from, and as what: evidence from the firmware first, and mostly alone.

Reads the DMI tables in sysfs. A metadata service is asked only on a machine whose firmware names its cloud, and
only with consent: on anyone's own machine those addresses belong to somebody else.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from stash.measure.host.metadata import Fetch, instance_type
from stash.measure.linux.files import text

_AZURE_CHASSIS = "7783-7084-3265-9085-8269-3286-77"
_NITRO_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
_FIELDS = (
    "sys_vendor",
    "product_name",
    "product_serial",
    "product_uuid",
    "bios_vendor",
    "bios_version",
    "chassis_asset_tag",
)
# Field, value, cloud: the rules of cloud-init's tools/ds-identify, where the table says "is". Vendors' names that
# clouds share with hardware or hypervisors of their makers ("Google", "Microsoft Corporation", "Oracle") are not
# evidence. Alibaba and Tencent also name themselves as vendors.
_RULES = (
    ("sys_vendor", "Amazon EC2", "aws"),
    ("bios_vendor", "Amazon EC2", "aws"),
    ("product_name", "Google Compute Engine", "gcp"),
    ("chassis_asset_tag", _AZURE_CHASSIS, "azure"),
    ("chassis_asset_tag", "OracleCloud.com", "oracle"),
    ("product_name", "Alibaba Cloud ECS", "alibaba"),
    ("sys_vendor", "Alibaba Cloud", "alibaba"),
    ("sys_vendor", "Tencent Cloud", "tencent"),
    ("sys_vendor", "DigitalOcean", "digitalocean"),
    ("sys_vendor", "Hetzner", "hetzner"),
    ("sys_vendor", "Vultr", "vultr"),
    ("sys_vendor", "Scaleway", "scaleway"),
    ("sys_vendor", "UpCloud", "upcloud"),
    ("sys_vendor", "Linode", "linode"),
    ("sys_vendor", "Akamai", "linode"),
    ("product_name", "Exoscale", "exoscale"),
)


class Rented(NamedTuple):
    """What a machine was rented as; ``source`` says how ``instance`` is known (see ``records.Host``)."""

    cloud: str | None = None
    instance: str | None = None
    source: str | None = None


def rented(root: Path, fetch: Fetch, *, given: str | None = None, ask_metadata: bool = False) -> Rented:
    """The cloud and the instance type: as ``given``, else from the firmware, else asked for if that is allowed."""
    facts = firmware(root)
    cloud = cloud_of(facts, text(root / "sys/hypervisor/uuid"))
    if given:
        return Rented(cloud, given, "given")
    if cloud == "aws" and _NITRO_TYPE.fullmatch(facts.get("product_name", "")):
        return Rented(cloud, facts["product_name"], "dmi")
    named = instance_type(cloud, fetch) if cloud and ask_metadata else None
    return Rented(cloud, named, "metadata" if named else None)


def firmware(root: Path) -> dict[str, str]:
    """The DMI fields that can be read; serial number and UUID are for root only."""
    found = ((name, text(root / "sys/class/dmi/id" / name)) for name in _FIELDS)
    return {name: value for name, value in found if value is not None}


def cloud_of(facts: dict[str, str], hypervisor_uuid: str | None = None) -> str | None:
    """The cloud that the firmware names, ``None`` if it names none that is known."""
    for field, value, cloud in _RULES:
        if facts.get(field) == value:
            return cloud
    if facts.get("product_serial", "").startswith("GoogleCloud-"):
        return "gcp"
    if _is_xen_of_aws(facts, hypervisor_uuid):
        return "aws"
    return None


def _is_xen_of_aws(facts: dict[str, str], hypervisor_uuid: str | None) -> bool:
    """Instances before Nitro call themselves Xen: vendor "Xen", product "HVM domU", BIOS version "4.11.amazon"."""
    if (hypervisor_uuid or "").lower().startswith("ec2"):
        return True
    if facts.get("bios_version", "").endswith(".amazon"):
        return True
    # one may start so by chance, both and alike hardly
    uuid, serial = (facts.get(field, "").lower() for field in ("product_uuid", "product_serial"))
    return uuid.startswith("ec2") and uuid == serial
