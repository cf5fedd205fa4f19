"""Which cloud a machine is rented from, and as what: firmware first, then one question to that cloud's metadata.

A metadata service is asked only on a machine whose firmware names its cloud, and only with the user's consent: on
anyone's own machine those addresses belong to others. Knows each cloud's address, headers and form of answer.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from stash.measure.linux.procfs import read_text

TIMEOUT_SECONDS = 1.0

Fetch = Callable[[str, Mapping[str, str], str, float], str]
"""(url, headers, method, timeout in seconds) -> body; raises OSError if there is no good answer."""


class ServiceAnswer(NamedTuple):
    """Whatever a service answered, good or not."""

    status: int
    body: str
    headers: Mapping[str, str] = {}
    """By name in small letters."""


class Question(NamedTuple):
    url: str
    headers: Mapping[str, str] = {}
    method: str = "GET"


_MAX_BYTES = 2**16
# The services are reached by number: looking up a name could hang longer than the timeout.
LINK_LOCAL = "http://169.254.169.254"
# docs.aws.amazon.com, EC2 user guide, "Use the Instance Metadata Service" (version 2: a token first)
AWS_TOKEN = Question(
    f"{LINK_LOCAL}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT"
)
_AWS_TYPE = f"{LINK_LOCAL}/latest/meta-data/instance-type"
QUESTIONS: Mapping[str, Question] = {
    # cloud.google.com, "About VM metadata"; the answer is projects/NUMBER/machineTypes/NAME
    "gcp": Question(
        f"{LINK_LOCAL}/computeMetadata/v1/instance/machine-type", {"Metadata-Flavor": "Google"}
    ),
    # learn.microsoft.com, "Azure Instance Metadata Service"
    "azure": Question(
        f"{LINK_LOCAL}/metadata/instance/compute/vmSize?api-version=2021-02-01&format=text",
        {"Metadata": "true"},
    ),
    # docs.oracle.com, "Getting Instance Metadata" (version 2)
    "oracle": Question(f"{LINK_LOCAL}/opc/v2/instance/shape", {"Authorization": "Bearer Oracle"}),
    # alibabacloud.com, ECS user guide, "Instance metadata items"
    "alibaba": Question("http://100.100.100.200/latest/meta-data/instance/instance-type"),
}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{1,63}")


def instance_type(cloud: str, fetch: Fetch) -> str | None:
    """The instance type as ``cloud``'s service names it; ``None`` without an answer that looks like one."""
    try:
        if cloud == "aws":
            token = _fetch_answer(AWS_TOKEN, fetch)
            answer = _fetch_answer(Question(_AWS_TYPE, {"X-aws-ec2-metadata-token": token}), fetch)
        elif cloud in QUESTIONS:
            answer = _fetch_answer(QUESTIONS[cloud], fetch)
        else:
            return None
    except (OSError, ValueError):
        return None  # switched off, out of reach from a container, or slower than it has any reason to be
    name = answer.rpartition("/")[2] if cloud == "gcp" else answer
    return name if _NAME.fullmatch(name) else None


def _fetch_answer(question: Question, fetch: Fetch) -> str:
    return fetch(question.url, question.headers, question.method, TIMEOUT_SECONDS).strip()


def fetch_over_http(
    url: str, headers: Mapping[str, str], method: str, timeout_seconds: float
) -> str:
    """The body of a good answer; anything else is an OSError."""
    answer = answer_over_http(url, headers, method, timeout_seconds)
    if answer.status != http.client.OK:
        raise OSError(f"{url} answered {answer.status}")
    return answer.body


def answer_over_http(
    url: str, headers: Mapping[str, str], method: str, timeout_seconds: float
) -> ServiceAnswer:
    """Whatever is answered; raises OSError if nothing is.

    Answers are short, direct and never redirected; a proxy would answer for another machine, so none is used.
    """
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=timeout_seconds)
    try:
        connection.request(
            method,
            f"{parts.path}?{parts.query}" if parts.query else parts.path,
            headers=dict(headers),
        )
        response = connection.getresponse()
        named = {name.lower(): value for name, value in response.getheaders()}
        return ServiceAnswer(
            response.status, response.read(_MAX_BYTES).decode(errors="replace"), named
        )
    except http.client.HTTPException as error:
        raise OSError(f"{url} did not answer in HTTP") from error
    finally:
        connection.close()


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


class RentedMachine(NamedTuple):
    """What a machine was rented as; ``source`` says how ``instance`` is known (see ``records.Host``)."""

    cloud: str | None = None
    instance: str | None = None
    source: str | None = None


def find_rental(
    root: Path, fetch: Fetch, *, given: str | None = None, ask_metadata: bool = False
) -> RentedMachine:
    """The cloud and the instance type: as ``given``, else from the firmware, else asked for if that is allowed."""
    facts = read_firmware(root)
    cloud = cloud_of(facts, read_text(root / "sys/hypervisor/uuid"))
    if given:
        return RentedMachine(cloud, given, "given")
    if cloud == "aws" and _NITRO_TYPE.fullmatch(facts.get("product_name", "")):
        return RentedMachine(cloud, facts["product_name"], "dmi")
    named = instance_type(cloud, fetch) if cloud and ask_metadata else None
    return RentedMachine(cloud, named, "metadata" if named else None)


def read_firmware(root: Path) -> dict[str, str]:
    """The DMI fields that can be read; serial number and UUID are for root only."""
    found = ((name, read_text(root / "sys/class/dmi/id" / name)) for name in _FIELDS)
    return {name: value for name, value in found if value is not None}


def cloud_of(facts: dict[str, str], hypervisor_uuid: str | None = None) -> str | None:
    """The cloud that the firmware names, ``None`` if it names none that is known."""
    for field, value, cloud in _RULES:
        if facts.get(field) == value:
            return cloud
    if facts.get("product_serial", "").startswith("GoogleCloud-"):
        return "gcp"
    # EC2 before Nitro calls itself Xen: vendor "Xen", product "HVM domU", BIOS version "4.11.amazon"
    if (hypervisor_uuid or "").lower().startswith("ec2") or facts.get("bios_version", "").endswith(
        ".amazon"
    ):
        return "aws"
    # one may start so by chance, both and alike hardly
    uuid, serial = (facts.get(field, "").lower() for field in ("product_uuid", "product_serial"))
    return "aws" if uuid.startswith("ec2") and uuid == serial else None
