# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filter plugin; the documentation stands in pair_rounds.yml."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import pairing


def pair_rounds(nodes: t.Any, scope: str = "all_pairs", k: int | None = None, seed: t.Any = None) -> list[list[list[str]]]:
    """Rounds in which no node has two partners."""
    try:
        return pairing.pair_rounds(nodes, scope, k, seed)
    except ValueError as error:
        raise AnsibleFilterError(f"pair_rounds: {error}") from error


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"pair_rounds": pair_rounds}
