# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines and metrics that a pod shows while its probe works: lines for log collectors besides the frame, metrics for a scraper.

    GPUFLEET_LOG=json            a line of JSON when the probe begins, for each check that is done, and when it ends
    GPUFLEET_METRICS_PORT=8080   /metrics and /healthz on that port, for as long as the pod runs

Both are read from the file into which the probe writes anyway, so the probe does not know of it; and nothing of it can stop the probe. No
text of a tool is shown: what is in the frame is checked by the controller, this is not.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import contextlib
import json
import math
import os
import threading
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import exposition, frame, logline, serving
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import session

LOG, PORT, NODE = "GPUFLEET_LOG", "GPUFLEET_METRICS_PORT", "GPUFLEET_NODE"
POLL_S = 0.5
# So many numbers of one pod are shown at most.
VALUES = 1000


class Telemetry:
    """Watches one request of program/pod.py. `out` is the file descriptor of the log."""

    def __init__(self, request: t.Mapping[str, t.Any], log: bool, port: int | None, node: str, out: int = 1) -> None:
        params = request["params"]
        run = params.get("run") or {}
        self.run = str(run.get("run_id") or "")
        self.stage = str(run.get("stage") or request["probe"])
        self.node = node
        self.planned = len(params.get("checks") or ())
        self._path = session.result_path(params.get("state_dir") or session.default_state_dir(), self.run, self.stage)
        self._log = log
        self._out = out
        self._began = time.time()
        self._file = (0, 0)  # which one, and how much of it is read
        self._seen: set[tuple[str, ...]] = set()
        self._outcomes: collections.Counter[str] = collections.Counter()
        self._values: dict[tuple[str, ...], tuple[float, bool]] = {}
        self._done = False
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._say("probe_begun", logline.INFO, f"{self.stage} begins: {self.planned} checks", checks=self.planned)
        if port is not None:
            self._serve(port)
        self._thread = threading.Thread(target=self._watch, daemon=True, name="telemetry")
        self._thread.start()

    def _serve(self, port: int) -> None:
        pages: dict[str, serving.Page] = {
            "/metrics": lambda _accept: (exposition.TYPE, self.metrics().encode()),
            "/healthz": lambda _accept: ("text/plain", b"ok\n"),
        }
        try:
            self.server = serving.serve(pages, port)
        except (OSError, OverflowError) as error:
            self._say("no_metrics", logline.WARN, f"port {port} cannot be had: {error}", port=port)

    def end(self, answer: t.Mapping[str, t.Any]) -> None:
        """Note that the probe has ended. Nothing is written from now on, so that the frame stands alone."""
        self._over.set()
        self._thread.join()
        with self._lock, contextlib.suppress(Exception):  # the answer is on its way to its frame, whatever becomes of us
            for observation in answer.get("observations") or ():
                self._take(observation)
        self._done = True
        level = logline.WARN if answer.get("fault") or answer.get("state") == "refused" else logline.INFO
        self._say(
            "probe_done", level, f"{self.stage} is done", outcomes=dict(self._outcomes), state=answer.get("state"),
            reason_code=answer.get("reason_code"), seconds=round(time.time() - self._began, 1),
        )  # fmt: skip

    def metrics(self) -> str:
        """Return the progress and the numbers so far, in the text format of Prometheus."""
        with self._lock:
            outcomes, values, is_done = dict(self._outcomes), dict(self._values), self._done
        page = exposition.Exposition(run_id=self.run, stage=self.stage, node=self.node)
        page.metric("probe_planned_checks", "Checks that this pod was asked for.")
        page.sample("probe_planned_checks", self.planned)
        page.metric("probe_checks", "Observations so far, of checks and of parts of them, by outcome.")
        for outcome in sorted({"measured", *outcomes}):
            page.sample("probe_checks", outcomes.get(outcome, 0), outcome=outcome)
        page.metric("probe_begun_seconds", "When the probe began, as seconds of the epoch.")
        page.sample("probe_begun_seconds", round(self._began, 3))
        page.metric("probe_done", "Whether the probe has ended.")
        page.sample("probe_done", int(is_done))
        page.metric("probe_value", "What was measured so far, not yet judged, in its unit.")
        for (check, variant, part, metric, unit), (value, simulated) in values.items():
            page.sample(
                "probe_value", value, check=check, variant=variant, part=part, metric=metric, unit=unit, simulated=str(simulated).lower()
            )
        return page.text()

    def _watch(self) -> None:
        while not self._over.wait(POLL_S):
            try:
                for observation in self._new():
                    with self._lock:
                        self._take(observation)
            except Exception as error:  # it is shown or it is not; the frame holds it all
                self._say("no_progress", logline.WARN, f"{type(error).__name__}", checks=len(self._seen))
                return

    def _new(self) -> t.Iterator[dict[str, t.Any]]:
        """Yield the records that the probe has written since the last call, in whole lines."""
        try:
            source = open(self._path, "rb")  # noqa: SIM115 - closed below
        except OSError:
            return
        with source:
            inode, at = os.fstat(source.fileno()).st_ino, self._file[1]
            source.seek(at if inode == self._file[0] else 0)
            while True:
                line = source.readline()
                if not line.endswith(b"\n"):
                    return
                self._file = (inode, source.tell())
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if isinstance(record, dict):
                    yield record

    def _take(self, observation: t.Any) -> None:
        if not isinstance(observation, dict) or "outcome" not in observation or "check" not in observation:
            return
        subject, metrics = (field if isinstance(field, dict) else {} for field in (observation.get("subject"), observation.get("metrics")))
        check, variant = str(observation["check"]), str(observation.get("variant") or "")
        part = str(observation.get("part") or subject.get("id") or "")
        if (check, variant, part) in self._seen:
            return
        self._seen.add((check, variant, part))
        outcome = str(observation["outcome"])
        self._outcomes[outcome] += 1
        for name, metric in metrics.items():
            value = metric.get("value") if isinstance(metric, dict) else None
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and len(self._values) < VALUES:
                key = (check, variant, part, str(name), str(metric.get("unit") or ""))
                self._values[key] = (value, bool(observation.get("simulated")))
        words = " ".join(word for word in (self.stage, check, variant, part) if word)
        self._say(
            "check_done", logline.of_outcome(outcome), f"{words}: {outcome}", check=check, variant=variant, part=part, outcome=outcome,
            reason_code=observation.get("reason_code"), simulated=bool(observation.get("simulated")),
        )  # fmt: skip

    def _say(self, event: str, level: str, message: str, **fields: t.Any) -> None:
        if not self._log:
            return
        text = logline.line(event, level, message[:300], run=self.run, stage=self.stage, node=self.node, **fields)
        data = text.replace(frame.TAG.decode().strip(), "gpufleet-frame").encode()
        if len(data) < frame.LINE_LIMIT:  # in one piece, whoever else writes
            try:
                os.write(self._out, data + b"\n")
            except OSError:
                self._log = False


def of_environment(request: t.Mapping[str, t.Any]) -> Telemetry | None:
    """Return the telemetry that the pod's environment asks for; None if it asks for none or if it cannot start. The variables are removed
    from the environment of the tools."""
    log, port = os.environ.pop(LOG, ""), os.environ.pop(PORT, "")
    node = os.environ.get(NODE, "")
    if (log != "json" and not port.isdigit()) or "params" not in request:
        return None
    try:
        return Telemetry(request, log == "json", int(port) if port.isdigit() else None, node)
    except Exception:  # whoever measures does not care
        return None
