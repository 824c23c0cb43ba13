# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Takes old runs out of the history, or says which these would be."""

from __future__ import annotations

import pathlib
import typing as t

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.notes import Notes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import pruning, store
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import AcceptanceError


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        args = self._task.args
        really = bool(boolean(args.get("really") or False, strict=False)) and not self._task.check_mode
        try:
            with store.Store(store.url_of(str(args["results_dir"]), str(args.get("url") or ""))) as history:
                pruned = pruning.prune(history, str(args.get("older_than") or ""), really)
                noted = Notes(pathlib.Path(str(args["results_dir"]))).remove(pruning.taken_out(history)) if really else []
        except AcceptanceError as error:
            return {"failed": True, "msg": str(error)}
        range_text = f" ({pruned.runs[0]} to {pruned.runs[-1]})" if pruned.runs else ""
        line = f"{len(pruned.runs)} runs{range_text} with {pruned.numbers} numbers "
        line += f"were taken out; {pruned.medians} monthly medians stay" if really else "would be taken out; -e prune=true does it"
        line += f"; notes on {len(noted)} of the removed runs, whose folders are gone, were removed" if noted else ""
        Display().display(line)
        return {"changed": really and bool(pruned.runs or noted), "msg": line, "runs": pruned.runs, "numbers": pruned.numbers}
