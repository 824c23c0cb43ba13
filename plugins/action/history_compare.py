# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compares two runs of the history."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import comparing, store
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import write_atomically
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.formats import plain


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        args = self._task.args
        runs = args.get("runs") or []
        names = [name.strip() for name in (runs.split(",") if isinstance(runs, str) else map(str, runs)) if name.strip()]
        if len(names) > 2:
            return {
                "failed": True,
                "msg": f"runs: found {len(names)} runs, expected two, or one to compare with the last accepted one before it",
            }
        try:
            with store.Store(store.url_of(str(args["results_dir"]), str(args.get("url") or ""))) as history:
                new = comparing.of_run(history, names[-1] if names else comparing.latest(history))
                old_run = names[0] if len(names) == 2 else comparing.last_accepted(history, new)
                if old_run is None:
                    return {"failed": True, "msg": f"no run before {new.run} with any of its nodes was accepted; name two: -e runs=A,B"}
                comparison = comparing.compare(history, comparing.of_run(history, old_run), new)
            if args.get("json") and not self._task.check_mode:
                write_atomically(pathlib.Path(str(args["json"])), json.dumps(comparison, indent=1) + "\n")
        except RunError as error:
            return {"failed": True, "msg": str(error)}
        Display().display(f"run {new.run} against {old_run}:")
        for line in comparing.sentences(comparison):
            Display().display("  " + " ".join(plain(line).split()))
        return {"changed": False, **comparison}
