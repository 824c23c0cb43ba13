# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of messages that end others, by registry.

The rows are the clearing logic (`ClearsMessage`, `ClearsIf: SameOriginOfCondition`) of DMTF's registries (DSP8011): Environmental 1.4.0,
Power 1.2.0, StorageDevice 1.5.1, ResourceEvent 1.4.3, SensorEvent 1.1.0, Fabric 1.0.3 and NetworkDevice 1.1.1. Messages about readings
have names of one form, so that one rule stands for their rows. The words of states do for registries without such logic, as OpenBMC's.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import re

# {message: the messages that it ends, of the same origin}. The registries have PowerSupplyFailure for what they call PowerSupplyFailed, and
# leave out that a fan which was removed is back.
_ROWS = {
    "FanRestored": "FanFailed FanWarning FanRemoved", "FanRemoved": "FanFailed", "FanInserted": "FanRemoved",
    "PumpRemoved": "PumpFailed", "PumpRestored": "PumpFailed", "FilterRemoved": "FilterRequiresService",
    "FilterRestored": "FilterRequiresService", "LeakDetectorConnected": "LeakDetectorDisconnected",
    "LeakDetectorRestored": "LeakDetectorDisconnected LeakDetectorFailure",
    "PowerSupplyFailed": "PowerSupplyPredictiveFailure PowerSupplyWarning",
    "PowerSupplyRestored": "PowerSupplyFailed PowerSupplyFailure PowerSupplyPredictiveFailure PowerSupplyWarning",
    "PowerSupplyRemoved": "PowerSupplyFailed PowerSupplyFailure PowerSupplyPredictiveFailure PowerSupplyWarning",
    "PowerSupplyInserted": "PowerSupplyFailed PowerSupplyFailure PowerSupplyPredictiveFailure PowerSupplyRemoved PowerSupplyWarning",
    "LineInputPowerRestored": "LineInputPowerFault LossOfInputPower",
    "ResourceErrorsCorrected": "ResourceErrorsDetected", "ResourceErrorThresholdCleared": "ResourceErrorThresholdExceeded",
    "ResourceWarningThresholdCleared": "ResourceWarningThresholdExceeded", "ResourceSelfTestCompleted": "ResourceSelfTestFailed",
    "ResourceStatusChangedOK": "ResourceStatusChangedCritical ResourceStatusChangedWarning",
    "ResourceStatusChangedCritical": "ResourceStatusChangedWarning", "ResourceStatusChangedWarning": "ResourceStatusChangedCritical",
    "SensorRestored": "InvalidSensorReading SensorDisconnected SensorFailure", "SensorConnected": "SensorDisconnected",
    "ControllerOK": "ControllerDegraded ControllerFailure", "ControllerFailure": "ControllerDegraded",
    "ControllerDegraded": "ControllerFailure", "ControllerPortOK": "ControllerPortDegraded ControllerPortFailure",
    "ControllerPortFailure": "ControllerPortDegraded", "DriveOK": "DriveFailure DrivePredictiveFailure",
    "DrivePredictiveFailureCleared": "DrivePredictiveFailure", "DriveFailure": "DrivePredictiveFailure",
    "DriveFailureCleared": "DriveFailure", "DriveMissingCleared": "DriveMissing", "DriveOfflineCleared": "DriveOffline",
    "DriveInserted": "DriveFailure DriveMissing DrivePredictedMediaLifeLow DrivePredictiveFailure DriveRemoved",
    "DriveRemoved": "DriveFailure DriveOffline DrivePredictedMediaLifeLow DrivePredictiveFailure",
    "VolumeOK": "VolumeDegraded VolumeFailure", "VolumeOfflineCleared": "VolumeOffine VolumeOffline",
    "WriteCacheProtected": "WriteCacheDegraded WriteCacheTemporarilyDegraded", "WriteCacheTemporarilyDegraded": "WriteCacheDegraded",
    "WriteCacheDegraded": "WriteCacheTemporarilyDegraded", "BatteryOK": "BatteryCharging BatteryFailure BatteryMissing",
    "BatteryCharging": "BatteryFailure BatteryMissing", "BatteryMissing": "BatteryCharging BatteryFailure",
    "BatteryFailure": "BatteryCharging BatteryMissing", "PortOK": "PortDegraded PortFailed", "SwitchOK": "SwitchDegraded SwitchFailed",
    "CableOK": "CableFailed", "CableInserted": "CableRemoved", "UpstreamLinkEstablished": "UpstreamLinkDropped",
    "DegradedUpstreamLinkEstablished": "UpstreamLinkDropped", "DownstreamLinkEstablished": "DownstreamLinkDropped",
    "DegradedDownstreamLinkEstablished": "DownstreamLinkDropped", "InterswitchLinkEstablished": "InterswitchLinkDropped",
    "DegradedInterswitchLinkEstablished": "InterswitchLinkDropped", "ConnectionEstablished": "ConnectionDropped",
    "DegradedConnectionEstablished": "ConnectionDropped", "MediaControllerAdded": "MediaControllerRemoved",
}  # fmt: skip
CLEARS = {key: tuple(cleared.split()) for key, cleared in _ROWS.items()}
# Messages about a reading: the last one of a sensor says where it is.
_READING = re.compile(
    r"(Temperature|Humidity|FlowRate|Pressure|FluidLevel|FluidQuality|Voltage|Current|Power|Frequency|Reading|SensorReading|LeakDetected"
    r"|FanGroup|PowerSupplyGroup|PowerDistributionGroup|CoolingUnitGroup)"
    r"(?:(?:Above|Below)(?:Upper|Lower)(?:Caution|Critical|Fatal)Threshold|NoLongerCritical|NoLongerFatal|NormalRange|Normal|Warning|Critical"
    r"|Fatal)"
)
# The words of states in the keys of other registries: what is left of two keys names what both are about.
_STATE_WORDS = re.compile(
    r"GoingHigh|GoingLow|PredictiveFailure|PredictedFailure|FailurePredicted|Failed|Failure|Fault|Degraded|Offline|Missing|Warning(?!High|Low)"
    r"|Critical(?!High|Low)|Fatal|Normal|Restored|Recovered|Regained|Lost|Removed|Inserted|Disconnected|Connected|Cleared|Exceeded|Detected"
    r"|Corrected|OK"
)


def ends(key: str, other: str, is_fault: bool) -> bool:
    """Return True if a message ends an earlier one, or takes its place; `is_fault` is whether the later one reports a fault itself."""
    if key == other:
        return True
    if key in CLEARS:
        return other in CLEARS[key]
    readings = _READING.fullmatch(key), _READING.fullmatch(other)
    if readings[0] and readings[1]:
        quantities = {match.group(1).replace("SensorReading", "Reading") for match in readings if match}
        return len(quantities) == 1
    return not is_fault and _STATE_WORDS.sub("", key) == _STATE_WORDS.sub("", other)
