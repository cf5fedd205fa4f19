"""Asking a cloud's own metadata service for the instance type: one short question, to that cloud's address only.

Knows each cloud's address, headers and form of answer. Deliberately does not find out whether it may ask: the
caller does so only with evidence of the cloud in the firmware and the user's consent (``stash.measure.host.cloud``).
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 1.0

Fetch = Callable[[str, Mapping[str, str], str, float], str]
"""(url, headers, method, timeout in seconds) -> body; raises OSError if there is no good answer."""


class ServiceAnswer(NamedTuple):
    """Whatever a service answered, good or not."""

    status: int
    body: str
    headers: Mapping[str, str] = {}
    """By name in small letters."""


AskService = Callable[[str, Mapping[str, str], str, float], ServiceAnswer]
"""As ``Fetch``, for who has to tell answers apart; raises OSError if there is none."""


class Question(NamedTuple):
    url: str
    headers: Mapping[str, str] = {}
    method: str = "GET"


_MOST_BYTES = 2**16
# The services are reached by number: looking up a name could hang longer than the timeout.
LINK_LOCAL = "http://169.254.169.254"
# docs.aws.amazon.com, EC2 user guide, "Use the Instance Metadata Service" (version 2: a token first)
AWS_TOKEN = Question(f"{LINK_LOCAL}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")
_AWS_TYPE = f"{LINK_LOCAL}/latest/meta-data/instance-type"
QUESTIONS: Mapping[str, Question] = {
    # cloud.google.com, "About VM metadata"; the answer is projects/NUMBER/machineTypes/NAME
    "gcp": Question(f"{LINK_LOCAL}/computeMetadata/v1/instance/machine-type", {"Metadata-Flavor": "Google"}),
    # learn.microsoft.com, "Azure Instance Metadata Service"
    "azure": Question(
        f"{LINK_LOCAL}/metadata/instance/compute/vmSize?api-version=2021-02-01&format=text", {"Metadata": "true"}
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
            token = _ask(AWS_TOKEN, fetch)
            answer = _ask(Question(_AWS_TYPE, {"X-aws-ec2-metadata-token": token}), fetch)
        elif cloud in QUESTIONS:
            answer = _ask(QUESTIONS[cloud], fetch)
        else:
            return None
    except (OSError, ValueError):
        return None  # switched off, out of reach from a container, or slower than it has any reason to be
    name = answer.rpartition("/")[2] if cloud == "gcp" else answer
    return name if _NAME.fullmatch(name) else None


def _ask(question: Question, fetch: Fetch) -> str:
    return fetch(question.url, question.headers, question.method, TIMEOUT_SECONDS).strip()


def over_http(url: str, headers: Mapping[str, str], method: str, timeout_seconds: float) -> str:
    """The body of a good answer; anything else is an OSError."""
    answer = answer_over_http(url, headers, method, timeout_seconds)
    if answer.status != http.client.OK:
        raise OSError(f"{url} answered {answer.status}")
    return answer.body


def answer_over_http(url: str, headers: Mapping[str, str], method: str, timeout_seconds: float) -> ServiceAnswer:
    """Answers are short, direct and never redirected; a proxy would answer for another machine, so none is used."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=timeout_seconds)
    try:
        connection.request(
            method, f"{parts.path}?{parts.query}" if parts.query else parts.path, headers=dict(headers)
        )
        response = connection.getresponse()
        named = {name.lower(): value for name, value in response.getheaders()}
        return ServiceAnswer(response.status, response.read(_MOST_BYTES).decode(errors="replace"), named)
    except http.client.HTTPException as error:
        raise OSError(f"{url} did not answer in HTTP") from error
    finally:
        connection.close()
