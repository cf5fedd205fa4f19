"""Questions to a metadata service, on loopback."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from http_serving import serving

from stash.measure.host import cloud


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
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
def service_url() -> Iterator[str]:
    with serving(_Handler) as address:
        yield address


def test_a_question_goes_straight_to_the_service_with_its_headers(service_url: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert cloud.over_http(f"{service_url}/type?v=1", {"Metadata": "true"}, "PUT", 5.0) == "PUT /type?v=1 true"


def test_redirected_late_and_missing_answers_are_errors_of_the_system(service_url: str) -> None:
    with pytest.raises(OSError, match="302"):
        cloud.over_http(f"{service_url}/moved", {}, "GET", 5.0)
    with pytest.raises(TimeoutError):
        cloud.over_http(f"{service_url}/late", {}, "GET", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    with pytest.raises(OSError, match="refused"):
        cloud.over_http(f"http://127.0.0.1:{port}/", {}, "GET", 5.0)


def test_a_service_that_does_not_speak_http_is_an_error_of_the_system() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def mumble() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail ready\r\n\r\n")

        thread = threading.Thread(target=mumble)
        thread.start()
        with pytest.raises(OSError, match="HTTP"):
            cloud.over_http(f"http://127.0.0.1:{server.getsockname()[1]}/", {}, "GET", 5.0)
        thread.join()
