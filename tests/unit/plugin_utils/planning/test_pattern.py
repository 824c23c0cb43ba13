# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts are failed by their names: each that is let in must name itself, or a run that refuses it ends with status 0."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import pattern
from hypothesis import example, given
from hypothesis import strategies as st


@pytest.mark.parametrize("name", ["{{ x }}", "a b", "a,b", "!a", "&a", "~a", "gpu-*", "gpu[1", "{%x%}", " a", "a:b"])
def test_a_name_that_ansible_reads_as_something_else_is_refused(name: str) -> None:
    with pytest.raises(AnsibleError) as refusal:
        pattern.hosts("all", {"all": [name, "good"]}, None, DataLoader())
    assert str(refusal.value).startswith(f"the inventory has a host {name!r}; expected a name")
    assert "keep that file outside the inventory's folder" in str(refusal.value)


@given(st.text(alphabet="ab01.-_:/~!&,*?[]{}%@ \t", min_size=1, max_size=12))
@example("gpu-01.lab.example.com")
@example("2001:db8::1")
@example("../x")
def test_a_name_that_is_let_in_names_itself(name: str) -> None:
    try:
        assert pattern.hosts("all", {"all": [name]}, None, DataLoader()) == [name]
    except AnsibleError:
        return
    inventory = InventoryManager(loader=DataLoader(), parse=False)
    inventory.add_host(name, group="all")
    inventory.add_host("other", group="all")
    assert [str(host) for host in inventory.list_hosts([name])] == [name]


@pytest.mark.parametrize("name", ["gpu-01", "gpu-01.lab.example.com", "10.0.0.1", "2001:db8::1", "../x", "user@host", "k8s_a"])
def test_names_of_machines_are_let_in(name: str) -> None:
    assert pattern.hosts("all", {"all": [name, "other"]}, None, DataLoader()) == [name, "other"]
