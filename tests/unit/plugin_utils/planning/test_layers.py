# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a value was given, over a real inventory with its files: group < host < run (the play, then -e)."""

from __future__ import annotations

import pathlib

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play import Play
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.layers import Layers


@pytest.fixture
def layers(tmp_path: pathlib.Path) -> Layers:
    files = {
        "hosts.yml": "all: {vars: {x: all}, children: {racks: {vars: {x: racks}, children: {r1: {hosts: {n1: {x: n1}, n2: {}}}}}}}",
        "group_vars/r1.yml": "x: file of r1\n",
        "host_vars/n2.yml": "x: file of n2\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    loader = DataLoader()
    loader.set_basedir(str(tmp_path / "elsewhere"))
    inventory = InventoryManager(loader, str(tmp_path / "hosts.yml"))
    manager = VariableManager(loader, inventory)
    return Layers(HostVars(inventory, manager, loader))


def test_every_value_is_there_the_most_general_first(layers: Layers) -> None:
    assert layers.of("n1", "x") == [("group", "all"), ("group", "racks"), ("group", "file of r1"), ("host", "n1")]
    assert layers.of("n2", "x")[-1] == ("host", "file of n2")
    assert layers.of("n1", "y") == []


def test_extra_variables_are_the_run(layers: Layers) -> None:
    layers._manager._extra_vars = {"x": "now"}
    assert layers.of("n1", "x")[-1] == ("run", "now") and layers.variables("n1")["x"] == "now"


def test_variables_of_the_play_are_those_of_all_hosts(layers: Layers) -> None:
    play = Play.load({"hosts": "n1", "vars": {"x": "play", "z": "play"}}, variable_manager=layers._manager, loader=layers._loader)
    of_play = Layers(HostVars(layers._inventory, layers._manager, layers._loader), play)
    assert of_play.of("n1", "x")[-2:] == [("host", "n1"), ("run", "play")] and of_play.variables("n1")["x"] == "play"
    layers._manager._extra_vars = {"x": "now"}
    assert of_play.of("n1", "x")[-2:] == [("run", "play"), ("run", "now")] and of_play.variables("n1")["x"] == "now"
    layers._manager.set_nonpersistent_facts("n1", {"z": "fact"})
    assert of_play.variables("n1")["z"] == "fact"


def test_a_pattern_stands_for_its_hosts_whatever_the_limit_says(layers: Layers) -> None:
    layers._inventory.subset("n1")
    assert layers.matching("r1") == ["n1", "n2"] and layers.matching("r1:!n1") == ["n2"]


def test_groups_that_say_something_of_a_host_are_neither_alone_nor_all(layers: Layers) -> None:
    assert layers.groups("n1") == [], "every host is in these groups"
    layers._inventory.add_group("h100")
    for name, group in (("m1", "h100"), ("m2", "h100"), ("lone", "ungrouped")):
        layers._inventory.add_host(name, group)
    fresh = Layers(HostVars(layers._inventory, layers._manager, layers._loader))
    assert (fresh.groups("n1"), fresh.groups("m1"), fresh.groups("lone")) == (["r1", "racks"], ["h100"], [])
    layers._inventory.subset("m1")
    assert Layers(HostVars(layers._inventory, layers._manager, layers._loader)).groups("m1") == ["h100"], "whatever --limit says"
