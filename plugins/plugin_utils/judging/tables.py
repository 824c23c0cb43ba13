# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A table of tests between pairs: what the judge reads, and the report draws.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix import Diagnosis, diagnose_matrix
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_table import Cell
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Better, Round


@dataclasses.dataclass
class Table:
    """One kind of test in one reachability domain (the name of a cluster, or empty for machines behind SSH): the cells of its matrix, each
    with the floor that is known of it. `directed`: each direction of a pair has a cell; `variant` is that of both. `rounds` are those of
    the timetable as they were walked."""

    domain: str
    check: str
    variant: str
    cells: list[Cell]
    better: Better
    unit: str
    simulated: bool = False
    directed: bool = False
    rounds: list[Round] = dataclasses.field(default_factory=list)

    @property
    def title(self) -> str:
        return " ".join(filter(None, (self.domain, self.check, self.variant)))

    def diagnose(self) -> Diagnosis | None:
        """Return the diagnosis; None without any floor."""
        if all(cell.floor is None for cell in self.cells):
            return None
        return diagnose_matrix(self.cells, better=self.better, unit=self.unit)
