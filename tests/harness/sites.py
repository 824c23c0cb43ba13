# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real inventory, a real play and the roles of the collection, and planners over them as a play makes them."""

from __future__ import annotations

import importlib
import pathlib
import sys
import types
import typing as t

import yaml
from ansible import context
from ansible.inventory.manager import InventoryManager
from ansible.module_utils.common.collections import ImmutableDict
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play import Play
from ansible.plugins.loader import init_plugin_loader
from ansible.utils.collection_loader._collection_finder import _AnsibleCollectionFinder
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = "ansible_collections.gpufleet.acceptance.plugins.plugin_utils"
MODULES = (
    "judging.expectations", "judging.waivers", "planes.kubernetes.plane", "planning.estimate", "planning.foreseeable", "planning.inputs",
    "planning.interface", "planning.kept", "planning.planner", "planning.prepare", "planning.todo", "records.mailbox", "records.plain",
)  # fmt: skip
HOSTS = ("gpu-01", "gpu-02", "gpu-03")
ROLE = {
    "defaults/main.yml": {"disk_checks": "{{ {'check': disk_reads} | dict2items | map(attribute='value') | first }}", "disk_size": "1G",
                          "disk_reads": [{"check": "read"}, {"check": "write", "variant": "size=1G"}]},
    "meta/argument_specs.yml": {"argument_specs": {"main": {"options": {
        "disk_size": {"type": "str"}, "disk_key": {"type": "str", "no_log": True}, "disk_sample": {"type": "dict"}}}}},
    "tasks/main.yml": [],
}  # fmt: skip
DISK = {"name": "disk", "role": "disk"}


class Site:
    """An inventory with a team's own stage `disk`, and planners over it as the play makes them."""

    def __init__(self, folder: pathlib.Path, planning: types.SimpleNamespace) -> None:
        self.folder = folder
        self.of = planning
        for name, content in ROLE.items():
            path = folder / "roles/disk" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(yaml.safe_dump(content))

    def planner(
        self, variables: dict[str, t.Any] | None = None, hosts: dict[str, t.Any] | None = None, extra: dict[str, t.Any] | None = None,
        limit: str | None = None, tags: t.Iterable[str] = (), skip: t.Iterable[str] = (), text: str = "", vault: t.Any = None,
    ) -> t.Any:  # fmt: skip
        """Return a planner over hosts with these variables. `text` is an inventory as a user wrote it, in place of `hosts` and `variables`:
        what YAML makes of it reaches the planner as it does in a play. `vault` are secrets of ansible-vault, [(id, secret)]."""
        inventory = {"all": {"hosts": hosts or {host: {} for host in HOSTS}, "vars": variables or {}}}
        (self.folder / "hosts.yml").write_text(text or yaml.safe_dump(inventory))
        loader = DataLoader()
        loader.set_basedir(str(self.folder))
        loader.set_vault_secrets(vault or [])
        made = InventoryManager(loader, str(self.folder / "hosts.yml"))
        made.subset(limit)
        manager = VariableManager(loader, made)
        manager._extra_vars = extra or {}
        play = Play.load({"name": "accept", "hosts": "all", "tasks": []}, variable_manager=manager, loader=loader)
        play.only_tags, play.skip_tags = frozenset(tags), frozenset(skip)
        here = [host.name for host in made.get_hosts("all")]
        return self.of.planner.Planner(play, loader, {"hostvars": HostVars(made, manager, loader), "ansible_play_hosts_all": here})


def planning(
    collections: pathlib.Path = ROOT / ".collections", *modules: str, beside: t.Iterable[pathlib.Path] = ()
) -> t.Iterator[types.SimpleNamespace]:
    """The modules under test and `modules`, out of the folder `collections`, as ansible-playbook imports them: by its own finder, which
    knows roles and modules of collections, those of the folders `beside` too. Other tests have them from Python itself, and get theirs
    back."""
    others = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "ansible_collections"}
    arguments, context.CLIARGS = context.CLIARGS, ImmutableDict({})
    init_plugin_loader([str(folder) for folder in (collections, *beside)])
    try:
        names = (*MODULES, *modules)
        yield types.SimpleNamespace(**{name.rpartition(".")[2]: importlib.import_module(f"{PACKAGE}.{name}") for name in names})
    finally:
        _AnsibleCollectionFinder._remove()
        context.CLIARGS = arguments
        for name in [name for name in sys.modules if name.split(".")[0] == "ansible_collections"]:
            del sys.modules[name]
        sys.modules.update(others)
