# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which ranks are behind by NCCL's RAS service, in the forms of NCCL 2.24 to 2.28: two H200 printed the second one for a rank in a loop."""

from __future__ import annotations

import random

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nccl_ras

HEAD = """NCCL version 2.28.9 compiled with CUDA 13.0

Communicators... (0.000s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         2         8         8   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (ab12cd34ef56ab78) {words}
"""
KIND = "  Communicator ranks have different {kind} operation counts\n"


def said(*lines: str, kind: str = "AllReduce", words: str = "MISMATCH") -> str:
    return HEAD.format(words=words) + KIND.format(kind=kind) + "".join(f"  {line}\n" for line in lines)


def rank(number: int) -> str:
    return f"Rank {number} -- GPU {number % 2} managed by process {700 + number} on node 10.9.8.{number // 2}"


def lone(number: int, what: str) -> str:
    return f"Rank {number} has {what} -- GPU {number % 2} managed by process {700 + number} on node 10.9.8.{number // 2}"


@pytest.mark.parametrize(
    ("text", "behind"),
    [
        (said("6 ranks have launched up to operation 80", "2 ranks have launched up to operation 79", rank(2), rank(5), kind="collective"),
         ("collective", {2: 79, 5: 79}, 80)),
        (said("7 ranks have launched up to operation 100", lone(3, "launched up to operation 99")), ("AllReduce", {3: 99}, 100)),
        (said("7 ranks have launched up to operation 4", lone(3, "not launched any operations")), ("AllReduce", {3: 0}, 4)),
        (said("6 ranks have launched up to operation 4", lone(3, "launched up to operation 2"), lone(1, "not launched any operations")),
         ("AllReduce", {3: 2, 1: 0}, 4)),
        # Those that are listed are ahead: all others are behind, and are not listed.
        (said("6 ranks have launched up to operation 640", "2 ranks have launched up to operation 641", rank(4), rank(5)), None),
        (said("4 ranks have launched up to operation 7", "4 ranks have launched up to operation 6", *map(rank, range(4))), None),
        (said("5 ranks have launched up to operation 7", "3 ranks have launched up to operation 6", rank(1)), None),  # cut off
        (said("3 ranks have launched up to operation 7", lone(3, "launched up to operation 6")), None),  # of a part of the ranks
        (said("6 ranks have launched up to operation 7", lone(3, "launched up to operation 6"), words="INCOMPLETE,MISMATCH"), None),
        (said("7 ranks have launched up to operation 7", lone(3, "launched up to operation 6"))
         + KIND.format(kind="Broadcast") + f"  7 ranks have launched up to operation 9\n  {lone(2, 'launched up to operation 8')}\n", None),
        (said("7 ranks have launched up to operation 7", lone(9, "launched up to operation 6")), None),
        (HEAD.format(words="MISMATCH"), None),
        ("", None),
    ],
)  # fmt: skip
def test_ranks_that_are_behind_are_read_only_if_all_are_listed(text: str, behind: tuple[str, dict[int, int], int] | None) -> None:
    assert nccl_ras.behind(text, 8) == behind


def test_broken_text_never_raises() -> None:
    good = said("6 ranks have launched up to operation 4", lone(3, "launched up to operation 2"), lone(1, "not launched any operations"))
    dice = random.Random(3)
    for _unused in range(500):
        at = dice.randrange(len(good))
        nccl_ras.behind(good[:at] + dice.choice(["", "\n", "#", "Rank 1", "99999999999"]) + good[at + dice.randrange(30) :], 8)
