# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An inventory of which Ansible can read a part only is refused, with the settings that an installed collection has."""

from __future__ import annotations

import pathlib

import pytest
from ansible import constants
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import sources

GOOD = "all:\n  hosts:\n    gpu-01:\n"


@pytest.fixture(autouse=True)
def defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "INVENTORY_ANY_UNPARSED_IS_FAILED", False)


def test_a_second_source_that_is_not_there_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    (tmp_path / "hosts.yml").write_text(GOOD)
    with pytest.raises(AnsibleError, match=r"nowhere; its hosts would be missing from the acceptance"):
        sources.refuse_unread([str(tmp_path / "hosts.yml"), str(tmp_path / "nowhere")], DataLoader())
    assert constants.INVENTORY_ANY_UNPARSED_IS_FAILED is False


def test_a_file_of_a_folder_that_cannot_be_read_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.yml").write_text(GOOD)
    (tmp_path / "b.yml").write_text("all:\n  hosts: {\n")
    with pytest.raises(AnsibleError, match=r"b\.yml; its hosts"):
        sources.refuse_unread([str(tmp_path)], DataLoader())


def test_sources_that_can_be_read_pass(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.yml").write_text(GOOD)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text("x: 1\n")
    sources.refuse_unread([str(tmp_path), "gpu-02,"], DataLoader())


def test_a_single_file_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sources, "InventoryManager")
    sources.refuse_unread(["/etc/ansible/hosts"], DataLoader())
    sources.refuse_unread([], DataLoader())
