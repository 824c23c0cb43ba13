# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The labels and annotations of our objects: run, stage, launch, controller and deadline.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import time

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import driver

MANAGER = "gpufleet-acceptance"
DOMAIN = "gpufleet.acceptance"
RUN, STAGE, LAUNCH = f"{DOMAIN}/run-id", f"{DOMAIN}/stage", f"{DOMAIN}/launch"
EXPIRES, CONTROLLER, HOST = f"{DOMAIN}/expires-at", f"{DOMAIN}/controller", f"{DOMAIN}/inventory-host"
OURS = f"app.kubernetes.io/managed-by={MANAGER}"
# The name of our container, and the annotation of a pod in which it has another name.
CONTAINER, CALLED = "probe", f"{DOMAIN}/container"
# Values of the controller annotation if no process drives the run.
DETACHED, KEPT = "detached/0/0", "kept/0/0"
# Seconds after their deadline at which objects count as abandoned.
GRACE_S = 300


def container(pod: Object) -> str:
    """Return the name of our container in a pod."""
    return str(((pod.get("metadata") or {}).get("annotations") or {}).get(CALLED) or CONTAINER)


def launched_by(item: Object, host: str) -> bool:
    """Return True if this inventory host launched an object, or if the object names no host, as those of older versions."""
    return (item["metadata"].get("annotations") or {}).get(HOST) in (None, "", host)


def abandoned(item: Object, now: float | None = None) -> bool:
    """Return True if an object of ours is past its deadline, or if its controller ran on this machine and is gone."""
    annotations = item["metadata"].get("annotations") or {}
    try:
        if int(annotations.get(EXPIRES, "0")) < (time.time() if now is None else now):
            return True
        # For a controller on another machine only the deadline counts.
        return driver.state(str(annotations.get(CONTROLLER, ""))) == "gone"
    except ValueError:
        return True
