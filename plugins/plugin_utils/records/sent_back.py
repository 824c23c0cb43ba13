# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes whose parts are sent back, as the punch list of the last hand-over says. It is read for every host of a fleet, so that nothing
else of a hand-over is loaded for those that have no such part.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import csv
import io
import pathlib

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import target_of

# The folder of hand-overs in the results folder, and the punch list in it.
FOLDER, PUNCH_LIST = "handover", "punch_list.csv"
# The state and the category of the rows that are meant.
OPEN, PART = "open", "part"


def nodes(results_dir: str, host: str) -> list[str]:
    """Return the nodes of a host that the punch list has an open row of a part for. Raise RunError if there is no such list."""
    path = pathlib.Path(results_dir) / FOLDER / PUNCH_LIST
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"{path}: {reason}; expected the punch list of a hand-over, which says whose parts are sent back") from error
    of_parts = {row.get("node") or "" for row in rows if row.get("state") == OPEN and row.get("category") == PART}
    # A pair is two nodes, and either may have the bad part.
    named = {node for name in of_parts for node in name.split("|") if node}
    return sorted(node for node in named if target_of(node) == host)
