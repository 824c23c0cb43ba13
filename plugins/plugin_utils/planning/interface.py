# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of a stage: its role's defaults and argument specs are the whole interface.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible.errors import AnsibleError
from ansible.playbook.role import Role
from ansible.playbook.role.include import RoleInclude
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry as planes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlannedStage
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import manifest as manifests
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage

COMMON = "common"
COMMON_ROLE = "gpufleet.acceptance.common"


class PlanError(RunError):
    """The inventory asks for something that cannot be planned; names the variable, what was found and expected."""


_CONVERSION = re.compile(
    r"(argument|Elements value for option) '(\w+)' is of type \w+(?: found in '([\w.]+)'\.)? .*unable to convert to (\w+)"
)
_CHOICE = re.compile(
    r"value of (\w+) must be (one|one or more) of: (.*)(?:, got: |\. Got no match for: )(.*?)(?: found in (.*))?", re.DOTALL
)
_KINDS = {
    "dict": "a mapping", "list": "a list", "int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text",
}  # fmt: skip


def refusal(message: str, role: str, values: t.Mapping[str, t.Any], hidden: t.Collection[str]) -> str:
    """Return the message of Ansible's validator about a value of the wrong type, or that is no choice, as variable, found and expected."""
    choice = _CHOICE.fullmatch(message)
    if choice:
        name, count, choices, value, outer = choice.groups()
        where = f"{outer.replace(' -> ', ': ')}: {name}" if outer else name
        found = "" if where.split(":")[0] in hidden else f"found {value!r}, "
        return f"{where}: {found}expected {count} of {choices}; see ansible-doc -t role {role}"
    conversion = _CONVERSION.match(message)
    if not conversion:
        return message
    level, name, outer, kind = conversion.groups()
    kind = _KINDS.get(kind, kind) if level == "argument" else f"a list, each of it {_KINDS.get(kind, kind)}"
    top = (outer or name).split(".")[0]
    value_words = f"found {values[top]!r}, " if top in values and top not in hidden else ""
    where = f"{outer}: {name}" if outer else name
    return f"{where}: {value_words}expected {kind}{f' as {name}' if outer else ''}; see ansible-doc -t role {role}"


def structured_text(options: t.Mapping[str, t.Any], values: t.Mapping[str, t.Any], hidden: t.Collection[str]) -> str | None:
    """Return what is wrong if a list or a mapping stands where a text should. Ansible's validator makes a text of its form in Python."""
    for name, value in values.items():
        spec = options[name]
        is_list = spec.get("type") == "list" and isinstance(value, list)
        if spec.get("elements" if is_list else "type") != "str":
            continue
        if any(isinstance(one, (list, dict)) for one in (value if is_list else [value])):
            found = "" if name in hidden else f"found {value!r}, "
            return f"{name}: {found}expected {'a list, each of it ' if is_list else ''}a text"
    return None


class Interface:
    """The variables of one stage, or those that all share: `defaults`, and `options` as Ansible's argument specs have them.

    `entry` is how plan.json writes the stage: {"name", "role"} and where it has them "manifest" and "description".
    """

    def __init__(self, entry: PlannedStage, play: t.Any, manager: t.Any, loader: t.Any, where: str) -> None:
        self.name = str(entry["name"])
        self.entry: PlannedStage = {**entry}
        if entry.get("manifest"):
            manifest, stands_at = manifests.read(entry["manifest"], where)
            planes.require_manifest(manifest, stands_at)
            self.entry["manifest"] = manifest
            self.defaults, self.options = manifests.options(self.name)
            self.stage: Stage = registry.of(self.entry)
            return
        try:
            include = RoleInclude.load(entry["role"], play, variable_manager=manager, loader=loader)
            role = Role.load(include, play, from_include=True, validate=False)
        except AnsibleError as error:
            raise PlanError(f"{where}: role {entry['role']!r} of stage {self.name!r} cannot be loaded: {error}") from error
        self.defaults = dict(role.get_default_vars())
        self.options = dict((role._get_role_argspecs().get("main") or {}).get("options") or {})
        shipped_stage = registry.shipped().get(self.name)
        if shipped_stage is not None and shipped_stage.role == entry["role"]:
            self.stage = shipped_stage
        else:
            self.stage, file = registry.described(self.name, str(entry["role"]), role._role_path)
            if file:
                self.entry["description"] = file
        of_stage = {self.prefix + name: spec for name, spec in self.stage.variables.items()}
        self.options = {**of_stage, **self.options}
        self.defaults = {**{name: spec["default"] for name, spec in of_stage.items()}, **self.defaults}
        if self.name != COMMON and not self.stage.between and f"{self.name}_checks" not in self.defaults:
            raise PlanError(
                f"{where}: role {entry['role']!r} of stage {self.name!r} has no {self.name}_checks in its defaults; "
                f"expected a list of {{check, variant}} that says what the stage measures on a host"
            )

    @property
    def known(self) -> set[str]:
        """Its variables. Those without a spec are the play's alone: a plan is for everybody, and nobody says that they are no secrets."""
        return {*self.options, *(name for name in self.defaults if name.startswith(self.prefix))}

    @property
    def prefix(self) -> str:
        return "acceptance_" if self.name == COMMON else f"{self.name}_"
