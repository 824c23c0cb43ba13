# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers questions to the history."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import searching, showing, store
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import write_atomically


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        args = {name: str(value or "") for name, value in self._task.args.items()}
        query = searching.Query(**{name: args.get(name, "") for name in searching.Query._fields})
        written = []
        try:
            with store.Store(store.url_of(args["results_dir"], args.get("url", ""))) as history:
                answer = searching.search(history, query)
            for option, make in (
                ("page", lambda: showing.html(query, answer)),
                ("json", lambda: json.dumps(answer._asdict(), indent=1) + "\n"),
            ):
                if args.get(option) and not self._task.check_mode:
                    write_atomically(pathlib.Path(args[option]), make())
                    written.append(args[option])
        except RunError as error:
            return {"failed": True, "msg": str(error)}
        if args.get("show") != "False":
            for line, colour in [*showing.table(answer), *((f"written: {path}", None) for path in written)]:
                Display().display(line, color=colour)
        return {"changed": bool(written), "runs": answer.runs, "rows": answer.rows, "cut": answer.cut, "files": written}
