# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The management controller of a machine (BMC), read by IPMI: power supplies, fans, temperatures, and its log of events. `ipmitool` reads
it where it is installed, else the kernel's device is asked directly.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import errno
import os
import re
import struct
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import ipmi_device
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.check_report import CheckReport
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.memory import DMI
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import CONTAINER, Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import ipmi, smbios
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

DEVICES = ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0")
# A controller with 200 sensors answers in tens of seconds.
TIMEOUT_S = 90.0
# {what ipmitool lists: how the kernel's device is asked for the same}
SENSORS, EVENTS, CLOCK = "sdr elist", "sel elist", "sel time get"
_READERS = {SENSORS: ipmi_device.sensors, EVENTS: ipmi_device.events, CLOCK: ipmi_device.clock}
# A clock that is off by more than this, by hours where it has the local time, is told with the events.
CLOCK_S = 300.0
# A sensor may be without a reading for a moment. It is asked again after so many seconds, unless the first answer took more than SLOW_S.
AGAIN_S = 5.0
SLOW_S = 45.0
# The firmware of a server tests its parts for minutes before the kernel starts. Nobody replaces a part in that time.
POST_S = 600.0
# Lines that nobody understands: so many are shown.
SHOWN = 3
# The controller answers that it has no such list; the kernel or the container runtime does not let us ask.
_UNSUPPORTED = re.compile(r"(?i)invalid command|0xc1\b")
_FORBIDDEN = re.compile(r"(?i)permission denied|operation not permitted")
# What ipmitool says of a list that it ends before its end, with status 0: a record that was refused five times, and a lost reservation
# (lib/ipmi_sdr.c, ipmi_sdr_get_header).
_REFUSED_RECORD = re.compile(r"Get SDR ([0-9a-fA-F]{4}) command failed")
_REFUSED_TIMES = 5
_ENDED_EARLY = re.compile(r"Unable to renew SDR reservation|SDR record id 0x[0-9a-fA-F]{4}: invalid length")
# Devices of ACPI; a management controller is IPI0001 (IPMI 2.0, C3-2).
_ACPI = "/sys/bus/acpi/devices"


class Asked(t.NamedTuple):
    """The answer to a question: a text, or None and why there is none. `is_silent` is False if the controller answered that it has no such
    list, `is_forbidden` is True if it may not be asked from here."""

    text: str | None
    why: str = ""
    is_silent: bool = False
    is_forbidden: bool = False


def inspect(tree: Tree, report: CheckReport, is_second: bool = False) -> None:
    """Look at sensors and events. Parts without a reading are asked for again; those that have none again are named. A second look names
    all sensors without a reading: they are still listed."""
    node = tree.node
    path = next((path for path in map(node.path, DEVICES) if os.path.exists(path)), None)
    if path is None:
        witness = _witness(tree)
        if witness and report.place != CONTAINER:
            words = f"management controller: {witness} shows one, and /dev/ipmi0 is missing: load ipmi_devintf and ipmi_si"
            report.silent("ipmi", words)
        else:
            words = "/dev/ipmi0 is missing (no controller, or ipmi_devintf is not loaded)"
            report.missed("ipmi", f"sensors and events of the management controller: {words}")
        return
    report.details["product"] = " ".join(filter(None, (tree.text(f"/sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name"))))
    began = time.monotonic()
    sensors = _ask(node, path, SENSORS)
    is_slow = time.monotonic() - began > SLOW_S
    events = _ask(node, path, EVENTS)
    parts: dict[str, dict[str, bool]] = {}
    strange: list[str] = []
    if sensors.text is not None:
        found = ipmi.list_sensors(sensors.text)
        if found.silent and not is_slow:
            found = _asked_again(node, path, found)
        silent = found.unread_parts if is_second else found.silent
        if silent:
            report.details["silent_parts"] = silent
        parts = report.details["parts"] = found.parts
        strange += found.unread
        if found.readable:
            report.saw(f"{found.readable} sensors of the management controller")
        else:
            is_silent = bool(found.listed or found.unread)
            sensors = Asked(None, "it lists no sensor with a reading", is_silent)
        for code, words in found.problems:
            report.found(code, f"management controller: {words}")
    if events.text is not None:
        log = ipmi.read_log(events.text)
        strange += log.unread
        report.saw("the events of the management controller")
        if log.of_maker:
            report.saw(f"{log.of_maker} records of its log in a form of the maker's own, which were not read")
        standing = [event for event in log.events if not _is_there(event.part, parts)]
        # A log without faults needs no clock, and a controller may refuse to say the time.
        now = ipmi.clock(_ask(node, path, CLOCK).text or "") if standing else None
        ahead_s = now - time.time() if now is not None and abs(now - time.time()) > CLOCK_S else 0.0
        for event in (*log.over, *(event for event in log.events if event not in standing)):
            report.ended(event.code, f"management controller: its log has, {_when(event)}: {event.words}")
        _judge(standing, report, time.time() - float((tree.text("/proc/uptime") or "0").split()[0]), ahead_s)
    _tell(report, [asked for asked in (sensors, events) if asked.text is None])
    if strange:
        more = f" and {len(strange) - SHOWN} more" if len(strange) > SHOWN else ""
        words = f"{len(strange)} lines of the management controller are not understood: {'; '.join(strange[:SHOWN])}{more}"
        report.missed("ipmi_words", words)


