# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The management controller of a machine (BMC), read by IPMI: power supplies, fans, temperatures, and its log of events. `ipmitool` reads
it where it is installed, else the kernel's device is asked directly.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import time

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import ipmi_device
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.look import Look
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import ipmi

DEVICES = ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0")
# A controller with 200 sensors answers in tens of seconds.
TIMEOUT_S = 90.0


def look(tree: Tree, look: Look) -> None:
    """Look at sensors and events."""
    node = tree.node
    path = next((path for path in map(node.path, DEVICES) if os.path.exists(path)), None)
    if path is None:
        why = ["/dev/ipmi0 is missing (no controller, or ipmi_devintf is not loaded)"]
    else:
        why = []
        has_tool = node.which("ipmitool")
        sensors, events = (_ask(node, kind, why) if has_tool else _read(path, kind, why) for kind in ("sdr", "sel"))
        if sensors is not None:
            problems, count = ipmi.sensors(sensors)
            if count:
                look.saw(f"{count} sensors of the management controller")
            else:
                why.append("it lists no sensor with a reading")
            for code, words in problems:
                look.found(code, f"management controller: {words}")
        if events is not None:
            look.saw("the events of the management controller")
            _judge(ipmi.events(events), look, time.time() - float((tree.text("/proc/uptime") or "0").split()[0]))
    if why:
        look.missed("ipmi", f"sensors and events of the management controller: {'; '.join(why)}")


def _ask(node: Node, record_kind: str, why: list[str]) -> str | None:
    """Return what a command of ipmitool lists; None if it failed, with the reason added to `why`."""
    result = node.run(["ipmitool", record_kind, "elist"], timeout=TIMEOUT_S)
    if result.ok:
        return result.out
    error_text = f"no answer in {result.ended_after(TIMEOUT_S)}" if result.timed_out else " ".join((result.err or result.out).split())[:150]
    why.append(f"ipmitool {record_kind} elist: {error_text or f'status {result.rc}'}")
    return None


def _read(path: str, record_kind: str, why: list[str]) -> str | None:
    """Return the same by the kernel's device."""
    try:
        device = ipmi_device.Device(path, time.monotonic() + TIMEOUT_S)
        try:
            return (ipmi_device.sensors if record_kind == "sdr" else ipmi_device.events)(device)
        finally:
            device.close()
    except (OSError, ValueError, ipmi_device.IpmiError) as error:
        why.append(f"{path}, {record_kind} (ipmitool is not installed): {getattr(error, 'strerror', None) or error}")
    return None


def _judge(events: list[ipmi.SelEvent], look: Look, booted: float) -> None:
    """Record events: what is grave and since boot is a defect, what is older is worth a look, for it may have been repaired."""
    for event in events:
        since = event.when is not None and event.when >= booted
        when = "at an unknown time" if event.when is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(event.when))
        code = "bmc_fault" if event.code == "bmc_fault" and since else "bmc_event"
        older = "" if since else ", before the last boot" if event.when is not None else ""
        look.found(code, f"management controller: its log has, {when}{older}: {event.words}")
