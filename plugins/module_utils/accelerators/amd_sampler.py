# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sampler of AMD GPUs: a script that writes one line of JSON for each GPU and second, and its reader. amd-smi's own loops print forms
that differ between versions, and keep a whole Python busy.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, Value
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import amd_smi

# Its argument: {"folders": PCI devices in /sys, "tool": amd-smi, which is asked if there are none, "every_s": seconds}.
SCRIPT = r"""
import glob, json, os, re, subprocess, sys, time
order = json.loads(sys.argv[1])

def text(path):
    try:
        with open(path) as source:
            return source.read(4096).strip()
    except (OSError, ValueError):
        return ""

def number(path, by=1.0):
    word = text(path).split(" ")[0]
    try:
        return float(word) / by
    except ValueError:
        return None

def hwmon(folder):
    found = {}
    for path in glob.glob(folder + "/hwmon/hwmon*"):
        for name in ("power1_average", "power1_input"):
            if found.get("power") is None:
                found["power"] = number(path + "/" + name, 1e6)
        for label in glob.glob(path + "/temp*_label"):
            if text(label) == "junction":
                found["temperature"] = number(label[:-6] + "_input", 1e3)
    return found

def files(folder):
    clock = re.search(r"(\d+)\s*M[Hh]z\s*\*", text(folder + "/pp_dpm_sclk"))
    return dict(hwmon(folder), gpu=os.path.basename(folder), busy=number(folder + "/gpu_busy_percent"),
                sm_clock=float(clock.group(1)) if clock else None, speed=number(folder + "/current_link_speed"),
                pcie_width=number(folder + "/current_link_width"))

while True:
    began = time.monotonic()
    if order["folders"]:
        for folder in order["folders"]:
            print(json.dumps(files(folder)))
    else:
        asked = subprocess.run([order["tool"], "metric", "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, timeout=60, universal_newlines=True)
        begin = min([at for at in (asked.stdout.find("["), asked.stdout.find("{")) if at >= 0] or [0])
        try:
            shown = json.loads(asked.stdout[begin:])
        except ValueError:
            shown = []
        for gpu in shown.get("gpu_data", []) if isinstance(shown, dict) else shown:
            kept = {name: gpu.get(name) for name in ("gpu", "usage", "power", "clock", "temperature", "pcie", "throttle", "violation")}
            kept["usage"] = {"gfx_activity": (kept["usage"] or {}).get("gfx_activity")} if isinstance(kept["usage"], dict) else None
            clocks = kept.get("clock")
            # A line is short: the reader of samples cuts long ones. All engines of a GPU have one clock.
            kept["clock"] = {n: {"clk": of.get("clk")} for n, of in sorted(clocks.items(), reverse=True)
                             if n in ("gfx", "gfx_0") and isinstance(of, dict)} if isinstance(clocks, dict) else None
            pcie = kept.get("pcie")
            kept["pcie"] = {n: pcie.get(n) for n in ("width", "speed")} if isinstance(pcie, dict) else None
            power = kept.get("power")
            kept["power"] = {n: of for n, of in power.items() if "socket_power" in n} if isinstance(power, dict) else None
            heat = kept.get("temperature")
            kept["temperature"] = {n: heat.get(n) for n in ("hotspot", "edge")} if isinstance(heat, dict) else None
            held = kept.pop("throttle") or kept.pop("violation", None)
            kept.pop("violation", None)
            kept["throttle"] = {n: of for n, of in held.items() if n.endswith("_violation_status") and of == "ACTIVE"} \
                if isinstance(held, dict) else None
            print(json.dumps({"metric": kept}, separators=(",", ":")))
    sys.stdout.flush()
    time.sleep(max(0.0, order["every_s"] - (time.monotonic() - began)))
"""


class Read(t.NamedTuple):
    """A sample: the PCI address or the index of the GPU, values of base.DeviceSample with `busy` (percent) and `speed` (GT/s), and the
    causes of throttling that are active, None if the sample does not have them."""

    where: str | int
    values: dict[str, Value]
    throttle: list[str] | None


def parse(line: str) -> Read | None:
    """Return the sample in a line of the script; None if the line has none."""
    try:
        shown = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(shown, dict):
        return None
    if "metric" in shown:
        records = amd_smi.by_gpu(amd_smi.read(json.dumps([shown["metric"]])).records)
        if not records:
            return None
        index, record = next(iter(records.items()))
        of = amd_smi.metric(record)
        values = {
            "busy": of["busy"], "sm_clock": of["clock_mhz"], "power": of["power_w"], "temperature": of["temperature_c"],
            "speed": of["speed"], "pcie_width": of["width"],
        }  # fmt: skip
        return Read(index, values, of["throttle"].active if isinstance(record.get("throttle"), dict) else None)
    where = shown.get("gpu")
    if not isinstance(where, str):
        return None
    names = ("busy", "sm_clock", "power", "temperature", "speed", "pcie_width")
    read = {name: amd_smi.number(shown.get(name), name) for name in names}
    return Read(where, {name: value for name, value in read.items() if not isinstance(value, Absent)}, None)
