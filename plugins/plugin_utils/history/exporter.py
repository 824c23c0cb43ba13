# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Exports the fleet of today from the history to Prometheus: /metrics and /healthz.

The metrics are built once for each judgement and kept as text, so that a scrape costs only the transfer. docs/observability.md has the
limits: a few series for each node and check, PAIRS for pairs, and labels of at most LABEL characters.

    python -m ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.exporter --results-dir results --port 9469

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import argparse
import hashlib
import signal
import sys
import threading
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import serving
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import current
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError, Store, url_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

if t.TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

PREFIX = "gpufleet_acceptance_"
PORT = 9469
LOOK_S = 15.0
# The most checks of pairs with series of their own, the worst first. A metric counts those that are left out.
PAIRS = 20000
LABEL = 200
OPENMETRICS = "application/openmetrics-text"
ACCEPT = ("text/plain", f"{OPENMETRICS};version=1.0.0")
# Seconds without a successful read of the history after which /healthz fails.
STALE_S = 120.0


class Exporter:
    """Reads the history repeatedly and serves the metrics of the last successful read."""

    def __init__(self, url: str) -> None:
        try:
            import prometheus_client.exposition
        except ImportError as error:
            raise HistoryError(
                "the exporter needs the Python package prometheus_client; install the collection's requirements.txt"
            ) from error
        self._encoders = prometheus_client.exposition
        self._url = url
        self._store: Store | None = None
        self._version: tuple[int, int, int] | None = None
        self._families: list[Metric] = []
        self._texts: dict[str, bytes] = {}
        self._read = 0.0
        self.problem = "the history was not read yet"
        self._lock = threading.Lock()

    def look(self) -> None:
        """Read the history if it has changed. An error is kept in `problem` and shown by the metrics."""
        try:
            if self._store is None:
                self._store = Store(self._url)
            # The version changes every day too, because the fleet of today depends on the day.
            version = (*current.version(self._store), int(time.time() // 86400))
            if version != self._version:
                families = list(_families(current.fleet(self._store)))
                texts = dict(self._encoded(families, accept) for accept in ACCEPT)
                with self._lock:
                    self._families, self._texts, self._version = families, texts, version
            self._read, self.problem = time.time(), ""
        except (RunError, OSError, ValueError) as error:
            self.problem = " ".join(str(error).split())[:500]
            if self._store is not None:
                self._store.close()
            self._store = None

    def _encoded(self, families: list[Metric], accept: str) -> tuple[str, bytes]:
        encode, kind = self._encoders.choose_encoder(accept)
        return kind, encode(t.cast(t.Any, _Shown(families)))

    def metrics(self, accept: str) -> tuple[str, bytes]:
        content_type = ACCEPT[OPENMETRICS in accept]
        kind, _nothing = self._encoded([], content_type)
        with self._lock:
            text = self._texts.get(kind, _nothing)
        own_metrics = "\n".join(
            f"# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} gauge\n{PREFIX}{name} {value}"
            for name, help, value in (
                ("history_up", "Whether the history could be read when it was last looked at.", int(not self.problem)),
                ("history_read_seconds", "When the history was last read, as seconds of the epoch.", round(self._read, 3)),
            )
        )
        return kind, own_metrics.encode() + b"\n" + text

    def healthz(self, _accept: str) -> tuple[str, bytes]:
        if self.problem and time.time() - self._read > STALE_S:
            raise HistoryError(self.problem)
        return "text/plain", b"ok\n"

    def serve(self, address: str, port: int) -> t.Any:
        """Start the server and return it. Raise HistoryError if the port cannot be used."""
        try:
            return serving.serve({"/metrics": self.metrics, "/healthz": self.healthz}, port, address)
        except (OSError, OverflowError) as error:
            raise HistoryError(f"port {port} on {address or 'all addresses'} cannot be had: {error}") from error

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.look()
            stop.wait(LOOK_S)


class _Shown:
    """A collector for the encoders of prometheus_client."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _families(fleet: current.Fleet) -> t.Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    def family(name: str, text: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(PREFIX + name, text, labels=labels)

    of_run = ("run", "partial", "simulated")
    accepted = family("accepted", "Whether a run that says something of today was accepted.", *of_run)
    coverage = family("coverage", "Checks of such a run that were measured or do not apply, of those that it planned.", *of_run)
    judged = family("run_judged_seconds", "When such a run was judged, as seconds of the epoch.", *of_run)
    verdicts = family("verdicts", "Verdicts of such a run.", *of_run, "verdict")
    for run in fleet.runs:
        labels = [run.name, _bool(run.partial), _bool(run.simulated)]
        accepted.add_metric(labels, int(run.accepted))
        coverage.add_metric(labels, run.measured / run.planned if run.planned else 0.0)
        judged.add_metric(labels, run.judged_at)
        for word, count in run.counts.items():
            verdicts.add_metric([*labels, word], count)
    ahead = family("runs_ahead", "Runs that say nothing here, since their controller's clock planned them for after today.")
    ahead.add_metric([], fleet.ahead)
    yield from (accepted, coverage, judged, verdicts, ahead)

    node_verdict = family("node_verdict", "1 at the worst verdict of a node, a group or a switch.", "node", "kind", "verdict", "simulated")
    node_judged = family("node_judged_seconds", "When the last run with it was judged, as seconds of the epoch.", "node")
    of_check = ("node", "stage", "check", "variant")
    check_verdict = family("check_verdict", "1 at the worst verdict of a check on a node and its parts.", *of_check, "verdict")
    value = family("check_value", "The number that this verdict was made of, in its unit.", *of_check, "metric", "unit")
    floor = family("check_floor", "The least, for a time the most, that passes.", *of_check, "metric", "unit")
    regression = family("check_regression", "1 where the last run says that a number became worse than its own past.", *of_check)
    for name, node in fleet.nodes.items():
        node_name = _label(name)
        node_verdict.add_metric([node_name, node.kind, node.verdict, _bool(node.simulated)], 1)
        node_judged.add_metric([node_name], node.judged_at)
        for check, result in node.checks.items():
            labels = [node_name, *map(_label, check)]
            check_verdict.add_metric([*labels, result.verdict], 1)
            of_value = [*labels, _label(result.metric), _label(result.unit)]
            if result.value is not None:
                value.add_metric(of_value, result.value)
            if result.floor is not None:
                floor.add_metric(of_value, result.floor)
            if result.regressed:
                regression.add_metric(labels, 1)
    yield from (node_verdict, node_judged, check_verdict, value, floor, regression)

    of_pair = ("a", "b", "stage", "check", "variant")
    pair_verdict = family("pair_verdict", "1 at the verdict of a check between two nodes or ports.", *of_pair, "verdict")
    pair_value = family("pair_value", "What was measured between them, in its unit.", *of_pair, "metric", "unit")
    every = [(ends, check, result) for ends, results in fleet.pairs.items() for check, result in results.items()]
    every.sort(key=lambda entry: entry[2].badness, reverse=True)
    for (a, b), check, result in every[:PAIRS]:
        labels = [_label(a), _label(b), *map(_label, check)]
        pair_verdict.add_metric([*labels, result.verdict], 1)
        if result.value is not None:
            pair_value.add_metric([*labels, _label(result.metric), _label(result.unit)], result.value)
    left_out = family("pairs_left_out", "Checks of pairs that have no series here, the best ones.")
    left_out.add_metric([], max(0, len(every) - PAIRS))
    yield from (pair_verdict, pair_value, left_out)


def _bool(value: bool) -> str:
    return str(value).lower()


def _label(text: str) -> str:
    """Return a label of at most LABEL characters. Different labels stay different."""
    if len(text) <= LABEL:
        return text
    return f"{text[: LABEL - 9]}~{hashlib.sha256(text.encode('utf-8', 'backslashreplace')).hexdigest()[:8]}"


def main(arguments: t.Sequence[str] | None = None) -> int:
    """Run the exporter as a service until SIGTERM or SIGINT. Return the exit status."""
    parser = argparse.ArgumentParser(prog="exporter", description="The fleet of today for Prometheus, of the history.")
    parser.add_argument("--results-dir", default="results", help="folder with the history, where no URL is given (%(default)s)")
    parser.add_argument("--url-file", help="file with the URL of the history's database")
    parser.add_argument("--address", default="", help="address to answer on; all where none is given")
    parser.add_argument("--port", type=int, default=PORT, help="port to answer on (%(default)s)")
    options = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    try:
        url = ""
        if options.url_file:
            with open(options.url_file, encoding="utf-8") as source:
                url = source.read().strip()
        exporter = Exporter(url_of(options.results_dir, url))
        server = exporter.serve(options.address, options.port)
    except (RunError, OSError) as error:
        print(f"exporter: {error}", file=sys.stderr)
        return 1
    print(f"exporter: answering on port {server.server_port}", flush=True)
    exporter.run(stop)
    server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