def _tell(report: CheckReport, failed: list[Asked]) -> None:
    """Record the lists that could not be read."""
    if not failed:
        return
    words = f"sensors and events of the management controller: {'; '.join(dict.fromkeys(asked.why for asked in failed))}"
    if any(asked.is_silent and not asked.is_forbidden for asked in failed):
        report.silent("ipmi", words)
    else:
        report.missed("ipmi", words, demanded=any(asked.is_forbidden for asked in failed))


def _witness(tree: Tree) -> str:
    """Return what else shows that the machine has a management controller; empty if nothing does."""
    if smbios.has_controller(tree.data(DMI) or b""):
        return "the firmware's table (SMBIOS type 38)"
    acpi = next((name for name in tree.names(_ACPI) if name.startswith("IPI0001")), "")
    if acpi:
        return f"ACPI ({acpi})"
    kernel = tree.names("/sys/class/ipmi")
    return f"the kernel (/sys/class/ipmi/{kernel[0]})" if kernel else ""


def _is_there(part: str, parts: dict[str, dict[str, bool]]) -> bool:
    """Return True if a sensor says now that a part is there which the log calls missing."""
    return bool(part) and any(is_there and part.endswith(name) for names in parts.values() for name, is_there in names.items())


def _asked_again(node: Node, path: str, found: ipmi.Sensors) -> ipmi.Sensors:
    """Return the sensors after some of their parts had no reading."""
    time.sleep(AGAIN_S)
    again = _ask(node, path, SENSORS)
    return found if again.text is None else ipmi.together(found, ipmi.list_sensors(again.text))


def _ask(node: Node, path: str, command: str) -> Asked:
    """Return what a command of ipmitool lists. The kernel's device is asked where ipmitool is not installed or fails at once."""
    if not node.which("ipmitool"):
        asked = _read(path, command)
        return asked._replace(why=f"{asked.why} (ipmitool is not installed)") if asked.why else asked
    result = node.run(["ipmitool", *command.split()], timeout=TIMEOUT_S, env={"LC_ALL": "C"})
    if result.ok and not (command == SENSORS and _is_cut(result.err)):
        return Asked(result.out)
    error_text = f"no answer in {result.ended_after(TIMEOUT_S)}" if result.timed_out else " ".join((result.err or result.out).split())[:150]
    why = f"ipmitool {command}: {'the list is cut: ' if result.ok else ''}{error_text or f'status {result.rc}'}"
    if not result.timed_out and not _UNSUPPORTED.search(why):
        asked = _read(path, command)
        if asked.text is not None:
            return asked
        why = f"{why}; {asked.why}"
    return Asked(None, why, not _UNSUPPORTED.search(why), bool(_FORBIDDEN.search(why)))


def _is_cut(errors: str) -> bool:
    """Return True if a list of sensors has ended before its end, by what ipmitool says beside it."""
    refused = collections.Counter(_REFUSED_RECORD.findall(errors))
    return bool(_ENDED_EARLY.search(errors)) or any(times >= _REFUSED_TIMES for times in refused.values())


def _read(path: str, command: str) -> Asked:
    """Return the same by the kernel's device."""
    try:
        device = ipmi_device.Device(path, time.monotonic() + TIMEOUT_S)
        try:
            return Asked(_READERS[command](device))
        finally:
            device.close()
    except ipmi_device.Refused as error:
        return Asked(None, f"{path}, {command.partition(' ')[0]}: {error}", error.code != ipmi_device.INVALID_COMMAND)
    except (OSError, ValueError, struct.error, ipmi_device.IpmiError) as error:
        is_forbidden = isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM)
        return Asked(None, f"{path}, {command.partition(' ')[0]}: {getattr(error, 'strerror', None) or error}", True, is_forbidden)


def _judge(events: list[ipmi.SelEvent], report: CheckReport, booted: float, ahead_s: float) -> None:
    """Record events: what is grave and since boot is a defect, what is older is worth a look, for it may have been repaired. `ahead_s` are
    the seconds by which the log's clock is ahead of the machine's."""
    off = f" (its clock is {abs(ahead_s) / 3600:.1f} h {'ahead' if ahead_s > 0 else 'behind'})" if ahead_s else ""
    for event in events:
        since = _is_since(event, booted - POST_S + ahead_s)
        code = "bmc_fault" if event.code == "bmc_fault" and since else "bmc_event"
        older = "" if since else ", before the last boot"
        report.found(code, f"management controller: its log has, {_when(event)}{off}{older}: {event.words}")


def _when(event: ipmi.SelEvent) -> str:
    return "at an unknown time" if event.when is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(event.when))


def _is_since(event: ipmi.SelEvent, start: float) -> bool:
    """Return False if an event is from before `start`: by its own time, or by that of its neighbours in the log if it has none. What cannot
    be told is taken as recent."""
    if event.when is not None:
        return event.when >= start
    if event.after is not None and event.after >= start:
        return True
    return event.before is None or event.before >= start
