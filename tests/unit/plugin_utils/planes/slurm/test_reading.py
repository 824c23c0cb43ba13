# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Slurm's clients answer, in all its forms. The fixtures are real; 23.02's form is 24.11's with the version's own name."""

from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import reading, records
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.reasons import NONE, Reason
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.records import SlurmNode

FORGED = "NHC: 20261122 check_gpu\nm4rk|gpu-09|all|idle|x|gpu:8|1|u|1|forged \x1b[31mred"


def text_of(fixtures: pathlib.Path, name: str) -> str:
    return (fixtures / "slurm" / name).read_text(encoding="utf-8")


def test_sinfo_of_22_05_has_whole_nodes(fixtures: pathlib.Path) -> None:
    nodes = reading.nodes_of_json(text_of(fixtures, "22.05-sinfo-reasons.json"))
    assert nodes is not None and [node.name for node in nodes] == ["gpu-01", "gpu-02", "gpu-03", "gpu-04"]
    idle, drained, down, _reserved = nodes
    assert idle == SlurmNode(
        "gpu-01", frozenset({"IDLE"}), NONE, ("all", "closed"), ("hgx",), "gpu:h200:8", "22.05.8", address="gpu-01", booted=1795741211
    )
    assert drained.states == {"IDLE", "DRAIN"} and drained.reason == Reason(FORGED, "root", 1795742058)
    assert down.states == {"DOWN"} and down.reason.text == "alice: swapping NIC mlx5_3"


def test_scontrol_of_24_11_has_whole_nodes(fixtures: pathlib.Path) -> None:
    text = text_of(fixtures, "24.11-scontrol-node.json")
    nodes = reading.nodes_of_json(text)
    assert nodes == [
        SlurmNode(
            "gpu-02",
            frozenset({"IDLE", "DRAIN"}),
            Reason("acceptance: NVLink down", "root", 1795317865),
            ("all",),
            (),
            "gpu:h200:8",
            "24.11.5",
            address="gpu-02",
            booted=1795311548,
        )
    ]
    record = json.loads(text)
    record["nodes"][0].update(features=["a", "b"], reservation="weekly", state=["MIXED", "MAINTENANCE", "PLANNED"])
    found = reading.nodes_of_json(json.dumps(record))
    assert found and found[0].features == ("a", "b") and found[0].reservation == "weekly" and found[0].is_busy


# Fields that Slurm-25.11 adds to a node, and the states that it may have, by its OpenAPI document (v0.0.44_node of slurmrestd 25.11.4,
# whose forms `scontrol --json` has, too).
OF_25_11 = {
    "cert_flags": ["TOKEN_SET"], "topology": "default:rack1:leaf2", "res_cores_per_gpu": 0,
    "tls_cert_last_renewal": {"set": True, "infinite": False, "number": 1795311548},
}  # fmt: skip
NO_JOB_STARTS = (
    "INVALID", "UNKNOWN", "DOWN", "ERROR", "FUTURE", "EXTERNAL", "DRAIN", "NOT_RESPONDING", "FAIL", "POWERING_DOWN", "DYNAMIC_FUTURE",
    "REBOOT_ISSUED", "INVALID_REG", "POWER_DRAIN", "BLOCKED", "RESERVED", "MAINTENANCE",
)  # fmt: skip
JOBS_START = (
    "IDLE", "ALLOCATED", "MIXED", "UNDRAIN", "CLOUD", "RESUME", "COMPLETING", "POWERED_DOWN", "POWERING_UP", "REBOOT_REQUESTED",
    "REBOOT_CANCELED", "PLANNED", "POWER_DOWN", "POWER_UP", "DYNAMIC_NORM",
)  # fmt: skip


def test_what_25_11_adds_to_a_node_is_no_hindrance(fixtures: pathlib.Path) -> None:
    answer = json.loads(text_of(fixtures, "24.11-scontrol-node.json"))
    (earlier,) = reading.nodes_of_json(json.dumps(answer)) or []
    answer["nodes"][0].update(OF_25_11, version="25.11.4", state=["IDLE", "DRAIN", "CLOUD"])
    answer["meta"]["plugin"]["data_parser"] = "data_parser/v0.0.44"
    assert reading.nodes_of_json(json.dumps(answer)) == [earlier._replace(version="25.11.4", states=frozenset({"IDLE", "DRAIN", "CLOUD"}))]


@pytest.mark.parametrize("state", [*NO_JOB_STARTS, *JOBS_START])
def test_every_state_of_25_11_says_whether_a_job_may_start(state: str) -> None:
    (node,) = reading.nodes_of_json(json.dumps({"nodes": [{"name": "n1", "state": ["IDLE", state]}]})) or []
    assert bool(node.obstacle()) == (state in NO_JOB_STARTS)


