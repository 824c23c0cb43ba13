# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Modules take the options that they document, and shared options are documented once."""

from __future__ import annotations

import collections
import importlib
import json
import pathlib
import typing as t

import pytest
import yaml
from ansible.module_utils import basic

PACKAGE = "ansible_collections.gpufleet.acceptance.plugins"
PLUGINS = pathlib.Path(__file__).resolve().parents[2] / "plugins"
NAMES = sorted(path.stem for path in (PLUGINS / "modules").glob("*.py") if path.stem != "__init__")
# Those that take their arguments themselves; the others are doors of the controller, whose actions do.
TAKING = [name for name in NAMES if "\ndef main(" in (PLUGINS / "modules" / f"{name}.py").read_text(encoding="utf-8")]


class Taken(Exception):
    """In place of a module that runs."""


def written(name: str) -> dict[str, t.Any]:
    """A module's documentation as it stands in its file."""
    module = importlib.import_module(f"{PACKAGE}.modules.{name}")
    return t.cast("dict[str, t.Any]", yaml.safe_load(module.DOCUMENTATION))


def documented(name: str) -> dict[str, t.Any]:
    """The options of a module, with those of the fragments that it names."""
    own = written(name)
    fragments = own.get("extends_documentation_fragment") or []
    found: dict[str, t.Any] = {}
    for fragment in [fragments] if isinstance(fragments, str) else fragments:
        file, _dot, section = fragment.removeprefix("gpufleet.acceptance.").partition(".")
        holder = importlib.import_module(f"{PACKAGE}.doc_fragments.{file}").ModuleDocFragment
        of = yaml.safe_load(getattr(holder, section.upper() or "DOCUMENTATION")).get("options", {})
        assert not found.keys() & of.keys(), f"{name}: two of its fragments have {sorted(found.keys() & of.keys())}"
        found.update(of)
    return {**found, **(own.get("options") or {})}


def essence(options: dict[str, t.Any], sub: str) -> dict[str, t.Any]:
    """What of options can be wrong."""
    return {
        name: {
            "type": of.get("type", "str"),
            "required": bool(of.get("required")),
            # Ansible fills the defaults of suboptions into that of their option, in the very dict, wherever arguments are validated.
            "default": of.get("default") is not None if of.get(sub) else of.get("default"),
            "choices": of.get("choices"),
            "elements": of.get("elements"),
            "aliases": of.get("aliases") or [],
            "options": essence(of.get(sub) or {}, sub),
        }
        for name, of in options.items()
    }


@pytest.mark.parametrize("name", TAKING)
def test_a_module_takes_what_it_documents(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict[str, t.Any] = {}

    def take(_self: t.Any, argument_spec: dict[str, t.Any], **_more: t.Any) -> None:
        taken.update(argument_spec)
        raise Taken

    module = importlib.import_module(f"{PACKAGE}.modules.{name}")
    monkeypatch.setattr(basic.AnsibleModule, "__init__", take)
    with pytest.raises(Taken):
        module.main()
    assert essence(taken, "options") == essence(documented(name), "suboptions")


def test_an_option_of_two_modules_and_attributes_of_three_are_a_fragment() -> None:
    said: dict[str, list[str]] = collections.defaultdict(list)
    for name in NAMES:
        own = written(name)
        blocks = {**(own.get("options") or {}), "attributes": own.get("attributes")}
        for option, of in blocks.items():
            if of:
                said[f"{option}: {json.dumps(of, sort_keys=True)}"].append(name)
    most = {block: 2 if block.startswith("attributes: ") else 1 for block in said}
    assert {block: names for block, names in said.items() if len(names) > most[block]} == {}


def test_what_probes_return_is_said_in_the_same_words() -> None:
    """RETURN may name a fragment from ansible-core 2.20 on, and ansible-doc of 2.19 fails on a module that does (ansible/ansible#85644).
    Until 2.19 is not supported any more each module has the whole block: of a node, of a group, or of a command. ddp names its checks."""
    of_node = [
        "dcgm", "fabric_map", "gemm", "gpu_memory", "hccl_local", "host_health", "measure", "nccl_tests", "nic_loopback", "perftest_rounds",
        "rdma_ports", "soak", "stack_facts", "storage", "train",
    ]  # fmt: skip
    for family in (of_node, ["ddp", "hccl", "nccl_fabric"], ["kube_group_job", "mpijob"]):
        blocks = [yaml.safe_load(importlib.import_module(f"{PACKAGE}.modules.{name}").RETURN) for name in family]
        for block in blocks:
            block.get("observations", {"contains": {"check": ""}})["contains"].pop("check")
        assert all(block == blocks[0] for block in blocks), family


@pytest.mark.parametrize("group", ["history", "kube", "probe"])
def test_an_action_group_has_the_modules_that_share_the_options_of_its_fragment(group: str) -> None:
    """A default for a group would be refused by a module without the option."""
    groups = yaml.safe_load((PLUGINS.parent / "meta/runtime.yml").read_text())["action_groups"]
    extended = {name: written(name).get("extends_documentation_fragment") or [] for name in NAMES}
    fragments = {name: [found] if isinstance(found, str) else found for name, found in extended.items()}
    sharing = [name for name, found in fragments.items() if any(one.split(".")[2] == group for one in found)]
    assert groups[group] == sharing
