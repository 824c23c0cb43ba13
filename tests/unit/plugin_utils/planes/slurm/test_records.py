# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a job of ours can start on a node, and why not; and what is known of a reason."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.reasons import Reason
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.records import SlurmNode


def node(*states: str, reason: Reason = reasons.NONE, **more: str) -> SlurmNode:
    return SlurmNode("n1", frozenset(states), reason, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (("IDLE",), None), (("MIXED", "PLANNED"), None), (("ALLOCATED",), None), (("IDLE", "POWERED_DOWN"), None),
        (("IDLE", "DRAIN"), "node_drained"), (("ALLOCATED", "DRAIN"), "node_drained"), (("IDLE", "FAIL"), "node_drained"),
        (("DOWN",), "node_down"), (("DOWN", "DRAIN"), "node_down"), (("IDLE", "NOT_RESPONDING"), "node_down"),
        (("UNKNOWN",), "node_down"), (("FUTURE",), "node_down"), (("IDLE", "INVALID_REG"), "node_down"),
        (("IDLE", "RESERVED"), "node_reserved"), (("IDLE", "MAINTENANCE"), "node_reserved"),
    ],
)  # fmt: skip
def test_states_in_which_no_job_starts(states: tuple[str, ...], code: str | None) -> None:
    obstacle = node(*states).obstacle()
    assert (obstacle[0] if obstacle else None) == code


def test_a_reservation_of_ours_opens_its_nodes_only() -> None:
    assert node("IDLE", "RESERVED", reservation="ours").obstacle("ours") is None
    obstacle = node("IDLE", "RESERVED", reservation="theirs").obstacle("ours")
    assert obstacle and obstacle[0] == "node_reserved" and "is reserved (theirs)" in obstacle[1]
    assert node("IDLE", "DRAIN", "RESERVED", reservation="ours").obstacle("ours") is not None


def test_an_obstacle_says_reason_user_and_time() -> None:
    obstacle = node("IDLE", "DRAIN", reason=Reason("NHC: 2026-11-22 check_fs", "root", 1795317865)).obstacle()
    assert obstacle == (
        "node_drained",
        "node n1 is drained (state DRAIN+IDLE): Reason 'NHC: 2026-11-22 check_fs' [root, 2026-11-22T03:24:25Z]: set by the health checker "
        "NHC; dated 2026-11-22",
    )


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("[node_problem] KernelDeadlock", "set by a detector of node problems"),
        ("[gpud] xid 79", "set by a tool that signs as gpud"),
        ("2026-11-22 E1402", "dated 2026-11-22"),
        ("20261122: [dcgm] E1402", "set by a tool that signs as dcgm; dated 20261122"),
        ("Not responding", "slurmd on the node does not answer slurmctld"),
        ("gres/gpu count reported lower than configured (7 < 8)", "the node reports fewer devices than slurm.conf says it has"),
        ("alice: swapping NIC", "signed alice"),
        ("swapping NIC", ""),
        ("", ""),
    ],
)
def test_what_is_known_of_a_reason(text: str, meaning: str) -> None:
    assert reasons.meaning(text) == meaning


def test_a_hostile_reason_is_one_visible_line() -> None:
    shown = reasons.explained(Reason("a\nb\x1b[31m\u202e" + "x" * 5000, "r\noot", 0))
    assert shown.isprintable() and "a\\x0ab\\x1b[31m\\x202e" in shown and "[r\\x0aoot]" in shown and len(shown) < 300


@pytest.mark.parametrize(
    ("gres", "argument"),
    [
        ("gpu:h200:8", "gpu:h200:8"), ("gpu:h200:8(S:0,1)", "gpu:h200:8"), ("gpu:8", "gpu:8"), ("", ""),
        ("nic:4,gpu:a100:4(S:0),gpu:h200:4", "gpu:a100:4,gpu:h200:4"),
        ("gpu:h200:8;reboot", ""), ("shard:8", ""),
    ],
)  # fmt: skip
def test_all_gpus_of_a_node_as_an_argument(gres: str, argument: str) -> None:
    assert node("IDLE", gres=gres).gpus == argument