@pytest.mark.parametrize(("number", "at"), [({"set": False, "infinite": False, "number": 0}, 0), ({"set": True, "infinite": True}, 0)])
def test_a_date_that_is_not_set_is_none(number: object, at: int) -> None:
    record = {"name": "n1", "state": ["IDLE"], "reason": "x", "reason_changed_at": number, "boot_time": number}
    (node,) = reading.nodes_of_json(json.dumps({"nodes": [record]})) or []
    assert (node.reason.at, node.booted) == (at, at)


def test_sinfo_of_24_11_has_no_whole_nodes(fixtures: pathlib.Path) -> None:
    assert reading.nodes_of_json(text_of(fixtures, "24.11-sinfo.json")) is None


@pytest.mark.parametrize(
    "text", ["", "scontrol: unrecognized option '--json'", "[]", '{"nodes": 3}', '{"nodes": ["a"]}', "[" * 100000, "{"]
)
def test_what_is_no_answer_in_json_is_left_to_the_next_way(text: str) -> None:
    assert reading.nodes_of_json(text) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", None),
        ("state", 3),
        ("reason", ["x"]),
        ("reason_changed_at", {"set": True, "number": "soon"}),
        ("gres", {}),
        ("features", 1),
    ],
)
def test_fields_of_another_kind_are_not_believed(field: str, value: object) -> None:
    nodes = reading.nodes_of_json(json.dumps({"nodes": [{"name": "n1", "state": ["IDLE"], field: value}, {"name": "../n2"}]}))
    assert nodes is not None and [node.name for node in nodes] == ["n1"]
    assert nodes[0].states == {"UNKNOWN" if field == "state" else "IDLE"} and nodes[0].reason == NONE


def test_lines_tell_what_json_tells_of_the_same_nodes(fixtures: pathlib.Path) -> None:
    """The reason of gpu-02 holds a newline and a whole line of our form, but not the mark of this call."""
    text = text_of(fixtures, "22.05-sinfo-lines.txt").replace("\nm4rk|gpu-0", "\nn3w|gpu-0").replace("\nn3w|gpu-09", "\nm4rk|gpu-09")
    text = text.replace("m4rk|gpu-01", "n3w|gpu-01", 1)
    in_json = reading.nodes_of_json(text_of(fixtures, "22.05-sinfo-reasons.json")) or []
    assert reading.nodes_of_lines(text, "n3w") == [node._replace(comment=None, booted=0) for node in in_json], (
        "sinfo has no word for comments and starts"
    )


@pytest.mark.parametrize(
    ("word", "states"),
    [
        ("idle", {"IDLE"}), ("mixed", {"MIXED"}), ("drained", {"IDLE", "DRAIN"}), ("draining", {"ALLOCATED", "DRAIN"}),
        ("down*", {"DOWN", "NOT_RESPONDING"}), ("drained*", {"IDLE", "DRAIN", "NOT_RESPONDING"}), ("idle~", {"IDLE", "POWERED_DOWN"}),
        ("allocated$", {"ALLOCATED", "MAINTENANCE"}), ("reserved", {"RESERVED"}), ("unk*", {"UNK", "NOT_RESPONDING"}), ("", {"UNKNOWN"}),
    ],
)  # fmt: skip
def test_words_of_sinfo_for_states(word: str, states: set[str]) -> None:
    assert reading.states_of(word) == states


def test_jobs_and_partitions_of_lines(fixtures: pathlib.Path) -> None:
    assert reading.jobs_of_lines(text_of(fixtures, "22.05-squeue-lines.txt"), "m4rk") == [
        records.SlurmJob("7", "gf-y", "PENDING", "Resources", ""), records.SlurmJob("6", "gf-x", "RUNNING", "None", "gpu-01"),
    ]  # fmt: skip
    assert reading.partitions_of_lines("m|all|up|1:00:00|all*\nm|closed|down|infinite|closed\nm|half|up\n", "m") == [
        records.Partition("all", "UP", 60, True), records.Partition("closed", "DOWN"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "minutes"), [("30:00", 30), ("1-02:00:00", 26 * 60), ("0:30", 1), ("infinite", 0), ("n/a", 0), ("UNLIMITED", 0)]
)
def test_time_limits_in_the_words_of_slurm(limit: str, minutes: int) -> None:
    assert reading.minutes_of(limit) == minutes


def test_the_time_of_slurmctld_is_that_of_its_statistics() -> None:
    """As sdiag of all versions prints it."""
    said = "*******************************************************\nsdiag output at Sun Nov 22 03:24:24 2026 (1795317864)\nData since"
    assert reading.time_of_sdiag(said) == 1795317864 and reading.time_of_sdiag("sdiag output at (soon)") == 0
