# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The alerts that are shipped for a system that shares GPUs, and queries of them to a Prometheus that reads its schedulers.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import re
import typing as t
import urllib.error
import urllib.parse

from ansible.module_utils.common.yaml import yaml_load
from ansible.module_utils.urls import open_url
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import AcceptanceError, RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cases import FILES
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.system import System

# The ability that a system has if the inventory names a Prometheus.
PROMETHEUS = "prometheus"
ANSWER_S = 10
# {label: value} of each series for which a query holds.
Labels = t.List[t.Dict[str, str]]
Ask = t.Callable[[str], Labels]


# Prometheus renames a label of a series with this prefix if the target has a label of that name, unless it honours labels.
EXPORTED = "exported_"


class NoAnswer(AcceptanceError):
    """A Prometheus did not answer a query, or its answer is no vector. The message says why."""


def conditions(system: System) -> dict[str, str]:
    """Return {alert: the PromQL expression that raises it}; empty if no rules are shipped for the system."""
    path = FILES / "rules" / f"{system.name}.yml"
    if not path.is_file():
        return {}
    groups = yaml_load(path.read_text(encoding="utf-8"))["groups"]
    metric_prefix = re.compile(rf"\b{re.escape(system.name)}_")
    return {
        rule["alert"]: metric_prefix.sub(system.metrics, rule["expr"]) for group in groups for rule in group["rules"] if "alert" in rule
    }


def own_labels(labels: t.Mapping[str, str]) -> dict[str, str]:
    """Return the labels that the system gave a series, also if the scrape renamed them. A usual scrape of pods gives every target the
    labels pod and namespace of the scheduler."""
    renamed = {name[len(EXPORTED) :]: value for name, value in labels.items() if name.startswith(EXPORTED)}
    return {**{name: value for name, value in labels.items() if not name.startswith(EXPORTED)}, **renamed}


def asker(address: str) -> Ask:
    """Return a function that queries the Prometheus at an address. Raise RunError if the text is no such address."""
    parts = urllib.parse.urlsplit(address)
    if "@" in parts.netloc:  # a password would be written to results and logs
        raise RunError("gpu_sharing_prometheus: found a user or a password in the address, expected one that answers without")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise RunError(
            f"gpu_sharing_prometheus: found {address!r}, expected the address of a Prometheus, like http://prometheus.example:9090"
        )
    base = address.rstrip("/")

    def ask(expression: str) -> Labels:
        """Return the labels of every series for which the expression holds. Raise NoAnswer if the query fails."""
        try:
            with open_url(f"{base}/api/v1/query?{urllib.parse.urlencode({'query': expression})}", timeout=ANSWER_S) as response:
                answer = json.loads(response.read())
            if answer["data"]["resultType"] != "vector":
                raise NoAnswer(f"{base}: {expression}: the answer is no vector")
            return [dict(series["metric"]) for series in answer["data"]["result"]]
        except (OSError, ValueError, KeyError, TypeError, urllib.error.URLError) as error:
            raise NoAnswer(f"{base}: {type(error).__name__}: {error}"[:300]) from error

    return ask
