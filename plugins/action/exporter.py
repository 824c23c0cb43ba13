# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers Prometheus with the fleet of today, for as long as somebody lets it."""

from __future__ import annotations

import threading
import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import exporter, store
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        args = self._task.args
        stop = threading.Event()
        try:
            port, seconds = int(args.get("port") or 0), float(args.get("seconds") or 0)
            metrics = exporter.Exporter(store.url_of(str(args["results_dir"]), str(args.get("url") or "")))
            metrics.look()
            server = metrics.serve(str(args.get("address") or ""), port)
        except (RunError, ValueError) as error:
            return {"failed": True, "msg": str(error)}
        Display().display(f"answering on port {server.server_port}: /metrics and /healthz; end it with Ctrl-C", color="green")
        if metrics.problem:
            Display().display(f"note: {metrics.problem}", color="yellow")
        if seconds:
            threading.Timer(seconds, stop.set).start()
        try:
            metrics.run(stop)
        finally:
            server.shutdown()
        return {"changed": False, "msg": "ended"}
