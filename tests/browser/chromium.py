"""Debian's Chromium without a screen, driven through a pipe: pages, their console, their requests, keys.

Speaks the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/) over two file descriptors, so that
no port is opened and no library is needed.
"""

import json
import os
import select
import shutil
import subprocess
import time

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
_PATIENCE = 60.0


class PageLeftError(Exception):
    """The page went elsewhere, or away, while it was asked."""


class Chromium:
    """One browser with one page; what its console said and what it asked the network for are kept."""

    def __init__(self, folder):
        assert CHROMIUM is not None
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        flags = [
            *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
            *(
                "--disable-background-networking",
                f"--user-data-dir={folder}",
                "--remote-debugging-pipe",
            ),
        ]
        command = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, CHROMIUM, *flags],
            pass_fds=(to_read, to_write),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read), os.close(to_write)
        self._buffer, self._number, self.events = b"", 0, []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def close(self):
        self._process.terminate()
        self._process.wait(10)
        os.close(self._read), os.close(self._write)

    def load_page(self, path, width=1000, height=800, dark=False):
        """Load a file in a window of this size, and wait until all of it is there."""
        self.events = []
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media="", features=[scheme])
        self._call("Page.navigate", url=path.as_uri())
        self._until(lambda event: event["method"] == "Page.loadEventFired")

    def resize(self, width, height=800):
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def print_media(self):
        """As if the page were printed."""
        self._call("Emulation.setEmulatedMedia", media="print", features=[])

    def run(self, expression):
        """The value of a JavaScript expression on the page."""
        found = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key):
        """A key that a person presses: ``Tab``, ``Enter``, ``ArrowDown``."""
        codes = {"Tab": 9, "Enter": 13, "ArrowDown": 40}
        shared = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        self._call(
            "Input.dispatchKeyEvent",
            type="keyDown",
            **shared,
            **({"text": "\r"} if key == "Enter" else {}),
        )
        self._call("Input.dispatchKeyEvent", type="keyUp", **shared)

    @property
    def requests(self):
        """Addresses that were asked for since the page was opened."""
        self._call("Runtime.evaluate", expression="1")
        found = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in found]

    @property
    def complaints(self):
        """What the console said, and exceptions that were not caught."""
        self._call("Runtime.evaluate", expression="1")
        names = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event["params"] for event in self.events if event["method"] in names]

    def _call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if hasattr(self, "_session") and not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda found, number=self._number: found.get("id") == number)
        if "navigated or closed" in str(answer.get("error")):
            raise PageLeftError(answer["error"])
        assert "error" not in answer, answer
        return answer["result"]

    def _until(self, wanted):
        """The first message that is wanted; events on the way are kept."""
        end = time.monotonic() + _PATIENCE
        while True:
            while b"\0" in self._buffer:
                text, _, self._buffer = self._buffer.partition(b"\0")
                found = json.loads(text)
                if "method" in found:
                    self.events.append(found)
                if ("method" in found or "id" in found) and _is(wanted, found):
                    return found
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser did not answer"
            self._buffer += os.read(self._read, 2**20)


def _is(wanted, found):
    return bool(wanted({"method": "", **found}))
