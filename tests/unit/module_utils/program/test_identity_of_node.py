# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every observation of every probe says which machine made it, at no cost."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import gpu
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.fake_smi import UUID, FakeSmi


@pytest.fixture
def smi(tmp_path: pathlib.Path, fixtures: pathlib.Path) -> FakeSmi:
    (tmp_path / "etc").mkdir()
    found = FakeSmi(tmp_path, fixtures / "h200-x4")
    found.write("etc/machine-id", "0123456789abcdef\n")
    # As in a sandbox whose /proc does not say since when its kernel runs.
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    found.write("proc/sys/kernel/random/boot_id", "\n")
    return found


def test_observations_are_signed_whatever_the_probe(smi: FakeSmi) -> None:
    node = Node(60, root=str(smi.folder), tools={"nvidia_smi": smi.path})
    one, two = runner.signed(iter([observation.measured("a", context={"gpu": "x"}), observation.failed("b", "timeout", "late")]), node)
    assert one["context"] == {"gpu": "x", "identity": {"machine_id": "0123456789abcdef"}} and two["context"]["identity"]
    gpu.snapshot(node)
    (seen,) = runner.signed([observation.measured("a")], node)
    assert seen["context"]["identity"]["gpu_uuids"] == [UUID.format(i) for i in range(4)]
    assert smi.calls() == ["-q -x"], "nobody is asked for it"
    smi.write("q.xml", "what is this")
    gpu.snapshot(node)
    assert len(node.identity()["gpu_uuids"]) == 4, "a tool that fails takes nothing back"


def test_an_identity_that_cannot_be_read_is_left_out(smi: FakeSmi, monkeypatch: pytest.MonkeyPatch) -> None:
    smi.write("etc/machine-id", "uninitialized\n")
    assert Node(60, root=str(smi.folder)).identity() == {}
    own_boot = Node(60).boot()
    assert Node(60, root=str(smi.folder / "nowhere")).identity() == own_boot
    monkeypatch.setenv("GPUFLEET_POD_UID", "0")
    assert Node(60).identity() == own_boot, "an image's machine-id is that of all its pods"
    smi.write("etc/machine-id", "0123456789abcdef\n")
    assert Node(60, root=str(smi.folder)).identity() == {"machine_id": "0123456789abcdef"}


def test_the_boot_of_the_machine_is_part_of_its_identity(smi: FakeSmi) -> None:
    smi.write("proc/sys/kernel/random/boot_id", "0a1b2c3d-0000-4000-8000-000000000000\n")
    boot = {"boot_id": "0a1b2c3d-0000-4000-8000-000000000000"}
    assert Node(60, root=str(smi.folder)).boot() == {**boot, "booted": None}, "never the start of another kernel"
    smi.write("proc/stat", "cpu  1 2 3\nintr 5\nctxt 9\nbtime 1795500000\nprocesses 7\n")
    node = Node(60, root=str(smi.folder))
    assert node.identity() == {"machine_id": "0123456789abcdef", **boot, "booted": 1795500000}
    smi.write("proc/sys/kernel/random/boot_id", "another\n")
    assert node.identity()["boot_id"] == boot["boot_id"], "it is read once: a process does not outlive its boot"
    own = Node(60).boot()
    assert len(own["boot_id"]) == 36 and own["booted"] > 1e9
