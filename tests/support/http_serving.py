"""A real HTTP server on loopback that ends with its test: no thread of a request outlives it, none prints."""

import http.server
import sys
import threading
from contextlib import contextmanager


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = False  # closing waits for requests

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)
        self.failed = []

    def handle_error(self, request, client_address):
        error = sys.exc_info()[1]
        if error is not None and not isinstance(
            error, ConnectionError
        ):  # a client may leave before its answer
            self.failed.append(error)


@contextmanager
def serving(handler):
    """The server's address; fails if a request did."""
    handler.log_message = lambda *words: None
    server = _Server(handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="test's HTTP server")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert server.failed == []
