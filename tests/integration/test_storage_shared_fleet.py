# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage storage_together over sshd hosts that really share a file system: a folder of the first host, which all mount by sshfs. One
host has a slow way to it, one has not mounted it, one has another folder there, one reads other data than was written. Locks of sshfs do
not hold between hosts, which is found, too."""

from __future__ import annotations

import json
import pathlib
import subprocess
import typing as t

import pytest
import test_fabric_fleet as fabric
from rigs import common, storage
from rigs.fleet.fleet import Fleet

pytestmark = [pytest.mark.fleet, pytest.mark.long]
ROOT = pathlib.Path(__file__).resolve().parents[2]
PATH, EXPORT = "/mnt/shared", "/var/lib/export"
SLOW, UNMOUNTED, ELSEWHERE, WRONG = "gpu-04", "gpu-05", "gpu-06", "gpu-07"
GOOD = ("gpu-01", "gpu-02", "gpu-03")
# A way to the server with so many bytes a second, for ssh's ProxyCommand.
NARROW = """#!/usr/bin/python3
import os, socket, sys, threading, time
peer = socket.create_connection((sys.argv[1], 22))
def carry(read, write):
    while True:
        data = read(65536)
        if not data:
            os._exit(0)
        write(data)
        time.sleep(len(data) / 3e6)
threading.Thread(target=carry, args=(lambda n: os.read(0, n), peer.sendall), daemon=True).start()
carry(peer.recv, lambda data: sys.stdout.buffer.write(data) and sys.stdout.flush())
"""
# A server whose answers to large reads have a wrong last byte (draft-ietf-secsh-filexfer-02: SSH_FXP_DATA is 103).
LYING = """#!/usr/bin/python3
import struct, subprocess, sys
server = subprocess.Popen(["/usr/lib/openssh/sftp-server"], stdin=0, stdout=subprocess.PIPE)
while True:
    head = server.stdout.read(4)
    if len(head) < 4:
        break
    body = bytearray(server.stdout.read(struct.unpack(">I", head)[0]))
    if body[0] == 103 and len(body) > 30000:
        body[-1] ^= 1
    sys.stdout.buffer.write(head + body)
    sys.stdout.flush()
"""


@pytest.fixture(scope="module")
def hosts(rig_fleet: Fleet) -> t.Iterator[Fleet]:
    common.need_packages(storage.PACKAGES)
    rig_fleet.up(7)
    server = rig_fleet.address("gpu-01")
    for folder in ("export", "other"):
        (rig_fleet.var_lib("gpu-01") / folder).mkdir()
    lying = rig_fleet.var_lib("gpu-01") / "lying"
    lying.write_text(LYING)
    lying.chmod(0o755)
    before = fabric.left(rig_fleet)
    for host in rig_fleet.hosts:
        rig_fleet.inside(host, "mkdir", "-p", PATH)
        options = ["-o", "dir_cache=no", "-o", "StrictHostKeyChecking=no", "-o", "reconnect"]
        if host == SLOW:
            narrow = rig_fleet.plant(host) / "bin/narrow"
            narrow.write_text(NARROW)
            narrow.chmod(0o755)
            options += ["-o", f"ProxyCommand=/opt/simulated/bin/narrow {server}"]
        if host == WRONG:
            options += ["-o", "sftp_server=/var/lib/lying"]
        if host != UNMOUNTED:
            rig_fleet.inside(host, "sshfs", f"root@{server}:{'/var/lib/other' if host == ELSEWHERE else EXPORT}", PATH, *options)
    yield rig_fleet
    assert [path for folder in ("export", "other") for path in (rig_fleet.var_lib("gpu-01") / folder).iterdir()] == []
    for host in rig_fleet.hosts:
        if host != UNMOUNTED:
            rig_fleet.inside(host, "umount", PATH)
    fabric.nothing_left(rig_fleet, before=before)


def test_each_fault_of_a_shared_file_system_has_its_node_and_its_code(hosts: Fleet, tmp_path: pathlib.Path) -> None:
    variables = {
        "acceptance_results_dir": str(tmp_path), "acceptance_stages": ["storage_together"], "acceptance_history": False,
        "acceptance_storage": [{"name": "home", "path": PATH, "shared": True}], "storage_together_gib": 0.05, "storage_together_share": 50,
        "storage_together_jobs": 1, "storage_together_depth": 1, "storage_together_seconds": 4, "storage_together_patience": 5,
        "storage_together_window": 45, "storage_together_answer_timeout": 30,
    }  # fmt: skip
    command = ["ansible-playbook", "acceptance.yml", "-i", str(hosts.inventory), "-f", "7", "-e", json.dumps(variables)]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900, check=False)
    run = fabric.finish(tmp_path, done.returncode, done.stdout + done.stderr)
    found = {(v["check"], v["subject"]["id"]): v for v in run.verdicts}
    words = {key: (v["verdict"], v["reason_code"], v["reason"]) for key, v in found.items()}
    assert words["coherent", UNMOUNTED][:2] == ("FAIL", "mount_missing"), words
    assert {words[check, UNMOUNTED][:2] for check in ("together", "checkpoint", "model_load")} == {("UNKNOWN", "mount_missing")}
    assert words["coherent", ELSEWHERE][:2] == ("FAIL", "mount_differs"), words
    assert {words[check, WRONG][:2] for check in ("coherent", "checkpoint", "model_load")} == {("FAIL", "wrong_results")}, words
    for host in GOOD:
        assert words["together", host][0] == "PASS", words
        assert words["model_load", host][0] == "PASS", words
    assert {words["coherent", host][:2] for host in GOOD[1:]} == {("FAIL", "file_system")}, words
    assert all("locks do not hold between nodes" in words["coherent", host][2] for host in GOOD[1:])
    assert words["together", SLOW][1] == "below_neighbours", words
    assert {key[1] for key, (_verdict, code, _reason) in words.items() if code == "below_neighbours"} == {SLOW}
    curve = next(v for key, v in found.items() if key[0] == "curve")
    assert (curve["verdict"], curve["reason_code"]) == ("UNKNOWN", "incomplete"), "a node without the mount has no rate"
    (record,) = [m for m in run.journal if m["check"] == "coherent" and m["subject"]["id"] == "gpu-02"]
    assert record["context"]["replaced"]["generations"] > 1 and record["context"]["replaced"]["missing"] == 0
