# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors of an inventory that can be known before anything starts, besides those of a single role.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import CONTAINERS
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry as planes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage

# The variable with one network; stages have some with a list of them (Stage.networks).
NETWORK = "acceptance_fabric_network"
ADDRESS = "acceptance_fabric_address"
# Where the tools under test live, and its keys.
EXEC, EXEC_KEYS = "acceptance_exec", ("kind", "image", "args")
# What makes a machine another one behind the same address, each by its names from the strongest to the weakest: another port, another
# way there, another kind of connection.
HOST = ("ansible_ssh_host", "ansible_host")
WAY = (
    ("ansible_connection",),
    ("ansible_ssh_port", "ansible_port"),
    ("ansible_ssh_common_args",),
    ("ansible_ssh_extra_args",),
    ("ansible_ssh_args",),
    ("ansible_paramiko_proxy_command",),
    ("ansible_docker_extra_args",),
)
# Connections that stay on the controller: nothing is reached by an address.
WITHOUT_ADDRESS = ("local", "ansible.builtin.local")


def problem(
    settings: t.Mapping[str, Variables], stages: t.Sequence[Stage], variables: t.Callable[[str], t.Mapping[str, t.Any]],
    template: t.Callable[[str, str, t.Any], t.Any],
) -> str | None:  # fmt: skip
    """Return the first error of an inventory, None if nothing is wrong. `settings` are those of each host, `variables` yields the raw
    variables of a host, `template` (host, name, value) templates one of them."""
    return (
        _of_networks(settings)
        or _of_containers(settings)
        or _of_no_host(settings)
        or _of_planes(settings, stages)
        or _of_twins(settings, variables, template)
    )


def _of_networks(settings: t.Mapping[str, Variables]) -> str | None:
    """Return which network of a host is none. Hosts mostly share their values: each is read once."""
    checked: set[tuple[str, str]] = set()
    lists = [f"{stage.name}_{name}" for stage in registry.shipped().values() for name in stage.networks]
    for host, values in settings.items():
        networks = [(NETWORK, values.get(NETWORK)), *((name, network) for name in lists for network in values.get(name) or ())]
        for name, value in networks:
            if value in (None, "") or (name, str(value)) in checked:
                continue
            checked.add((name, str(value)))
            try:
                ipaddress.ip_network(str(value), strict=False)
            except ValueError:
                return f"{host}: {name}: found {value!r}, expected a network with its prefix length, like 10.1.30.0/24 or fd00:30::/64"
    return None


def _of_containers(settings: t.Mapping[str, Variables]) -> str | None:
    """Return what is wrong with where the tools of a host are said to live."""
    for host, values in settings.items():
        where = values.get(EXEC) or {}
        kind = where.get("kind", "host")
        unknown = sorted(set(map(str, where)) - set(EXEC_KEYS))
        if unknown:
            return f"{host}: {EXEC}.{unknown[0]}: found an unknown key, expected any of {', '.join(EXEC_KEYS)}"
        if kind not in ("host", *CONTAINERS):
            return f"{host}: {EXEC}.kind: found {kind!r}, expected one of {', '.join(('host', *CONTAINERS))}"
        if kind != "host" and not where.get("image"):
            return f"{host}: {EXEC}.image: found nothing, expected the image that {kind} starts"
    return None


def _of_no_host(settings: t.Mapping[str, Variables]) -> str | None:
    """Return which network has none of the addresses that the inventory gives, if it gives those of all hosts of that network. Addresses
    that the stage stack has to find, and names, are known to nobody yet."""
    of: dict[str, dict[str, str]] = {}
    for host, values in settings.items():
        if values.get(NETWORK):
            of.setdefault(str(values[NETWORK]), {})[host] = str(values.get(ADDRESS) or "")
    for network, address_of in of.items():
        within = ipaddress.ip_network(network, strict=False)
        try:
            if any(ipaddress.ip_address(address) in within for address in address_of.values()):
                continue
        except ValueError:
            continue
        examples = ", ".join(f"{host} {address}" for host, address in list(address_of.items())[:4])
        hidden_text = f" and {len(address_of) - 4} more" if len(address_of) > 4 else ""
        return (
            f"{NETWORK}: no host has an address in {network}; {ADDRESS} says {examples}{hidden_text}; expected the network of those "
            "addresses: correct one of the two variables"
        )
    return None


def _of_planes(settings: t.Mapping[str, Variables], stages: t.Sequence[Stage]) -> str | None:
    """Return what a plane finds wrong with the settings of one of its hosts."""
    checked: set[int] = set()
    for host, values in settings.items():
        if id(values) not in checked:  # hosts with the same settings share them
            checked.add(id(values))
            wrong = planes.of(values, host).problem(host, values, stages)
            if wrong:
                return f"{host}: {wrong.removeprefix(f'{host}: ')}"
    return None


def _of_twins(
    settings: t.Mapping[str, Variables], variables: t.Callable[[str], t.Mapping[str, t.Any]],
    template: t.Callable[[str, str, t.Any], t.Any],
) -> str | None:  # fmt: skip
    """Return which two names stand for one machine: it would be measured twice, and its tests would disturb each other."""
    reached: dict[tuple[str, ...], str] = {}
    for host, values in settings.items():
        if planes.of(values, host).reachability_domain(host):
            continue
        host_variables = variables(host)

        def first(names: t.Iterable[str], host: str = host, host_variables: t.Mapping[str, t.Any] = host_variables) -> str:
            name = next((name for name in names if host_variables.get(name) not in (None, "")), None)
            return "" if name is None else str(template(host, name, host_variables[name]))

        connection = tuple(map(first, WAY))
        if connection[0] in WITHOUT_ADDRESS:
            continue
        address = first(HOST) or host
        twin = reached.setdefault((address.lower().rstrip("."), *connection), host)
        if twin != host:
            return (
                f"ansible_host: {twin} and {host} are the same machine, {address}; expected one name for each machine: correct the "
                "address of one of them, or take one out (another ansible_port or other SSH options make it another machine)"
            )
    return None
