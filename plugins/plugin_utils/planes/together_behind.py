# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of nodes behind one inventory host that begin together, on any plane on which a host stands for many nodes.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import random
import secrets
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import common_start
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage, StageWork

# Ports of what our programs serve on nodes: below those that Linux gives to connections.
PORTS = range(20000, 32000)


def common(stage: Stage, work: StageWork, addresses: t.Mapping[str, str]) -> PlainData:
    """Return the options that all nodes which take part have in common: what they do together, and where they ask when they begin.
    `addresses` are theirs by subject id; the first one answers."""
    node, address = next(iter(addresses.items()))
    first = {"node": node, "address": address, "port": random.choice(PORTS[: -common_start.PLACES]), "token": secrets.token_hex(16)}
    return {**stage.among(work, addresses), "first": first}
