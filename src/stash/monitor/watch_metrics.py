"""A watched run as metrics: OpenMetrics 1.0, or Prometheus' older text where the scraper asks for that.

Served by the watcher alone, on loopback, and only if asked for. No arguments, paths or environment are in it: of the
job its name without its folder, and what is measured. Each family's meaning is in ``docs/how-to/watch.md``.
"""

from __future__ import annotations

import http.server
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from stash.core.errors import UserError
from stash.monitor.records import Alert, Header, RecordLine, Window
from stash.report.openmetrics import MetricFamily, format_exposition

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
FAMILIES: Mapping[str, tuple[str, str]] = {
    "stash_run": ("info", "What is watched"),
    "stash_steps": ("counter", "Optimizer steps that windows hold"),
    "stash_exposed_seconds": ("counter", "Time of all steps so far by what exposed it"),
    "stash_rank_seconds": (
        "counter",
        "Each rank's own time by stage; above 64 ranks the slowest 8",
    ),
    "stash_straggler_seconds": (
        "gauge",
        "What a rank takes longer than the median of the others, a step",
    ),
    "stash_step_seconds": ("gauge", "A step of the last window"),
    "stash_baseline_ratio": ("gauge", "A step of the last window over the baseline's"),
    "stash_last_step_timestamp_seconds": ("gauge", "Unix time at which the last window ended"),
    "stash_alerts": ("counter", "Alerts that have begun, by what they are about"),
    "stash_alerts_open": ("gauge", "Alerts that have not ended"),
}
"""Name (without ``_total`` and ``_info``): type, meaning."""


Samples = list[tuple[dict[str, str], float]]
"""Labels and values of one family."""


class Metrics:
    """Sums up the lines of a record, for whoever scrapes them."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._last: Window | None = None
        self._steps = 0
        self._exposed = defaultdict[str, float](float)
        self._counted = defaultdict[str, float](float)
        """The most of each so far: a window's contention may be negative, and a counter that falls was set back."""
        self._ranks = defaultdict[tuple[int, str], float](float)
        self._begun = Counter[str]()
        self._open: set[int] = set()

    def receive_line(self, line: RecordLine) -> None:
        """Count a line."""
        if isinstance(line, Header):
            self._header = line
        elif isinstance(line, Window):
            taken = line.last_step - line.first_step + 1
            self._last = line
            self._steps += taken
            for name, seconds in line.stalls.items():
                if seconds is not None:
                    self._exposed[name] += seconds * taken
                    self._counted[name] = max(self._counted[name], self._exposed[name])
            for rank, stages in line.ranks.items():
                for stage, seconds in stages.items():
                    self._ranks[rank, stage] += seconds * taken
        elif isinstance(line, Alert):
            if line.ended:
                self._open.discard(line.number)
            else:
                self._begun[line.stall or line.what.replace(" ", "_")] += 1
                self._open.add(line.number)

    def text(self, openmetrics: bool = True) -> str:
        """All families, in one of the two formats."""
        families = (
            MetricFamily(name, FAMILIES[name][1], samples, FAMILIES[name][0])
            for name, samples in self._samples().items()
        )
        return format_exposition(families, openmetrics)

    def _samples(self) -> dict[str, Samples]:
        """By family; copies of what a further line may change meanwhile."""
        header, last = self._header, self._last
        facts = {
            "job": header.job.rpartition("/")[2],
            "ranks": str(header.ranks or ""),
            "nodes": str(header.nodes),
            "device": header.device or "",
            "version": header.stash_version,
        }
        found: dict[str, Samples] = {
            "stash_run": [(facts, 1)],
            "stash_steps": [({}, self._steps)],
            "stash_exposed_seconds": [
                ({"stall": name}, value) for name, value in list(self._counted.items())
            ],
            "stash_rank_seconds": [
                ({"rank": str(rank), "stage": stage}, value)
                for (rank, stage), value in sorted(self._ranks.items())
                if last is None or rank in last.ranks
            ],
        }
        if last is not None:
            found["stash_straggler_seconds"] = [
                ({"rank": str(each.rank), "stage": each.stage}, each.seconds)
                for each in last.stragglers
            ]
            found["stash_step_seconds"] = [({}, last.step_seconds)]
            if known := header.baseline_stalls.get("step"):
                now = last.step_seconds - (last.stalls.get("other") or 0.0)
                found["stash_baseline_ratio"] = [({}, now / known)]
            found["stash_last_step_timestamp_seconds"] = [({}, last.began + last.seconds)]
        found["stash_alerts"] = [
            ({"what": name}, count) for name, count in list(self._begun.items())
        ]
        found["stash_alerts_open"] = [({}, len(self._open))]
        return found


_PATIENCE = 5.0
"""Seconds for which a connection may say nothing; others are served meanwhile."""


class MetricsServer(Metrics):
    """Serves them on 127.0.0.1; raises UserError if the port is taken."""

    def __init__(self, port: int, header: Header) -> None:
        super().__init__(header)
        metrics = self

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = _PATIENCE

            def do_GET(self) -> None:
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(404, "metrics are at /metrics")
                    return
                openmetrics = "application/openmetrics-text" in self.headers.get("Accept", "")
                body = metrics.text(openmetrics).encode()
                self.send_response(200)
                self.send_header("Content-Type", OPENMETRICS if openmetrics else TEXT)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        try:
            self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
            self._server.block_on_close = False
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise UserError(f"--metrics {port}: {why}; choose another port") from None
        threading.Thread(
            target=self._server.serve_forever, daemon=True, name="stash metrics"
        ).start()

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
