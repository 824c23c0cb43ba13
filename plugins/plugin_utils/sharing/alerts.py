# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The alerts that are shipped for a system that shares GPUs, and a Prometheus that reads its schedulers, asked whether they hold.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import re
import typing as t
import urllib.error
import urllib.parse

import yaml
from ansible.module_utils.urls import open_url
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cases import FILES
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.system import System

# What a system has where somebody names a Prometheus that reads its schedulers.
PROMETHEUS = "prometheus"
ANSWER_S = 10
# What holds: {label: value} of each element of an answer.
Held = t.List[t.Dict[str, str]]
Ask = t.Callable[[str], Held]


class NoAnswer(Exception):
    """A Prometheus did not answer a query, or not with what a query is answered with; says why."""


def conditions(system: System) -> dict[str, str]:
    """{alert: the expression that holds where it is to be raised}; nothing for a system that no rules are shipped for."""
    path = FILES / "rules" / f"{system.name}.yml"
    if not path.is_file():
        return {}
    groups = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    own = re.compile(rf"\b{re.escape(system.name)}_")
    return {rule["alert"]: own.sub(system.metrics, rule["expr"]) for group in groups for rule in group["rules"] if "alert" in rule}


def asker(address: str) -> Ask:
    """RunError for what is no address of a Prometheus."""
    parts = urllib.parse.urlsplit(address)
    if "@" in parts.netloc:  # it would stand in results and logs
        raise RunError("gpu_sharing_prometheus: found a user or a password in the address, expected one that answers without")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise RunError(f"gpu_sharing_prometheus: found {address!r}, expected the address of a Prometheus, like http://prometheus.example:9090")
    base = address.rstrip("/")

    def ask(expression: str) -> Held:
        """NoAnswer where nobody knows."""
        try:
            with open_url(f"{base}/api/v1/query?{urllib.parse.urlencode({'query': expression})}", timeout=ANSWER_S) as response:
                answer = json.loads(response.read())
            if answer["data"]["resultType"] != "vector":
                raise NoAnswer(f"{base}: {expression}: the answer is no vector")
            return [dict(one["metric"]) for one in answer["data"]["result"]]
        except (OSError, ValueError, KeyError, TypeError, urllib.error.URLError) as error:
            raise NoAnswer(f"{base}: {type(error).__name__}: {error}"[:300]) from error

    return ask
