# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The console of a laptop, for as long as somebody lets it."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.actions import ActionError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import local_server
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        args = {name: str(value or "") for name, value in self._task.args.items()}
        try:
            of = local_server.place(args["inventory"], args["results_dir"], args.get("folder", ""), args.get("url", ""))
            local_server.run(
                of, int(args.get("port") or local_server.PORT), lambda text: Display().display(text, color="green"),
                args.get("address") or "127.0.0.1", float(args.get("seconds") or 0),
            )  # fmt: skip
        except (RunError, ActionError, ValueError, OSError) as error:
            return {"failed": True, "msg": str(error)}
        return {"changed": False, "msg": "ended"}
