# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ascend NPUs, by npu-smi, and by hccn_tool for the network port that each has of its own.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import glob
import os
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import acl, base, on_bus
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import absent, reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import npu_smi
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

# The first question after boot starts the driver's management.
QUERY_TIMEOUT_S = 60.0
# A tool that had less time says nothing of the devices: loading the driver alone may take seconds on a machine without persistence.
ANSWER_S = 30.0
# What an idle NPU has in use of its own HBM is some 3.4 GiB of 64 (910B and A3, drivers 23 to 25).
IDLE_MIB = 8192
NOT_REPORTED = Absent("npu-smi does not report it")
INTERVAL_S = 1
# Where the driver puts hccn_tool.
HCCN_TOOL = "/usr/local/Ascend/driver/tools/hccn_tool"
# Words of net_health for a bad path to the gateway of a port; other words mean that no gateway is configured.
BAD_NET = ("Fault", "Unreachable", "Receive timeout", "Socket fail", "Time exceeded", "Thread error")
# Where CANN is, the newest layout first.
TOOLKITS = tuple(f"/usr/local/Ascend/{folder}" for folder in ("cann", "ascend-toolkit/latest", "latest", "nnae/latest"))
DRIVER_LIBRARIES = tuple(f"/usr/local/Ascend/driver/{folder}" for folder in ("lib64", "lib64/common", "lib64/driver"))


