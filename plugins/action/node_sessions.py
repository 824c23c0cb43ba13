# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shows or ends what runs are doing on a machine, in a line for each."""

from __future__ import annotations

import time
import typing as t

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.answers import one_line
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import driver

# Among no more hosts each one is named on which nothing runs.
NAMED = 20


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        variables = task_vars or {}
        super().run(tmp, variables)
        args = dict(self._task.args)
        if boolean(args.get("abandoned", False)):
            listed = self._execute_module(module_args={**args, "state": "listed"}, task_vars=variables)
            gone = [row["run_id"] for row in listed.get("sessions") or [] if driver.state(str(row.get("driver"))) == "gone"]
            if not gone:
                if self._task.check_mode:
                    show_pending(str(variables.get("inventory_hostname")), listed)
                return {**listed, "sessions": [], "found": False}
            args.update(run_ids=gone, all=False)
        result = dict(self._execute_module(module_args=args, task_vars=variables))
        rows = result.get("sessions") or []
        for row in rows:
            Display().display(f"{variables.get('inventory_hostname')}: {line(row)}")
        is_listed = args.get("state", "listed") == "listed"
        if is_listed:
            show_pending(str(variables.get("inventory_hostname")), result)
        quiet = not rows and not result.get("pending") and not result.get("failed")
        if quiet and len(variables.get("ansible_play_hosts_all") or ()) <= NAMED:
            Display().display(f"{variables.get('inventory_hostname')}: no run is at work{' or has left anything' if is_listed else ''}")
        stays = [row["run_id"] for row in rows if row.get("ended") is False]
        if stays:
            result.update(failed=True, msg=f"still at work: run {', '.join(stays)}")
        return {**result, "found": bool(rows)}


def show_pending(host: str, result: dict[str, t.Any]) -> None:
    """Show what runs that have ended have left on a machine, as its module says it."""
    for what in result.get("pending") or []:
        Display().display(f"{host}: left by a run that has ended: {one_line(str(what))} (playbooks/restore.yml)")


def line(row: dict[str, t.Any]) -> str:
    """Return a row of the module in words. A row is what a machine says, so no character of it may steer the terminal."""
    words = f"run {one_line(str(row.get('run_id')))}: {one_line(str(row.get('stage')))}"
    if row.get("state") == "kept":
        words += ": has ended; its result is kept for a resume (playbooks/resume.yml; playbooks/stop.yml removes it)"
    else:
        words += f" runs since {_moment(row.get('since'))}, until {_moment(row.get('until'))} at the latest"
        words += f", started by {one_line(str(row['by']))}" if row.get("by") else ""
        words += "; it goes on if its controller ends" if row.get("outlives") else ""
    if "ended" in row:
        words += ": ended" if row["ended"] else ": could not be ended"
    return words


def _moment(seconds: t.Any) -> str:
    known = isinstance(seconds, int) and 0 < seconds < 1 << 33
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds)) if known else "an unknown time"
