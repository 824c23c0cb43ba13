# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much memory a GPU has: what its model is delivered with, and what its driver shows of it.

A memory test is held to this, not to what the driver calls free: memory that somebody holds, or that the driver hides, was not tested.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, plain

# MiB that nvidia-smi shows of a healthy GPU, by the product name that it prints; the first pattern that matches the whole name counts. From
# published output of nvidia-smi; of models with GDDR memory with ECC on, which takes a sixteenth. Drivers before R510 leave out what they
# reserve, up to 2 % of it. Virtual GPUs have other names.
MODELS: t.Tuple[t.Tuple[str, int], ...] = (
    (r"(NVIDIA )?A(100|800)[ -].*40GB.*", 40960),
    (r"(NVIDIA )?A(100|800)[ -].*80GB.*", 81920),
    (r"NVIDIA (H100|H800) (80GB HBM3|PCIe)|NVIDIA H800", 81559),
    (r"NVIDIA H100 NVL", 95830),
    (r"NVIDIA H200( NVL)?|NVIDIA H20-3e", 143771),
    (r"NVIDIA (H20|GH200 480GB)", 97871),
    (r"NVIDIA B200.*", 183359),
    (r"NVIDIA B300.*", 275040),
    (r"NVIDIA GB200.*", 189471),
    (r"(NVIDIA |Tesla )?V100-.*16GB.*", 16384),
    (r"(NVIDIA |Tesla )?V100S?-.*32GB.*", 32768),
    (r"(NVIDIA |Tesla )?T4", 15360),
    (r"NVIDIA (A10|A10G|L4)", 23028),
    (r"NVIDIA A30", 24576),
    (r"NVIDIA (A40|L40|L40S)", 46068),
    (r"NVIDIA RTX PRO 6000 Blackwell.*", 97887),
)


def of_model(name: str) -> int | None:
    """Return the MiB that a healthy GPU of a model shows; None for a model that is not in the table."""
    return next((mib for pattern, mib in MODELS if re.fullmatch(pattern, name)), None)


def of_board(g: t.Mapping[str, t.Any], of_its_model: int | None, tool: str) -> int | Absent:
    """Return the MiB that a GPU must have: what its driver shows by its tool, and no less than `of_its_model`, what its model has."""
    known = [int(mib) for mib in (plain(g["memory_total_mib"]), of_its_model) if mib]
    unknown = f"{tool} does not say how much memory {g['name'] or 'the GPU'} has, and no table knows the model"
    return max(known) if known else Absent(unknown)


def holders(*looks: t.Mapping[str, t.Any]) -> list[str]:
    """Return in words what holds memory of a GPU, as nvidia-smi shows it in one or more looks: the driver, and each process."""
    words: list[str] = []
    for g in looks:
        if plain(g.get("memory_reserved_mib", 0)):
            words.append(f"{g['memory_reserved_mib']} MiB are reserved by the driver")
        for process in g["processes"]:
            words.append(f"{plain(process['used_mib']) or 0} MiB are held by {process['name'] or 'a process'} (pid {process['pid']})")
        if not g["processes"] and plain(g["memory_used_mib"]):
            words.append(f"{g['memory_used_mib']} MiB are held by processes that cannot be seen from here")
    return list(dict.fromkeys(words))
