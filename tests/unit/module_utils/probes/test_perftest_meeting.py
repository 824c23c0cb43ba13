# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that is told its timetable when all others are there."""

from __future__ import annotations

import base64
import json
import pathlib
import socket
import threading
import typing as t
import zlib

from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import guardian_pod
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import perftest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from rigs.simulated import pairs

KIND: dict[str, t.Any] = {
    "check": "read_bw", "variant": "", "tool": "ib_read_bw", "options": [], "op": "read", "kind": "bw", "bytes": None,
    "iterations": None, "qps": 1, "context": {},
}  # fmt: skip


def params(within: float, **more: t.Any) -> dict[str, t.Any]:
    return {
        "kinds": [KIND], "rounds": [], "absent": [], "begins_in": 0.0, "slot": 1.0, "test_timeout": 1.0, "pause": 0.05, "governor": "",
        "binary_dir": "", "meeting": {"path": "/told/meeting", "within": within}, **more,
    }  # fmt: skip


def a_test(partner: str, **more: t.Any) -> dict[str, t.Any]:
    return {
        "kind": 0, "role": "client", "device": "mlx5_0", "port": 1, "gid_index": None, "gid": None, "peer_gid": None, "peer": partner,
        "tcp_port": 21500, "partner": partner, "rail": "0", "a": f"{partner}/nic/mlx5_0/1", "b": "k/b/nic/mlx5_0/1",
        "subject": f"k/b|{partner}", "context": {}, **more,
    }  # fmt: skip


def write(folder: pathlib.Path, told: dict[str, t.Any]) -> None:
    (folder / "told").mkdir(exist_ok=True)
    (folder / "told/meeting").write_bytes(base64.b64encode(zlib.compress(json.dumps(told).encode())))


def test_a_node_that_never_gets_the_addresses_times_out(tmp_path: pathlib.Path) -> None:
    (tmp_path / "told").mkdir()
    (tmp_path / "told/meeting").touch()  # as it is before the annotation is there
    (seen,) = perftest.probe(params(0.3), Node(5, root=str(tmp_path)))
    assert (seen["check"], seen["outcome"], seen["reason_code"]) == ("timetable", "timeout", "timeout")
    assert "the addresses of the other nodes did not arrive" in seen["reason"]


def test_a_partner_that_has_not_come_is_not_waited_for(tmp_path: pathlib.Path) -> None:
    told = {"addresses": {"k/b": "192.0.2.2"}, "rounds": [{"round": 0, "tests": [a_test("k/c")]}]}
    threading.Timer(0.3, write, (tmp_path, told)).start()
    pair, timetable = perftest.probe(params(10), Node(20, root=str(tmp_path)))
    assert (pair["outcome"], pair["reason_code"]) == ("missing", "partner") and "k/c has no running test" in pair["reason"]
    assert timetable["outcome"] == "measured" and timetable["duration_s"] < 1


def test_a_gpu_that_fails_while_the_rounds_last(tmp_path: pathlib.Path) -> None:
    """No test of this stage looks at the GPUs, and there may be none after it that does."""
    (tmp_path / "dev").mkdir()
    log = tmp_path / "dev/kmsg"
    log.write_text("4,1,1,-;NVRM: Xid (PCI:0000:00:06): 48, pid=1, before the rounds\n")
    write(tmp_path, {"addresses": {"k/b": "192.0.2.2"}, "rounds": [{"round": 0, "tests": [a_test("k/c")]}]})
    seen = perftest.probe(params(10), Node(20, root=str(tmp_path)))
    next(seen)
    with open(log, "a") as kmsg:
        kmsg.write("4,2,2,-;NVRM: Xid (PCI:0000:00:07): 79, pid=1, GPU has fallen off the bus.\n" * 2)
    (timetable,) = seen
    (change,) = timetable["evidence"]["changes"]
    assert (change["code"], change["after"]) == ("gpu_lost", 2) and change["text"].startswith("the GPU at 0000:00:07: Xid 79, ")


def test_a_pod_with_devices_of_its_own_takes_those_of_its_rail(tmp_path: pathlib.Path) -> None:
    pairs.sysfs(tmp_path, ["10.0.0.1", "10.0.0.2"], state="DOWN")
    side = a_test("k/a", rail="0-1", device="mlx5_7", gid_index=9, gid="10.9.9.9")
    write(tmp_path, {"addresses": {"k/a": "192.0.2.1", "k/b": "192.0.2.2"}, "rounds": [{"round": 0, "tests": [side]}]})
    own = {
        "devices": [], "port": None, "network": [], "gid_index": None, "roce_version": 2, "address_family": "", "link_local": False,
    }  # fmt: skip
    pair, _timetable = perftest.probe(params(10, own_ports=own), Node(20, root=str(tmp_path)))
    assert pair["reason_code"] == "port_down" and "mlx5_1 port 1 is DOWN" in pair["reason"]
    assert pair["command"][-1] == "192.0.2.1" and pair["command"][pair["command"].index("-x") + 1] == "3"


def test_a_guardian_that_is_lost_marks_what_is_measured_from_then_on(tmp_path: pathlib.Path) -> None:
    policy = tmp_path / "sys/devices/system/cpu/cpufreq/policy0"
    policy.mkdir(parents=True)
    (policy / "scaling_governor").write_text("powersave\n")
    about = {"governor": "performance", "state_dir": str(tmp_path / "state"), "machine": str(tmp_path), "run_id": "r", "stage": "rdma"}
    guardian = guardian_pod.GovernorGuardian({**about, "timeout": 30, "root": str(tmp_path)}, "key")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=guardian.serve, args=(listener, 30))
        serving.start()
        where = {"governor": "performance", "address": "127.0.0.1", "port": listener.getsockname()[1], "key": "key"}
        rounds = [{"round": number, "tests": [a_test(partner)]} for number, partner in enumerate(("k/c", "k/d"))]
        write(tmp_path, {"addresses": {}, "rounds": rounds, "guardian": where})
        seen = perftest.probe(params(10), Node(20, root=str(tmp_path)))
        assert next(seen)["context"]["governor"]["state"] == "switched"
        assert (policy / "scaling_governor").read_text() == "performance"
        guardian.end(0, None)
        serving.join()
    assert (policy / "scaling_governor").read_text() == "powersave"
    for later in seen:  # a pair, and the timetable
        said = later["context"]["governor"]
        assert (said["state"], said["reason_code"]) == ("lost", "guardian_lost") and "it was told to end" in said["reason"]


def test_a_node_without_a_guardian_says_why(tmp_path: pathlib.Path) -> None:
    why = {"governor": "performance", "reason_code": "image_pull", "reason": "its guardian pod: ImagePullBackOff"}
    write(tmp_path, {"addresses": {}, "rounds": [{"round": 0, "tests": [a_test("k/c")]}], "guardian": why})
    for seen in perftest.probe(params(10), Node(20, root=str(tmp_path))):
        said = seen["context"]["governor"]
        assert (said["state"], said["reason_code"], said["reason"]) == ("not_switched", "image_pull", why["reason"])
