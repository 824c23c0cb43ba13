# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Groups whose NVLink leaves the node (MNNVL): measured over NVLink, and once more over the network with MNNVL off.

Over NVLink no NIC takes part, so a broken NIC does not show; over the network IMEX and the switch trays do not.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nccl, nvlink_domain
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import group

VARIABLE = "NCCL_MNNVL_ENABLE"
# The word of a variant whose test goes over the network: `mnnvl=0`.
WORD, OFF = "mnnvl", "0"
# Lines of NCCL: what it prints if IMEX has no channel for it, and what a GPU says of its place in the fabric (init.cc, mnnvl.cc).
_BROKEN = re.compile(r"MNNVL \(cliqueSize (\d{1,6})\) is available but not working")
_MASK = re.compile(r"MNNVL busId \S{1,40} [^\n]{0,300}?healthMask (0x[0-9a-fA-F]{1,8})")
# From so many lost nodes of one domain on the domain is named.
FEWEST = 3


def is_off(keys: t.Mapping[str, str], env: t.Mapping[str, str]) -> bool:
    """Return True if a check goes over the network, by its variant or by the environment of the run."""
    return "rail" in keys or keys.get(WORD) == OFF or env.get(VARIABLE) == "0"


def environment(keys: t.Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a check's ranks that this decides."""
    return {VARIABLE: "0"} if keys.get(WORD) == OFF else {}


def refusal(keys: t.Mapping[str, str], models: t.Iterable[str]) -> tuple[str, str] | None:
    """Return (reason code, reason) if a check over the network alone is the same as the one without a variant; else None."""
    if keys.get(WORD) != OFF or nccl.mnnvl(models):
        return None
    return "no_mnnvl", "NVLink of these GPUs ends in their node: the check without mnnvl=0 goes over the network, too"


def topology(members: t.Sequence[group.GroupMember]) -> dict[str, str]:
    """Return {node: what it shares with the other trays of its domain}, for the search: the switch trays of the rack."""
    return {member.name: f"NVLink domain {member.nvlink_domain}" for member in members if member.nvlink_domain}


def findings(text: str) -> list[dict[str, str]]:
    """Return what NCCL says of MNNVL that is a fault, as findings; a healthMask in words."""
    found = []
    broken = _BROKEN.search(text)
    if broken:
        words = f"NCCL finds an NVLink domain of {broken.group(1)} GPUs and cannot use it: see {nvlink_domain.CHANNELS}"
        found.append({"code": "imex", "text": f"{words} and nvidia-imex-ctl -N on its nodes"})
    for mask in sorted(set(_MASK.findall(text))):
        faults = nvlink_domain.mask_faults(int(mask, 16))
        if faults:
            found.append({"code": "fabric", "text": f"a GPU's place in the NVLink fabric has {', '.join(faults)} (healthMask {mask})"})
    return found


def lost_domains(lost: t.Collection[str], members: t.Sequence[group.GroupMember]) -> list[str]:
    """Return the NVLink domains all of whose nodes in a group went away, but for the head's own node, which says so."""
    nodes: dict[str, list[group.GroupMember]] = {}
    for member in members:
        if member.nvlink_domain:
            nodes.setdefault(member.nvlink_domain, []).append(member)
    return sorted(
        domain for domain, of in nodes.items()
        if len(of) >= FEWEST and all(member.local or member.name in lost for member in of)
    )  # fmt: skip