class Ascend(base.Accelerator):
    kind = "ascend"
    word = "NPU"
    article = "an"
    plural = "Ascend NPUs"
    tool = "npu-smi"
    support: t.Mapping[str, tuple[str, ...]] = {"npu-smi.txt": ("info",)}
    option = "npu_smi"
    visible = "ASCEND_RT_VISIBLE_DEVICES"  # in CANN of any version
    torch = "npu"
    torch_plugin = "torch_npu"
    collectives = "hccl"
    device_files = r"/dev/davinci\d+"
    lacks = ("float64", "bfloat16")
    link = "network port"

    def snapshot(self) -> base.Snapshot:
        result = self.node.run([self.program, "info"], timeout=QUERY_TIMEOUT_S)
        snapshot: base.Snapshot = {"kind": self.kind, "cuda": None, "gpus": []}
        read = npu_smi.parse_info(result.out)
        snapshot.update({key: read[key] for key in ("outcome", "reason_code", "reason", "driver", "simulated")})
        if result.missing:
            code = "tool_missing" if result.missing == "not found" else "tool_not_executable"
            reason = f"{self.program}: {result.missing}; install the Ascend driver, or set acceptance_npu_smi"
            return {**snapshot, "reason_code": code, "reason": reason}
        if result.cut_short(min(ANSWER_S, QUERY_TIMEOUT_S)):
            reason = f"{self.program} was ended before it answered: it had {result.ended_after(QUERY_TIMEOUT_S)}"
            return {**snapshot, "outcome": "error", "reason_code": "timeout", "reason": reason}
        if result.timed_out:
            reason = f"{self.program} did not answer in {result.ended_after(QUERY_TIMEOUT_S)}: an NPU or its driver hangs, see dmesg"
            return {**snapshot, "outcome": "error", "reason_code": "gpu_lost", "reason": reason}
        if result.rc and read["reason_code"] in (None, "bad_output", "incomplete_output"):
            words = " ".join((result.err or result.out[:1000]).split())[:200]
            code, reason = npu_smi.failure(f"{result.out}\n{result.err}") or (
                "tool_failed", f"{self.program} ended with status {result.rc}: {words}",
            )  # fmt: skip
            return {**snapshot, "outcome": "error", "reason_code": code, "reason": reason}
        snapshot["gpus"] = [self._device(index, chip, read["processes"]) for index, chip in enumerate(read["chips"])]
        if snapshot["outcome"] == "measured":
            self._complete(snapshot)
        return snapshot

    def _complete(self, snapshot: base.Snapshot) -> None:
        """Turn the snapshot into an error unless every NPU answers."""
        listed = npu_smi.parse_list(self._query("info", "-l"))
        answering = len({g["npu"] for g in snapshot["gpus"]})
        lost = [g for g in snapshot["gpus"] if g["lost"]]
        if lost:
            reason = "; ".join(f"NPU {g['index']} ({g['bdf']}): {g['lost']}" for g in lost)
            snapshot.update(outcome="error", reason_code="gpu_lost", reason=reason)
        elif listed is not None and listed != answering:
            snapshot.update(outcome="error", reason_code="gpu_lost", reason=f"npu-smi lists {listed} NPUs and {answering} answer")

    def _query(self, *words: str) -> str:
        result = self.node.run([self.program, *words], timeout=QUERY_TIMEOUT_S)
        return result.out if result.ok else ""

    def _info(self, chip: dict[str, t.Any], topic: str) -> str:
        """Return the output of `info -t TOPIC` for one chip. A device without chips refuses the option -c."""
        where = ("-i", str(chip["npu"]))
        return self._query("info", "-t", topic, *where, "-c", str(chip["chip"])) or self._query("info", "-t", topic, *where)

    def _device(self, index: int, chip: dict[str, t.Any], processes: list[dict[str, t.Any]]) -> base.Device:
        board = self._info(chip, "board")
        ecc = npu_smi.parse_ecc(self._info(chip, "ecc"))
        pairs = npu_smi.parse_pairs(board)
        identity = npu_smi.parse_identity(board)
        healthy = chip["health"].upper() == "OK"
        answers = chip["health"].upper() not in ("UNKNOWN", "NA", "")
        name = chip["name"] if "ascend" in chip["name"].lower() else f"Ascend {chip['name']}"
        return {
            "word": self.word,
            "idle_mib": IDLE_MIB,
            "index": index,
            "npu": chip["npu"],
            "chip": chip["chip"],
            # By which number hccn_tool knows it.
            "port": chip["phy"] if chip["phy"] is not None else chip["npu"],
            "uuid": f"NPU-{identity}" if identity else None,
            "serial": npu_smi.parse_pairs(self._query("info", "-t", "board", "-i", str(chip["npu"]))).get("Serial Number"),
            "name": name,
            "architecture": None,
            "bdf": chip["bdf"],
            "vbios": pairs.get("Firmware Version"),
            "gsp_firmware": None,
            "memory_total_mib": chip["memory_total_mib"],
            "memory_used_mib": chip["memory_used_mib"],
            "utilization": chip["utilization"],
            "persistence": None,
            "mig": None,
            "compute_mode": None,
            "lost": None if answers else "npu-smi does not know its health: it does not answer",
            "health": chip["health"],
            "alarms": "" if healthy else npu_smi.parse_alarms(self._info(chip, "health")),
            "recovery_action": None,
            "ecc_mode": None,
            "ecc": {
                "volatile_uncorrected": ecc["double"],
                "volatile_corrected": ecc["single"],
                "aggregate_uncorrected": ecc["total_double"],
                "aggregate_corrected": ecc["total_single"],
                "unrepairable": None,
            },
            "remapped_rows": {
                "correctable": ecc["isolated_single"], "uncorrectable": ecc["isolated_double"], "pending": None, "failure": None,
            },
            "retired_pages": {"single_bit": ecc["isolated_single"], "double_bit": ecc["isolated_double"], "pending": None},
            "throttle_reasons": [],
            "throttle_us": {},
            "clocks": dict.fromkeys(("sm", "mem", "max_sm"), NOT_REPORTED),
            "application_clock": dict.fromkeys(("now", "default"), NOT_REPORTED),
            "power": {"draw_w": chip["power_w"], "limit_w": NOT_REPORTED, "default_limit_w": NOT_REPORTED},
            "temperature_c": chip["temperature_c"],
            "pcie": dict.fromkeys(("gen", "gen_max", "gen_device", "width", "width_max", "replays"), NOT_REPORTED),
            "slot_known": False,
            "virtual": None,
            "module": None,
            "board_part_number": None,
            "place": {},
            "unreadable": [],
            "fabric": dict.fromkeys(("state", "status", "health", "bandwidth", "faults", "cluster", "clique")),
            "processes": [
                {"pid": p["pid"], "name": p["name"], "used_mib": p["used_mib"], "type": "C"}
                for p in processes
                if (p["npu"], p["chip"]) == (chip["npu"], chip["chip"])
            ],
        }  # fmt: skip

    def health(self, device: base.Device) -> list[tuple[str, str]]:
        problems = []
        if device["lost"]:
            problems.append(("gpu_lost", device["lost"]))
        problems += base.lifetime(device)
        pages = absent.at_least((device["retired_pages"]["single_bit"], device["retired_pages"]["double_bit"]))
        if base.above(pages, 0):
            problems.append(("ecc_past", f"{pages} memory pages are isolated"))
        unread = device["ecc"]["volatile_uncorrected"]
        if isinstance(unread, Absent):
            problems.append(("unsupported", f"npu-smi does not report its memory errors (info -t ecc): {unread.why}"))
        if isinstance(pages, Absent) and not isinstance(unread, Absent):
            problems.append(("unreadable_state", f"npu-smi does not report which pages of its memory are isolated: {pages.why}"))
        if not device["lost"] and device["health"].upper() != "OK":
            problems.append(("npu_alarm", f"the driver says {device['health']}: {device['alarms'] or 'see npu-smi info -t health'}"))
        return sorted(problems, key=lambda problem: problem[0] in reasons.MILD)

    def siblings(self, snapshot: base.Snapshot) -> dict[str, list[base.Problem]]:
        largest = max((absent.plain(g["memory_total_mib"]) or 0 for g in snapshot["gpus"]), default=0)
        return {
            g["uuid"]: [("gpu_state", f"it has {g['memory_total_mib']} MiB of memory, and another NPU of the node {largest} MiB")]
            for g in snapshot["gpus"]
            if g["uuid"] and (absent.plain(g["memory_total_mib"]) or largest) < base.MEMORY_SHARE * largest
        }

    def unseen(self, snapshot: base.Snapshot) -> list[str]:
        """Return the device files beyond those that npu-smi shows, of those that this process may open. A container has only the files that
        were given to it."""
        files = [path for path in self._files() if not on_bus.withheld(Tree(self.node), path)]
        return files[len(snapshot["gpus"]) :] if self.node.root == "/" else []

    @staticmethod
    def _files() -> list[str]:
        return sorted(path for path in glob.glob("/dev/davinci*") if re.fullmatch(r"/dev/davinci\d+", path))

    @staticmethod
    def _on_bus(tree: Tree) -> list[on_bus.OnBus]:
        """Return the processing accelerators of Huawei; the driver's name has changed with its generations."""
        return on_bus.devices(tree, "0x19e5", ("0x1200",))

    def present(self) -> list[on_bus.OnBus]:
        tree = Tree(self.node)
        devices = self._on_bus(tree)
        drivers = {device.driver for device in devices if device.driver}
        may_not = self.node.root == "/" and all(on_bus.withheld(tree, path) for path in self._files() or ["/dev/davinci0"])
        return on_bus.usable(tree, devices, drivers, lambda _address: "no device file may be opened" if may_not else "")

    def bus(self, snapshot: base.Snapshot) -> on_bus.Bus:
        shown = {str(g["bdf"]) for g in snapshot["gpus"] if g["bdf"]}
        if not shown or (snapshot.get("simulated") and not os.path.isdir(self.node.path("/sys"))):
            return on_bus.Bus([], {})
        tree = Tree(self.node)
        devices = self._on_bus(tree)
        drivers = {device.driver for device in devices if device.driver and not on_bus.FOR_GUESTS.fullmatch(device.driver)}
        listed = {on_bus.place(address) for address in shown}
        silent = [device for device in devices if device.driver in drivers and on_bus.place(device.address) not in listed]
        refused = sum(bool(on_bus.withheld(tree, path)) for path in self._files()) if self.node.root == "/" else 0
        # Which file is which device is not known: all that are silent are of others only if there are as many files that may not be opened.
        why = f"this process may not open {refused} of the files /dev/davinci*" if refused else ""
        if not refused and on_bus.has_own_devices(tree) and len(self._files()) == len(shown):
            refused, why = len(silent), "its device file was not given to this container"
        is_of_others = 0 < len(silent) <= refused
        return on_bus.compare(
            tree, devices, shown, drivers, self.word, os.path.basename(self.program), lambda _address: why if is_of_others else ""
        )

    # The network ports -----------------------------------------------------------------------------------------------

    def _hccn(self) -> str | None:
        """Return hccn_tool: next to npu-smi, in PATH, or in the driver's folder; None if it is missing."""
        candidate = os.path.join(os.path.dirname(self.program), "hccn_tool") if os.path.dirname(self.program) else ""
        return next((path for path in (candidate, "hccn_tool", HCCN_TOOL) if path and self.node.which(path)), None)

    def _port_outputs(self, snapshot: base.Snapshot, *options: str) -> dict[str, str] | None:
        """Return {UUID: output of hccn_tool}; None if the tool is missing."""
        tool = self._hccn()
        if not tool:
            return None
        outputs = {}
        for g in snapshot["gpus"]:
            result = self.node.run([tool, "-i", str(g["port"]), *options, "-g"], timeout=QUERY_TIMEOUT_S)
            outputs[g["uuid"] or g["bdf"] or str(g["index"])] = result.out + result.err
        return outputs

    def links(self, snapshot: base.Snapshot) -> base.Links | None:
        """{UUID: (UP or DOWN, Gb/s, the word of net_health)}."""
        states, speeds, healths = (self._port_outputs(snapshot, option) for option in ("-link", "-speed", "-net_health"))
        if states is None or speeds is None or healths is None:
            return None
        return {
            uuid: (npu_smi.parse_link(output), npu_smi.parse_speed(speeds[uuid]), npu_smi.parse_net_health(healths[uuid]))
            for uuid, output in states.items()
        }

    def links_down(self, snapshot: base.Snapshot, links: base.Links) -> dict[str, base.Problem]:
        """Return the problem of each NPU whose port is down while another NPU's port is up. On a machine that is not connected at all no
        port is a fault."""
        problems = {}
        best = max((speed or 0 for state, speed, _health in links.values() if state == "UP"), default=0)
        for uuid, (state, speed, net) in links.items():
            if state != "UP" and any(other_state == "UP" for other_state, _speed, _net in links.values()):
                problems[uuid] = ("port_down", f"its network port is {state or 'unreadable'}, on another NPU of this node it is UP")
            elif state == "UP" and speed is not None and speed < best:
                problems[uuid] = ("port_down", f"its network port runs at {speed:g} Gb/s, on another NPU of this node at {best:g}")
            elif state == "UP" and speed is None and best:
                problems[uuid] = ("gpu_state", f"its network port is up and does not tell its speed, that of another NPU has {best:g} Gb/s")
            elif net in BAD_NET:
                problems[uuid] = ("port_down", f"the network behind its port does not answer: net_health is {net}")
        return problems

    def link_errors(self, snapshot: base.Snapshot) -> dict[str, dict[str, int]] | None:
        packets, states = self._port_outputs(snapshot, "-stat"), self._port_outputs(snapshot, "-link_stat")
        if packets is None or states is None:
            return None
        counters = {uuid: {**npu_smi.parse_stat(output), **npu_smi.parse_stat(states[uuid])} for uuid, output in packets.items()}
        return counters if all(counters.values()) else None

    # Software --------------------------------------------------------------------------------------------------------

    def facts(self, snapshot: base.Snapshot, links: base.Links | None) -> dict[str, t.Any]:
        gpus = snapshot["gpus"]
        ports = {f"{state or 'unreadable'}{f' {speed:g} Gb/s' if speed else ''}" for state, speed, _net in (links or {}).values()}
        return {
            "driver": version_in(self.node, "/usr/local/Ascend/driver/version.info") or snapshot["driver"],
            "npu_firmware": sorted({g["vbios"] for g in gpus if g["vbios"]}) or None,
            "npu_firmware_package": version_in(self.node, "/usr/local/Ascend/firmware/version.info"),
            "npu_smi": snapshot["driver"],
            "cann": cann(self.node),
            "gpu_memory_mib": sorted({g["memory_total_mib"] for g in gpus}),
            "npu_ports": sorted(ports) or None,
        }

    def environment(self) -> dict[str, str]:
        return environment(self.node)

    @classmethod
    def settings(cls, node: Node, env: t.Mapping[str, t.Any]) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name.startswith("HCCL_") and name not in env}

    def start(self) -> base.Start:
        return base.Start("ACL", acl.ASK_ACL, environment(self.node), "acl_failed", acl.problem)

    # Evidence --------------------------------------------------------------------------------------------------------

    def sampling(self) -> list[str]:
        """Return the command line of the sampler. `stdbuf` makes it write each line at once: into a pipe it would fill a buffer first."""
        lines = ["stdbuf", "-oL"] if self.node.which("stdbuf") else []
        return [*lines, self.program, "info", "watch", "-d", str(INTERVAL_S), "-s", "pt"]

    def sample(self, line: str, snapshot: base.Snapshot) -> base.DeviceSample | None:
        read = npu_smi.parse_watch(line)
        if read is None:
            return None
        uuid = next((g["uuid"] for g in snapshot["gpus"] if (g["npu"], g["chip"]) == read[:2]), None)
        values = {name: value for name, value in (("power", read[2]), ("temperature", read[3])) if value is not None}
        return base.DeviceSample(uuid, values, frozenset()) if uuid else None


