# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How objects of ours are known: by which labels, whose they are, and until when.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import time

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import driver

MANAGER = "gpufleet-acceptance"
DOMAIN = "gpufleet.acceptance"
RUN, STAGE, LAUNCH = f"{DOMAIN}/run-id", f"{DOMAIN}/stage", f"{DOMAIN}/launch"
EXPIRES, CONTROLLER, HOST = f"{DOMAIN}/expires-at", f"{DOMAIN}/controller", f"{DOMAIN}/inventory-host"
OURS = f"app.kubernetes.io/managed-by={MANAGER}"
# What our container is called, in a pod that does not say in this annotation that it goes by another name.
CONTAINER, CALLED = "probe", f"{DOMAIN}/container"
# In place of the process that drives a run, where none does.
DETACHED, KEPT = "detached/0/0", "kept/0/0"
# Objects may outlive their deadline by this much before a janitor takes them for abandoned.
GRACE_S = 300


def container(pod: Object) -> str:
    """What our container is called in this pod."""
    return str(((pod.get("metadata") or {}).get("annotations") or {}).get(CALLED) or CONTAINER)


def launched_by(item: Object, host: str) -> bool:
    """Return True if this inventory host launched an object of ours, or if the object does not say who did: older versions did not."""
    return (item["metadata"].get("annotations") or {}).get(HOST) in (None, "", host)


def abandoned(item: Object, now: float | None = None) -> bool:
    """Whether nobody will come for an object of ours: its deadline is over, or whoever drove it, on this machine, is gone."""
    annotations = item["metadata"].get("annotations") or {}
    try:
        if int(annotations.get(EXPIRES, "0")) < (time.time() if now is None else now):
            return True
        # Of a controller elsewhere the deadline will tell.
        return driver.state(str(annotations.get(CONTROLLER, ""))) == "gone"
    except ValueError:
        return True
