# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stage fabric_map on nodes of a cluster: real pods, which see simulated ports, and tools that print what was recorded of a fabric."""

from __future__ import annotations

import json
import pathlib
import shutil
import typing as t

import pytest
from harness.fleet_runs import Done
from harness.kube_runs import KubeRuns
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]
RECORDED = pathlib.Path(__file__).resolve().parents[1] / "fixtures/infiniband/healthy"
TOOLS = {"ibnetdiscover": "ibnetdiscover", "iblinkinfo": "iblinkinfo-l", "ibqueryerrors": "ibqueryerrors", "sminfo": "sminfo"}
HEARD = {"via": "LLDP", "chassis": {"leaf-9": {}}, "port": {"id": {"type": "ifname", "value": "swp1"}}}


class Ports(KubeRuns):
    """A cluster whose nodes have one port in the recorded fabric, and one at an Ethernet switch."""

    def plant(self) -> None:
        for number, node in enumerate(self.cluster.nodes, 1):
            root = self.cluster.plant(node).parent / "fabric"
            shutil.rmtree(root, ignore_errors=True)
            for part in ("class/net", "bin", "umad", "text"):
                (root / part).mkdir(parents=True)
            _port(root, "mlx5_0", "InfiniBand", f"fe80:0000:0000:0000:a088:c203:0001:{16 * number + 1:04x}")
            _port(root, "mlx5_1", "Ethernet", "fe80:0000:0000:0000:0000:0000:0000:0001", "ens9np0")
            (root / "umad/umad0").touch()
            for tool, name in TOOLS.items():
                shutil.copy(RECORDED / f"{name}.txt", root / "text" / tool)
                _tool(root / "bin" / tool, f"cat /opt/recorded/{tool}")
            if number == 1:  # no other node has lldpd
                (root / "text/lldpctl").write_text(json.dumps({"lldp": {"interface": {"ens9np0": HEARD}}}))
                _tool(root / "bin/lldpctl", "cat /opt/recorded/lldpctl")

    def measure(self, devices: bool) -> Done:
        mounts = {"class": "/sys/class", "bin": "/usr/local/sbin", "text": "/opt/recorded"}
        mounts |= {"umad": "/dev/infiniband"} if devices else {}
        patch = {
            "spec": {"volumes": [{"name": name, "hostPath": {"path": f"/rig/fabric/{name}", "type": "Directory"}} for name in mounts]},
            "container": {"volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()]},
        }
        return self.run(
            acceptance_stages=["fabric_map"], acceptance_kube_pod_patch=patch, fabric_map_watch=0, fabric_map_others=["gpu-*"],
        )  # fmt: skip


def _tool(path: pathlib.Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def _port(root: pathlib.Path, device: str, layer: str, gid: str, netdev: str = "") -> None:
    port = root / "class/infiniband" / device / "ports/1"
    values = {
        "state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": layer, "rate": "200 Gb/sec (4X HDR)", "sm_lid": "0x1", "gids/0": gid,
        **({"gid_attrs/ndevs/0": netdev, "gid_attrs/types/0": "RoCE v2"} if netdev else {}),
    }  # fmt: skip
    for name, text in values.items():
        (port / name).parent.mkdir(parents=True, exist_ok=True)
        (port / name).write_text(text + "\n")


@pytest.fixture
def ports(rig_kubernetes: Kubernetes, tmp_path: pathlib.Path) -> t.Iterator[Ports]:
    found = Ports(rig_kubernetes, tmp_path, "probe")
    found.plant()
    yield found
    found.nothing_left()
    for node in rig_kubernetes.nodes:
        shutil.rmtree(rig_kubernetes.plant(node).parent / "fabric")


def said(done: Done) -> dict[tuple[str, str], tuple[str, str | None]]:
    return {(v["subject"]["id"].replace("lab/", ""), v["check"]): (v["verdict"], v["reason_code"]) for v in done.verdicts}


def test_pods_that_may_not_see_the_fabric_say_so_and_their_ports_are_known(ports: Ports) -> None:
    done = ports.measure(devices=False)
    found = said(done)
    assert done.status != 0, done.output[-3000:]
    assert {found[node, "discovery"] for node in ("kube-01", "kube-02")} == {("UNKNOWN", "no_permission")}, found
    # The first node hears its switch. That of the other one is not known, since its pod has no lldpctl.
    assert found["kube-01", "ports"][0] == "PASS" and found["kube-02", "ports"] == ("UNKNOWN", "cable_unknown")
    reasons = {v["subject"]["id"]: v["reason"] for v in done.verdicts if v["check"] in ("ports", "discovery")}
    assert "a container must be given it" in next(v["reason"] for v in done.verdicts if v["check"] == "discovery"), reasons
    assert {found[node, "optics"] for node in ("kube-01", "kube-02")} == {("SKIPPED", "not_visible")}


def test_pods_that_see_the_devices_draw_up_the_map(ports: Ports) -> None:
    done = ports.measure(devices=True)
    found = said(done)
    assert {found[node, "discovery"][0] for node in ("kube-01", "kube-02")} == {"PASS"}, done.output[-3000:]
    switches = {who for who, check in found if check == "cables" and found[who, check][0] == "PASS"}
    assert {"leaf-1", "leaf-2", "leaf-3", "leaf-4", "spine-1", "spine-2"} <= switches
    discoveries = [m for m in done.journal if m["check"] == "discovery"]
    assert {m["plane"] for m in discoveries} == {"kubernetes"} and len(discoveries) == 2
