# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes that the next round measures: what is open, and a sample of the others, which are its partners in pairs and groups.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import random
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover.standing import Standing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import target_of

# Of the nodes that nothing speaks against, the share that is measured again, and the least number: a pair needs a good partner.
SHARE, LEAST = 0.05, 2
COLUMNS = ("node", "why")


def of(standing: Standing, seed: str) -> list[dict[str, str]]:
    """Return the nodes of the next round, each with the reason; none if nothing is open. `seed` chooses the sample, always the same."""
    opened = {node: keys for node, keys in standing.of_node.items() if keys}
    if not opened:
        return []
    rows = [{"node": node, "why": _open(keys, standing)} for node, keys in sorted(opened.items())]
    others = sorted(standing.of_node.keys() - opened.keys())
    count = min(len(others), max(LEAST, round(len(others) * SHARE)))
    sample = sorted(random.Random(seed).sample(others, count))
    return [*rows, *({"node": node, "why": f"sample of {count} of {len(others)} nodes without open checks"} for node in sample)]


def _open(keys: t.Sequence[t.Any], standing: Standing) -> str:
    checks = sorted({f"{key.stage} {key.check}" for key in keys})
    more = f" and {len(checks) - 3} more" if len(checks) > 3 else ""
    return f"{', '.join(checks[:3])}{more}: {standing.bad[keys[0]]}"


def line(rows: t.Sequence[t.Mapping[str, str]]) -> str:
    """Return the option of a run that measures these nodes."""
    targets = sorted({target_of(row["node"]) for row in rows})
    names = sorted(row["node"].partition("/")[2] for row in rows if "/" in row["node"])
    sample = sum(row["why"].startswith("sample") for row in rows)
    of_clusters = f", acceptance_nodes: {{names: [{', '.join(names)}]}}" if names else ""
    return f"next round: {len(rows) - sample} with open checks and {sample} others: --limit {','.join(targets)}{of_clusters}"