def version_in(node: Node, path: str) -> str | None:
    """Return the version in a file of Ascend's packages; None if there is none."""
    match = re.search(r"(?mi)^\s*(?:package_)?version\s*=\s*\[?([^\]\s]+)", node.read(path) or "")
    return match.group(1) if match else None


def cann(node: Node) -> str | None:
    """The version of CANN's toolkit: the files that tell it have changed their names and places."""
    for folder in TOOLKITS:
        for pattern in ("*/ascend_toolkit_install.info", "*/ascend_nnae_install.info", "ascend_toolkit_install.info", "version.info"):
            for path in sorted(glob.glob(node.path(f"{folder}/{pattern}"))):
                version = version_in(Node(0), path)
                if version:
                    return version
        match = re.search(r"(?m)^toolkit_(?:running|installed)_version=\[[^:\]]*:([^\]]+)\]", node.read(f"{folder}/version.cfg") or "")
        if match:
            return match.group(1)
    return None


def environment(node: Node) -> dict[str, str]:
    """Return the variables that set_env.sh of the toolkit sets for its libraries, for a tool that is started without it."""
    library_path = os.environ.get("LD_LIBRARY_PATH", "")
    home = os.environ.get("ASCEND_HOME_PATH") or next((path for path in TOOLKITS if os.path.isdir(f"{path}/lib64")), "")
    folders = [f"{home}/lib64", *DRIVER_LIBRARIES] if home and not node.contained else []
    present = library_path.split(":")
    paths = [*filter(None, present), *(path for path in folders if os.path.isdir(path) and path not in present)]
    return {"LD_LIBRARY_PATH": ":".join(paths)} if paths and folders else {}
