"""Which cloud a machine is of, and what its metadata service is asked."""

import http.server
import socket
import threading
import time
from pathlib import Path

import pytest
from http_serving import serving
from recorded_tree import known, machine, sources

from stash.measure.host import cloud
from stash.measure.host.cloud import cloud_of
from stash.measure.host.describe import describe


class Service:
    """A metadata service: answers by address, and remembers what it was asked."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []

    def __call__(self, url, headers, method, timeout_seconds):
        self.asked.append((url, dict(headers), method, timeout_seconds))
        answer = self.answers["token" if url.endswith("/token") else "instance"]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("name", "cloud", "instance", "source"),
    [
        ("aws-g4dn.xlarge", "aws", "g4dn.xlarge", "dmi"),
        ("aws-p3.16xlarge", "aws", None, None),
        ("aws-p2.16xlarge", "aws", None, None),
        ("gcp-a2-highgpu-8g", "gcp", None, None),
        ("azure-nc24s-v3", "azure", None, None),
        ("dell-lost-gpu", None, None, None),
        ("vm-cgroup-v2", None, None, None),
        ("container-cgroup-v1", None, None, None),
    ],
)
def test_the_firmware_names_the_cloud_and_no_service_is_asked(
    tmp_path, name, cloud, instance, source
):
    host = known(tmp_path, name)  # asking fails the test
    assert (host.cloud, host.instance, host.instance_source) == (cloud, instance, source)


def test_only_amazons_product_names_are_instance_types(tmp_path):
    description = machine("dell-lost-gpu")
    description["dmi"]["product_name"] = "node.large"
    assert describe(Path("/"), sources=sources(tmp_path, description)).instance is None


def test_what_the_user_says_is_believed_and_no_service_is_asked(tmp_path):
    host = known(tmp_path, "gcp-a2-highgpu-8g", instance="a2-highgpu-8g", ask_metadata=True)
    assert (host.cloud, host.instance, host.instance_source) == ("gcp", "a2-highgpu-8g", "given")
    assert known(tmp_path / "own", "dell-lost-gpu", instance="my-box").instance == "my-box"


@pytest.mark.parametrize(
    ("name", "answer", "instance", "header", "path"),
    [
        (
            "gcp-a2-highgpu-8g",
            "projects/1234/machineTypes/a2-highgpu-8g\n",
            "a2-highgpu-8g",
            {"Metadata-Flavor": "Google"},
            "/computeMetadata/v1/instance/machine-type",
        ),
        (
            "azure-nc24s-v3",
            "Standard_NC24s_v3",
            "Standard_NC24s_v3",
            {"Metadata": "true"},
            "/metadata/instance/compute/vmSize",
        ),
    ],
)
def test_a_cloud_that_the_firmware_names_may_be_asked_for_the_type(
    tmp_path, name, answer, instance, header, path
):
    service = Service(instance=answer)
    host = known(tmp_path, name, fetch=service, ask_metadata=True)
    assert (host.instance, host.instance_source) == (instance, "metadata")
    [(url, headers, method, timeout_seconds)] = service.asked
    assert path in url
    assert (headers, method, timeout_seconds) == (header, "GET", 1.0)


def test_aws_is_asked_for_a_token_first(tmp_path):
    service = Service(token="AQAE==", instance="p3.16xlarge")
    host = known(tmp_path, "aws-p3.16xlarge", fetch=service, ask_metadata=True)
    assert (host.instance, host.instance_source) == ("p3.16xlarge", "metadata")
    assert [(headers, method) for _, headers, method, _ in service.asked] == [
        ({"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT"),
        ({"X-aws-ec2-metadata-token": "AQAE=="}, "GET"),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        TimeoutError("timed out"),
        ConnectionRefusedError(),
        OSError("404"),
        "",
        "<html><body>Please log in</body></html>",
        "not found",
        "x" * 1000,
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ],
)
@pytest.mark.parametrize("name", ["aws-p3.16xlarge", "gcp-a2-highgpu-8g", "azure-nc24s-v3"])
def test_a_service_that_is_late_or_talks_nonsense_leaves_the_type_unknown(tmp_path, name, answer):
    service = Service(token="token", instance=answer)
    host = known(tmp_path, name, fetch=service, ask_metadata=True)
    assert service.asked
    assert (host.instance, host.instance_source) == (None, None)
    assert host.cloud is not None


@pytest.mark.parametrize(
    ("facts", "cloud"),
    [
        ({"sys_vendor": "Amazon EC2", "product_name": "p4d.24xlarge"}, "aws"),
        ({"product_uuid": "EC2E1916-9099-7CAF", "product_serial": "ec2e1916-9099-7caf"}, "aws"),
        ({"product_serial": "GoogleCloud-1A2B"}, "gcp"),
        ({"chassis_asset_tag": "OracleCloud.com"}, "oracle"),
        ({"product_name": "Alibaba Cloud ECS"}, "alibaba"),
        ({"sys_vendor": "Tencent Cloud"}, "tencent"),
        ({"sys_vendor": "DigitalOcean"}, "digitalocean"),
        ({"sys_vendor": "Hetzner"}, "hetzner"),
        ({"sys_vendor": "Dell Inc.", "product_uuid": "ec2e1916-9099-7caf"}, None),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, None),
        ({"sys_vendor": "Google", "product_name": "Eve"}, None),
        ({"sys_vendor": "Oracle Corporation", "product_name": "VirtualBox"}, None),
        ({"sys_vendor": "Xen", "product_name": "HVM domU", "bios_version": "4.11.4"}, None),
        ({}, None),
    ],
)
def test_a_maker_that_also_rents_out_machines_is_no_evidence(facts, cloud):
    assert cloud_of(facts) == cloud


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_PUT(self):
        self.do_GET()

    def do_GET(self):
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/type")
            self.end_headers()
            return
        if self.path == "/late":
            time.sleep(0.5)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{self.command} {self.path} {self.headers['Metadata']}".encode())


@pytest.fixture
def service_url():
    with serving(_Handler) as address:
        yield address


def test_a_question_goes_straight_to_the_service_with_its_headers(service_url, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert (
        cloud.fetch_over_http(f"{service_url}/type?v=1", {"Metadata": "true"}, "PUT", 5.0)
        == "PUT /type?v=1 true"
    )


def test_redirected_late_and_missing_answers_are_errors_of_the_system(service_url):
    with pytest.raises(OSError, match="302"):
        cloud.fetch_over_http(f"{service_url}/moved", {}, "GET", 5.0)
    with pytest.raises(TimeoutError):
        cloud.fetch_over_http(f"{service_url}/late", {}, "GET", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(OSError, match="refused"):
        cloud.fetch_over_http(f"http://127.0.0.1:{port}/", {}, "GET", 5.0)


def test_a_service_that_does_not_speak_http_is_an_error_of_the_system():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def mumble():
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail ready\r\n\r\n")

        thread = threading.Thread(target=mumble)
        thread.start()
        with pytest.raises(OSError, match="HTTP"):
            cloud.fetch_over_http(f"http://127.0.0.1:{server.getsockname()[1]}/", {}, "GET", 5.0)
        thread.join()
