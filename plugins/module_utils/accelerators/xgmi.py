# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""XGMI links between the GPUs of a board of AMD: eight GPUs are a full mesh, each pair has one link, and there is no switch.

`links` is {"between": {PCI address: {PCI address of another GPU: amd_smi.Link}}, "ports": {PCI address: amd_smi.Xgmi}}.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import amd_products
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, plain

# A link below this share of the fastest of the node was trained to fewer lanes or a lower rate.
LINK_SHARE = 0.9
# GPUs of a board, each of which has a link to all others.
BOARD = 8
# The blocks of RAS that count errors of the links.
BLOCKS = ("XGMI_WAFL", "XGMI", "WAFL", "PCS_XGMI", "PCS_XGMI3")
Problem = t.Tuple[str, str]


def down(gpus: t.Sequence[t.Mapping[str, t.Any]], links: t.Mapping[str, t.Any]) -> dict[str, Problem]:
    """Return {UUID: (reason code, words)} of GPUs with a link that is down, missing, or slower than the others of the node. Both ends of a
    link are shown: which of them is at fault the link does not say."""
    between, ports = links["between"], links["ports"]
    # Functions of a GPU in virtual machines have shown all links as down, which carry (amd-smi before ROCm 7.12).
    blind = all(g["virtual"] for g in gpus) and not any("U" in of.states for of in ports.values())
    on_board = len({g["socket"] for g in gpus}) == BOARD
    fastest = max((plain(link.rate) or 0 for of in between.values() for link in of.values() if link.kind == "XGMI"), default=0)
    rates = {bdf: (plain(of.bit_rate) or 0, plain(of.bandwidth) or 0) for bdf, of in ports.items()}
    found: dict[str, Problem] = {}
    for g in gpus:
        problems = [*_between(g, gpus, between.get(g["bdf"], {}), fastest)]
        of = ports.get(g["bdf"])
        if not g["partition"]["id"] and _is_silent(between.get(g["bdf"]), of) and on_board and amd_products.of_name(g["name"]):
            found[g["uuid"]] = ("gpu_state", "amd-smi topology and xgmi show none of its XGMI links, and show those of other GPUs")
            continue
        if of is not None:
            product, states = amd_products.of_name(g["name"]), [] if blind else of.states
            dead, up = states.count("D"), states.count("U")
            if dead:
                problems.append(f"{dead} of its {len(states)} XGMI links are down")
            elif states and product and on_board and up < product.links:
                problems.append(f"{up} of its {product.links} XGMI links are up")
            for value, at, words, unit in ((of.bit_rate, 0, "bit rate", "Gb/s"), (of.bandwidth, 1, "bandwidth", "Gb/s")):
                best = max(rate[at] for rate in rates.values())
                if not isinstance(value, Absent) and value < LINK_SHARE * best:
                    problems.append(f"the {words} of its XGMI links is {value:g} {unit}, of another GPU's {best:g}")
        if problems and g["uuid"]:
            found[g["uuid"]] = ("nvlink", "; ".join(problems))
    return found


def _is_silent(between: t.Mapping[str, t.Any] | None, ports: t.Any) -> bool:
    """Return True if neither the topology nor the ports of a GPU say anything of its links."""
    rates = () if ports is None else (ports.bit_rate, ports.bandwidth)
    return not between and not (ports and ports.states) and all(isinstance(rate, Absent) for rate in rates)


def _between(
    g: t.Mapping[str, t.Any], gpus: t.Sequence[t.Mapping[str, t.Any]], links: t.Mapping[str, t.Any], fastest: float
) -> t.Iterator[str]:
    """Yield what is wrong with the links of one GPU to the others of its board."""
    product = amd_products.of_name(g["name"])
    for other in gpus:
        link = links.get(other["bdf"] or "")
        if other["uuid"] == g["uuid"] or other["socket"] == g["socket"] or not links:
            continue
        if link is None or link.kind != "XGMI":
            if product and amd_products.of_name(other["name"]):
                way = f"goes by {link.kind}" if link and link.kind else "is missing"
                yield f"its XGMI link to GPU {other['index']} {way}"
        elif link.is_enabled is False:
            yield f"its XGMI link to GPU {other['index']} is disabled"
        elif not isinstance(link.rate, Absent) and link.rate < LINK_SHARE * fastest:
            yield f"its XGMI link to GPU {other['index']} has {link.rate / fastest:.0%} of the rate of the fastest link of the node"


def counted(blocks: t.Mapping[str, t.Mapping[str, t.Any]]) -> dict[str, int]:
    """Return {kind of error: count} of the blocks of the links; empty if none can be read."""
    return {
        f"{block.lower()} {kind}": int(count)
        for block, counts in blocks.items()
        if block in BLOCKS
        for kind, count in counts.items()
        if not isinstance(count, Absent)
    }


def words(links: t.Mapping[str, t.Any]) -> list[str] | None:
    """Return what must be the same on every node, `7 XGMI`: how many links of each kind each GPU has."""
    texts = set()
    for of in links["between"].values():
        kinds = [link.kind or "unknown" for link in of.values() if link.is_enabled is not False]
        texts.add(" + ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds))) or "none")
    return sorted(texts) or None
