# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every observation of every probe says which machine made it, at no cost."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils import gpu, observation, runner
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node
from unit.module_utils.fake_smi import UUID, FakeSmi


@pytest.fixture
def smi(tmp_path: pathlib.Path, fixtures: pathlib.Path) -> FakeSmi:
    (tmp_path / "etc").mkdir()
    found = FakeSmi(tmp_path, fixtures / "h200-x4")
    found.write("etc/machine-id", "0123456789abcdef\n")
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


def test_what_cannot_be_told_is_not_said(smi: FakeSmi, monkeypatch: pytest.MonkeyPatch) -> None:
    smi.write("etc/machine-id", "uninitialized\n")
    assert Node(60, root=str(smi.folder)).identity() == {}
    assert Node(60, root=str(smi.folder / "nowhere")).identity() == {}
    monkeypatch.setenv("GPUFLEET_POD_UID", "0")
    assert Node(60).identity() == {}, "an image's machine-id is that of all its pods"
    smi.write("etc/machine-id", "0123456789abcdef\n")
    assert Node(60, root=str(smi.folder)).identity() == {"machine_id": "0123456789abcdef"}
