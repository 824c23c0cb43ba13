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
# {what ipmitool lists: how the kernel's device is asked for the same}
SENSORS, EVENTS, CLOCK = "sdr elist", "sel elist", "sel time get"
_READERS = {SENSORS: ipmi_device.sensors, EVENTS: ipmi_device.events, CLOCK: ipmi_device.clock}
# A clock that is off by more than this, by hours where it has the local time, is told with the events.
CLOCK_S = 300.0


def look(tree: Tree, look: Look) -> None:
    """Look at sensors and events."""
    node = tree.node
    path = next((path for path in map(node.path, DEVICES) if os.path.exists(path)), None)
    if path is None:
        why = ["/dev/ipmi0 is missing (no controller, or ipmi_devintf is not loaded)"]
    else:
        why = []
        has_tool = node.which("ipmitool")
        sensors, events = (_ask(node, command, why) if has_tool else _read(path, command, why) for command in (SENSORS, EVENTS))
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
            found = ipmi.events(events)
            # A log without faults needs no clock, and a controller may refuse to say the time.
            now = ipmi.clock((_ask(node, CLOCK, []) if has_tool else _read(path, CLOCK, [])) or "") if found else None
            ahead_s = now - time.time() if now is not None and abs(now - time.time()) > CLOCK_S else 0.0
            _judge(found, look, time.time() - float((tree.text("/proc/uptime") or "0").split()[0]), ahead_s)
    if why:
        look.missed("ipmi", f"sensors and events of the management controller: {'; '.join(why)}")


def _ask(node: Node, command: str, why: list[str]) -> str | None:
    """Return what a command of ipmitool lists; None if it failed, with the reason added to `why`."""
    result = node.run(["ipmitool", *command.split()], timeout=TIMEOUT_S)
    if result.ok:
        return result.out
    error_text = f"no answer in {result.ended_after(TIMEOUT_S)}" if result.timed_out else " ".join((result.err or result.out).split())[:150]
    why.append(f"ipmitool {command}: {error_text or f'status {result.rc}'}")
    return None


def _read(path: str, command: str, why: list[str]) -> str | None:
    """Return the same by the kernel's device."""
    try:
        device = ipmi_device.Device(path, time.monotonic() + TIMEOUT_S)
        try:
            return _READERS[command](device)
        finally:
            device.close()
    except (OSError, ValueError, ipmi_device.IpmiError) as error:
        why.append(f"{path}, {command.partition(' ')[0]} (ipmitool is not installed): {getattr(error, 'strerror', None) or error}")
    return None


def _judge(events: list[ipmi.SelEvent], look: Look, booted: float, ahead_s: float) -> None:
    """Record events: what is grave and since boot is a defect, what is older is worth a look, for it may have been repaired. `ahead_s` are
    the seconds by which the log's clock is ahead of the machine's."""
    off = f" (its clock is {abs(ahead_s) / 3600:.1f} h {'ahead' if ahead_s > 0 else 'behind'})" if ahead_s else ""
    for event in events:
        since = event.when is not None and event.when - ahead_s >= booted
        when = "at an unknown time" if event.when is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(event.when))
        code = "bmc_fault" if event.code == "bmc_fault" and since else "bmc_event"
        older = "" if since else ", before the last boot" if event.when is not None else ""
        look.found(code, f"management controller: its log has, {when}{off}{older}: {event.words}")
