# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes of Slurm out of service: what scontrol is told, and what is read before."""

from __future__ import annotations

import json
import pathlib
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.node_control import NodeControl, NodeState
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import control
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.client import Client
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.control import SlurmControl
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

NODES = [
    {"name": "n1", "state": ["IDLE"], "reason": "", "comment": "", "partitions": ["all"]},
    {"name": "n2", "state": ["IDLE", "DRAIN"], "reason": "NHC: x", "comment": "ours", "partitions": ["all", "big"]},
    {"name": "n3", "state": ["DOWN", "NOT_RESPONDING"], "reason": "Not responding", "comment": "", "partitions": ["all"]},
    {"name": "all", "state": ["IDLE"], "reason": "", "comment": "", "partitions": ["all"]},
]
Made = tuple[NodeControl, t.Callable[[], list[str]]]


@pytest.fixture
def made(program: t.Callable[[str, str], None], tmp_path: pathlib.Path) -> Made:
    """A cluster of NODES, and what scontrol was told to change, an argument in each line."""
    (tmp_path / "nodes.json").write_text(json.dumps({"nodes": NODES}))
    program("scontrol", f'if [ "$1" = update ]; then printf "%s\\n" "${{@:2}}" > {tmp_path}/told; else cat {tmp_path}/nodes.json; fi')
    made = registry.shipped()["slurm"].node_control("lab", lambda _name: None)
    assert made is not None
    return made, lambda: (tmp_path / "told").read_text().splitlines()


def test_nodes_are_told_with_their_reasons_partitions_and_what_they_are_not_ready_for(made: Made) -> None:
    first, drained, down, _every = made[0].nodes()
    assert first == NodeState("lab/n1", False, partitions=("all",))
    assert drained == NodeState("lab/n2", True, "NHC: x", "ours", ("all", "big"))
    assert not down.held and down.reason == "Not responding" and "node n3 is down" in down.obstacle
    assert made[0].read("lab/n2") == drained and made[0].read("lab/n9") is None


def test_what_scontrol_is_told(made: Made) -> None:
    cluster, told = made
    node = NodeState("lab/n1", False)
    cluster.drain(node, "gpufleet.acceptance run: a b")
    assert told() == ["nodename=n1", "state=drain", "reason=gpufleet.acceptance run: a b"]
    cluster.resume(node)
    assert told() == ["nodename=n1", "state=resume"]
    cluster.comment(node, "")
    assert told() == ["nodename=n1", "comment="]


def test_a_node_whose_name_means_all_nodes_is_refused(made: Made) -> None:
    cluster, told = made
    for call in (lambda: cluster.drain(NodeState("lab/all", False), "x"), lambda: cluster.read("lab/ALL")):
        with pytest.raises(RunError, match="cannot be told from all nodes"):
            call()
    with pytest.raises(FileNotFoundError):
        told()


def test_a_refusal_is_in_the_words_of_slurm(made: Made, program: t.Callable[[str, str], None]) -> None:
    program("scontrol", 'echo "slurm_update error: Invalid user id" >&2; exit 1')
    with pytest.raises(RunError, match="lab: scontrol fails: slurm_update error: Invalid user id"):
        made[0].drain(NodeState("lab/n1", False), "x")


def test_a_comment_that_cannot_be_read_is_nobodys_to_change(made: Made, program: t.Callable[[str, str], None]) -> None:
    program("scontrol", "exit 1")
    program(
        "sinfo",
        'case "$*" in *--json) exit 1;; esac; for last; do :; done; echo "${last%%|*}|n1|all|idle|hgx|gpu:8|22.05.8|Unknown|Unknown|none"',
    )
    (node,) = made[0].nodes()
    assert (node.reason, node.comment) == ("", control.UNREAD)


@pytest.mark.parametrize("ahead", [-7200, 0, 7200])
def test_when_a_node_was_drained_is_told_by_our_clock_whatever_that_of_slurmctld_says(
    program: t.Callable[[str, str], None], ahead: int
) -> None:
    """The rules of quarantine compare it with the time in the reason, which is ours."""
    now = int(time.time())
    drained = {"name": "n1", "state": ["IDLE", "DRAIN"], "reason": "x", "reason_changed_at": now + ahead}
    program("scontrol", f"echo '{json.dumps({'nodes': [drained]})}'")
    program("sdiag", f'echo "sdiag output at Sun Nov 22 03:24:24 2026 ($(($(date +%s) + {ahead})))"')
    (node,) = SlurmControl(Client("lab", ())).nodes()
    assert abs(node.held_at - now) <= 30


def test_a_slurmctld_that_does_not_say_its_time_has_ours(program: t.Callable[[str, str], None]) -> None:
    drained = {"name": "n1", "state": ["IDLE", "DRAIN"], "reason": "x", "reason_changed_at": 1795317864}
    program("scontrol", f"echo '{json.dumps({'nodes': [drained]})}'")
    program("sdiag", "echo 'Access/permission denied' >&2; exit 1")
    (node,) = SlurmControl(Client("lab", ())).nodes()
    assert node.held_at == 1795317864
