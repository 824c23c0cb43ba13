# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the history into a file for other programs."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import exporting, searching, store
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        args = {name: str(value or "") for name, value in self._task.args.items()}
        query = searching.Query(**{name: args.get(name, "") for name in searching.Query._fields})
        try:
            with store.Store(store.url_of(args["results_dir"], args.get("url", ""))) as history:
                count = exporting.export(history, query, args.get("file", ""))
        except RunError as error:
            return {"failed": True, "msg": str(error)}
        Display().display(f"written: {args['file']}, {count} rows")
        return {"changed": True, "file": args["file"], "count": count}
