# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a machine as its management controller reports them by Redfish: power supplies, fans, temperatures, memory modules,
processors, and its log of events.

The controller of a run reads them: nodes seldom reach the network of management controllers, and the password stays where it is.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import findings, observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.redfish import fields, log, parts
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.redfish.client import ROOT, Resource, Service

CHECK = "redfish"
# {code of required evidence: (one part, several parts)}
KINDS = {
    "redfish_power": ("power supply", "power supplies"),
    "redfish_fans": ("fan", "fans"),
    "redfish_temperatures": ("temperature", "temperatures"),
    "redfish_memory": ("memory module", "memory modules"),
    "redfish_log": ("log of events", "logs of events"),
}
# Kinds of which each part that is enabled says how it is, if one does. A sensor of a temperature may be of a card that is not there.
_ANSWERING = ("redfish_power", "redfish_fans", "redfish_memory")
# {what a system says of all parts of a kind: their name}
_SUMMARIES = {"MemorySummary": "memory", "ProcessorSummary": "processors"}
# Collections of ThermalEquipment, and of each of their members with the name of one part.
_COOLING_UNITS = ("CDUs", "HeatExchangers", "ImmersionUnits", "CoolingLoops")
_OF_COOLING_UNITS = {
    "Pumps": "pump", "Filters": "filter", "Reservoirs": "reservoir", "PrimaryCoolantConnectors": "coolant connector",
    "SecondaryCoolantConnectors": "coolant connector",
}  # fmt: skip
# A member of a collection that has none of these is a reference, whatever else it has.
_STATES = {"Status", "Severity", "MessageSeverity", "EntryType", "Created"}
# Findings of a log that a result has; the log itself has all.
MOST_EVENTS = 20


def observe(service: Service) -> Observation:
    """Return the observation of the check: an error if a part has failed; UNKNOWN if the service did not answer, or only in part."""
    began = time.monotonic()
    reading = _Reading(service)
    try:
        reading.read()
    except Exception as error:  # resources of a shape that nobody foresaw; the words of the error may quote a request
        reading.unread["bmc_unreadable"] = [f"{service.host}: a resource is not understood ({type(error).__name__})"]
    fields: dict[str, t.Any] = {
        "context": {
            "looked_for": reading.looked_for(),
            "not_looked_for": reading.unseen,
            "machine": reading.machine,
            "product": reading.product,
            "parts": reading.parts,
            **({"ended": [_ended(words) for words in reading.over]} if reading.over else {}),
        },
        "evidence": {"window": {}, "changes": [], "unreadable": sorted(reading.unseen)},
        "started_at": observation.utc(time.time() - (time.monotonic() - began)),
        "duration_s": round(time.monotonic() - began, 3),
    }
    observed = findings.observed(CHECK, [("", code, f"management controller: {words}") for code, words in reading.problems], fields)
    if observed["outcome"] != "measured" or not reading.unread:
        return observed
    code, words = next(iter(reading.unread.items()))
    more = f", and {len(words) - 3} more" if len(words) > 3 else ""
    reason = f"the management controller did not answer whole: {'; '.join(words[:3])}{more}"
    return observation.failed(CHECK, code, reason, **{**fields, "context": observed["context"]})


def _ended(words: str) -> dict[str, str]:
    return {"code": "bmc_event", "text": f"management controller: {words}"}


