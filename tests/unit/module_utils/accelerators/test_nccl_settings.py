# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL's settings of a machine, in the order in which NCCL looks for them."""

from __future__ import annotations

import os
import pathlib
import pwd

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nccl_settings
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import collective as fabric
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import group
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

HOME = pwd.getpwuid(os.geteuid()).pw_dir.lstrip("/")


@pytest.fixture
def root(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    for name in [name for name in os.environ if name.startswith("NCCL_")]:
        monkeypatch.delenv(name)
    for path, text in {
        "etc/nccl.conf": "# ours\nNCCL_ALGO=Ring\n NCCL_DEBUG = WARN\nOTHER=1\nbroken\n",
        f"{HOME}/.nccl.conf": "NCCL_ALGO=Tree\nNCCL_NVLS_ENABLE=0\n",
        "opt/own.conf": "NCCL_ALGO=NVLS\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_the_first_that_names_a_setting_has_the_say(root: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(60, root=str(root))
    assert nccl_settings.of_machine(node, {}) == {"NCCL_ALGO": "Tree", "NCCL_NVLS_ENABLE": "0", "NCCL_DEBUG": "WARN"}
    given = nccl_settings.of_machine(node, {"NCCL_ALGO": "Ring"})
    assert given == {"NCCL_NVLS_ENABLE": "0", "NCCL_DEBUG": "WARN"}, "what the run says is not the machine's"
    found = nccl_settings.of_machine(node, {"NCCL_CONF_FILE": "/opt/own.conf"})
    assert found == {"NCCL_ALGO": "NVLS", "NCCL_DEBUG": "WARN"}, "in place of the user's own file"
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    assert nccl_settings.of_machine(node, {})["NCCL_ALGO"] == "Ring"


def test_a_user_that_the_machine_does_not_know_has_no_file_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(nccl_settings.pwd, "getpwuid", unknown)
    assert nccl_settings.in_files({"/etc/nccl.conf": "NCCL_DEBUG=WARN\n"}.get) == {"NCCL_DEBUG": "WARN"}


def test_a_container_and_a_pod_have_files_of_their_own(root: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = Node(60, root=str(root), exec={"kind": "docker", "image": "x"})
    assert nccl_settings.of_machine(docker, {}) == {}
    assert nccl_settings.of_machine(Node(60, root=str(root), exec={"kind": "apptainer", "image": "x"}), {}) != {}
    monkeypatch.setenv("GPUFLEET_POD_UID", "0")
    assert "NCCL_NVLS_ENABLE" not in nccl_settings.of_machine(Node(60, root=str(root)), {}), "the host's are not those of the image"


def seats(*settings: dict[str, str] | None) -> list[group.GroupMember]:
    return [group.GroupMember(f"gpu-{n}", "", nccl=one) for n, one in enumerate(settings)]


def test_members_of_a_group_with_other_settings_are_findings() -> None:
    assert fabric.settings_that_differ(seats({"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Ring"})) == []
    assert fabric.settings_that_differ(seats(None, {"NCCL_ALGO": "Ring"})) == [], "a node that said nothing differs from none"
    (found,) = fabric.settings_that_differ(seats({}, {"NCCL_NVLS_ENABLE": "0"}, {}))
    assert found == {"code": "settings_differ", "text": "NCCL_NVLS_ENABLE of the nodes themselves is 0 on gpu-1, not set on gpu-0, gpu-2"}


def test_one_member_alone_selects_no_expectation_for_its_group(root: pathlib.Path) -> None:
    shared = fabric.GroupHead._shared
    head = fabric.GroupHead.__new__(fabric.GroupHead)
    head.node, head.env = Node(60, root=str(root)), {}
    assert shared(head, seats({"NCCL_NVLS_ENABLE": "0"}, {})) == {}
    assert shared(head, seats({"NCCL_NVLS_ENABLE": "0"}, {"NCCL_NVLS_ENABLE": "0", "NCCL_ALGO": "x"})) == {"NCCL_NVLS_ENABLE": "0"}
    assert shared(head, seats(None, None))["NCCL_ALGO"] == "Tree", "nodes without a half of their own: what the head has"
