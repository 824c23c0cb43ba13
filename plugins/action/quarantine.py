# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Takes the nodes that a run convicts out of service, and gives them back."""

from __future__ import annotations

import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine import request
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.plain import plain
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.formats import plain as visible


def _shown(text: str) -> str:
    """Return words of nodes as one line in which everything can be seen."""
    return " ".join(visible(text).split())


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        variables = task_vars or {}
        super().run(tmp, variables)
        validated = ArgumentSpecValidator(request.OPTIONS).validate(dict(self._task.args))
        if validated.error_messages:
            return {"failed": True, "msg": "; ".join(validated.error_messages)}
        hostvars = variables["hostvars"]

        def variable(host: str, name: str) -> t.Any:
            of_host = hostvars[host]
            return plain(of_host[name], f"{host}: {name}") if name in of_host else None

        try:
            hosts = request.Hosts(validated.validated_parameters["hosts"] or variables["ansible_play_hosts_all"], variable)
            done = request.carry_out(validated.validated_parameters, hosts, bool(self._task.check_mode))
        except RunError as error:
            return {"failed": True, "msg": str(error)}
        for line in done.lines:
            Display().display(_shown(line))
        diff = {"before": done.before, "after": done.after}
        confirmed = validated.validated_parameters["confirm"]
        return {
            "changed": bool(done.changed) and confirmed,
            "nodes": done.changed,
            "lines": done.lines,
            "run_id": validated.validated_parameters["run_id"],
            "hosts": list(validated.validated_parameters["hosts"] or variables["ansible_play_hosts_all"]),
            "again": done.again,
            "diff": {name: "".join(f"{_shown(line)}\n" for line in lines) for name, lines in diff.items()},
            **({"failed": True, "msg": _shown("; ".join(done.failed))} if done.failed else {}),
        }