class _Reading:
    """Walks through a service and collects what it says.

    `problems` are (reason code, words), `unread` is {reason code: why} of what the service has and did not show, `unseen` is
    {code of KINDS: why} of what it does not have, `machine` is by what the machine can be told from others: {uuid, serial or dimms: texts},
    `product` its maker and model, `over` words for faults of logs that came and went,
    and `parts` has {power supplies or fans: {name: whether it is there}}.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self.problems: list[fields.Problem] = []
        self.unread: dict[str, list[str]] = {}
        self.unseen: dict[str, str] = {}
        self.machine: dict[str, list[str]] = {"uuid": [], "serial": [], "dimms": []}
        self.product = ""
        self.over: list[str] = []
        self.parts: dict[str, dict[str, bool]] = {}
        self._empty: set[str] = set()
        self._seen: collections.Counter[str] = collections.Counter()
        self._stateless: collections.Counter[str] = collections.Counter()
        # {kind: names of parts that are enabled and have neither a health nor a reading}.
        self._mute: dict[str, list[str]] = {}
        self._rollups: list[tuple[str, str]] = []
        self._read_logs: set[str] = set()

    def looked_for(self) -> list[str]:
        return [f"{count} {kind}" for kind, count in self._seen.items() if count]

    def read(self) -> None:
        root = self._get({"@odata.id": ROOT})
        if root is None:
            return
        systems = list(self._collection(root, "Systems"))
        chassis = list(self._collection(root, "Chassis"))
        managers = list(self._collection(root, "Managers"))
        for system in systems:
            self._whole("system", system)
            self.product = self.product or " ".join(filter(None, (fields.text(system.get(key)) for key in ("Manufacturer", "Model"))))
            self._identify("uuid", system.get("UUID"))
            self._identify("serial", system.get("SerialNumber"))
            if system.get("PowerState") == "Off":
                # The node may have answered by SSH: then this is the management controller of another machine.
                self.problems.append(("bmc_event", f"{parts.name_of('system', system)}: its power is off"))
            for module in self._collection(system, "Memory"):
                self._part("redfish_memory", module)
                self._identify("dimms", module.get("SerialNumber"))
            for processor in self._collection(system, "Processors"):
                self._judge("processor", processor)
            self._storage(system)
            for summary, kind in _SUMMARIES.items():
                if isinstance(system.get(summary), dict):
                    self._whole(kind, {"Name": fields.text(system.get("Name")), **system[summary]})
        for box in chassis:
            self._whole("chassis", box)
            self._cooling(box)
            self._power(box)
        self._rack(root)
        for manager in managers:
            self._judge("manager", manager)
        for owner in (*systems, *managers):
            self._logs(owner)
        self._unexplained()
        for several, names in self._mute.items():
            if self._seen[several]:
                words = f"{several}: {', '.join(names[:4])} has neither a health nor a reading, others of its kind have"
                self._missed(ReasonedError("bmc_unreadable", words))
        if self.unread:
            return
        if not systems or not self._seen:
            self._missed(ReasonedError("bmc_unreadable", f"{self.service.host} lists no system, or no part with a state"))
        for code, (_one, several) in KINDS.items():
            if not self._seen[several]:
                self.unseen[code] = f"{several}: the management controller lists none with a state"
            elif self._stateless[several]:
                self.unseen[code] = f"{several}: {self._stateless[several]} have neither a state nor a reading"

    def _storage(self, system: Resource) -> None:
        """Judge controllers of disks, disks and volumes: a volume that has lost a disk looks whole to the machine."""
        for storage in self._collection(system, "Storage"):
            self._whole("storage", storage)
            for controller in fields.listed(storage, "StorageControllers") or self._collection(storage, "Controllers"):
                self._judge("storage controller", controller)
            for drive in fields.listed(storage, "Drives"):
                self._judge("drive", self._get(drive) or {})
            for volume in self._collection(storage, "Volumes"):
                self._judge("volume", volume)

    def _cooling(self, chassis: Resource) -> None:
        """Judge fans and temperatures: those of Thermal, or what newer services have in its place; some have both, and fill only one."""
        thermal, subsystem = self._linked(chassis, "Thermal"), self._linked(chassis, "ThermalSubsystem")
        temperatures, fans = fields.listed(thermal, "Temperatures"), fields.listed(thermal, "Fans")
        for sensor in temperatures or self._collection(chassis, "Sensors"):
            if temperatures or sensor.get("ReadingType") == "Temperature":
                self._part("redfish_temperatures", sensor)
            else:
                self._judge("sensor", sensor)
        fans = fans or list(self._collection(subsystem, "Fans"))
        for fan in fans:
            self._part("redfish_fans", fan)
        self.problems += parts.standing_fans([fan for fan in fans if not parts.is_absent(fan)])
        self._leaks(chassis, subsystem)
        for redundancy in (*fields.listed(thermal, "Redundancy"), *fields.listed(subsystem, "FanRedundancy")):
            self._judge("redundancy of fans", redundancy)
        for whole in (thermal, subsystem):
            self._whole("cooling", whole)

    def _leaks(self, *owners: Resource) -> None:
        """Judge the leak detectors that resources, or their leak detection, list."""
        detections = [self._linked(owner, "LeakDetection") for owner in owners]
        for of in (*owners, *detections):
            for detector in self._collection(of, "LeakDetectors"):
                self._counted("leak detector", "leak detectors", detector)
        for detection in detections:
            self._whole("leak detection", detection)

    def _rack(self, root: Resource) -> None:
        """Judge the power shelves and the coolant of a rack, if this service knows them (DMTF's PowerEquipment and ThermalEquipment)."""
        power, thermal = self._linked(root, "PowerEquipment"), self._linked(root, "ThermalEquipment")
        for shelf in self._collection(power, "PowerShelves"):
            self._counted("power shelf", "power shelves", shelf)
            for supply in self._collection(shelf, "PowerSupplies"):
                self._counted("power supply of a shelf", "power supplies of shelves", supply)
        for name in _COOLING_UNITS:
            for unit in self._collection(thermal, name):
                self._counted("coolant unit", "coolant units", unit)
                for kind, words in _OF_COOLING_UNITS.items():
                    for part in self._collection(unit, kind):
                        self._judge(words, part)
                self._leaks(unit)
        self._leaks(thermal)

    def _counted(self, kind: str, several: str, part: Resource) -> None:
        """Judge a part of a rack and count it among what was looked at, if it has a state."""
        if parts.is_absent(part):
            return
        self._seen[several] += bool(fields.health(part) or fields.text(part.get("DetectorState")) or parts.has_reading(part))
        self._whole(kind, part)

    def _power(self, chassis: Resource) -> None:
        power, subsystem = self._linked(chassis, "Power"), self._linked(chassis, "PowerSubsystem")
        for supply in fields.listed(power, "PowerSupplies") or self._collection(subsystem, "PowerSupplies"):
            self._part("redfish_power", supply)
        for voltage in fields.listed(power, "Voltages"):
            self._judge("voltage", voltage)
        for battery in self._collection(subsystem, "Batteries"):
            self._judge("battery", battery)
        for redundancy in (*fields.listed(power, "Redundancy"), *fields.listed(subsystem, "PowerSupplyRedundancy")):
            self._judge("redundancy of power supplies", redundancy)
        for whole in (power, subsystem):
            self._whole("power", whole)

    def _logs(self, owner: Resource) -> None:
        for service in self._collection(owner, "LogServices"):
            names = " ".join(filter(None, (fields.text(service.get("Id")), fields.text(service.get("Name")))))
            path = str(service.get("@odata.id"))
            if path in self._read_logs or not log.is_of_hardware(service):
                continue
            self._read_logs.add(path)
            faults, over = log.read(self._collection(service, "Entries"))
            self.over += over[-MOST_EVENTS:]
            self._seen[KINDS["redfish_log"][1]] += 1
            self.problems += [(self._code(fault), fault.words) for fault in faults[-MOST_EVENTS:]]
            if len(faults) > MOST_EVENTS:
                self.problems.append(("bmc_event", f"its log {names} has {len(faults) - MOST_EVENTS} earlier faults"))

    def _code(self, fault: log.Logged) -> str:
        """Return the reason code of a fault of the log: worth a look, for it may be of a part that was replaced since, and a part that is
        still broken says so itself. A part that is missing cannot: if one of its kind is missing now, it has failed."""
        return "bmc_fault" if fault.is_missing and fault.about in self._empty else "bmc_event"

    def _part(self, code: str, part: Resource) -> None:
        one, several = KINDS[code]
        if code in ("redfish_power", "redfish_fans"):  # memory is compared slot by slot: facts of the stage stack
            number = fields.text(part.get("MemberId")) or fields.text(part.get("Id"))
            name = " ".join(filter(None, (fields.text(part.get("Name")) or fields.text(part.get("FanName")), number)))
            self.parts.setdefault(several, {})[name] = fields.state(part).lower() != "absent"
        if parts.is_absent(part):
            self._empty.add(one)
            return
        is_seen = bool(fields.health(part)) or parts.has_reading(part)
        if not is_seen and code in _ANSWERING and fields.state(part).lower() == "enabled":
            self._mute.setdefault(several, []).append(parts.name_of(one, part))
        (self._seen if is_seen else self._stateless)[several] += 1
        self.problems += parts.problems(one, part)

    def _identify(self, kind: str, value: t.Any) -> None:
        """Record a text by which the machine can be told from others."""
        if fields.text(value):
            self.machine[kind].append(fields.text(value))

    def _judge(self, kind: str, part: Resource) -> None:
        if not parts.is_absent(part):
            self.problems += parts.problems(kind, part)

    def _whole(self, kind: str, resource: Resource) -> None:
        """Judge a system or chassis: its own state, and later the sum of the states of its parts."""
        self._judge(kind, resource)
        rollup = fields.health(resource, "HealthRollup")
        if rollup in fields.CODES:
            self._rollups.append((rollup, parts.name_of(kind, resource)))

    def _unexplained(self) -> None:
        """Record a sum of states that is worse than every part that was read."""
        codes = {code for code, _words in self.problems}
        for rollup, name in self._rollups:
            code = fields.CODES[rollup]
            if code not in codes and "bmc_fault" not in codes:
                self.problems.append((code, f"{name}: the health of its parts together is {rollup}, and no part that was read shows why"))

    def _linked(self, resource: Resource, name: str) -> Resource:
        """Return the resource that another one refers to by `name`; empty if there is none."""
        reference = resource.get(name)
        return (self._get(reference) if isinstance(reference, dict) else None) or {}

    def _collection(self, resource: Resource, name: str) -> t.Iterator[Resource]:
        """Yield the members of a collection that a resource refers to by `name`. What cannot be read is in `unread`."""
        reference = resource.get(name)
        path = reference.get("@odata.id") if isinstance(reference, dict) else None
        if not isinstance(path, str):
            return
        try:
            for member in self.service.members(path):
                # A service may write out its members in the collection, as it does with entries of a log.
                found = self._get(member) if "@odata.id" in member and not _STATES & set(member) else member
                if found is not None:
                    yield found
        except ReasonedError as error:
            self._missed(error)

    def _get(self, reference: Resource) -> Resource | None:
        try:
            return self.service.get(str(reference.get("@odata.id")))
        except ReasonedError as error:
            self._missed(error)
            return None

    def _missed(self, error: ReasonedError) -> None:
        reasons = self.unread.setdefault(error.reason_code, [])
        if error.reason not in reasons:
            reasons.append(error.reason)
