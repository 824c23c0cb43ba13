# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fabrics for the drill: nodes whose tools print what the fabric has, measured by the real probe and judged as in a run."""

from __future__ import annotations

import copy
import json
import math
import pathlib
import random
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import infiniband
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import fabric_map
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.process import CommandResult
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import Completer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from harness import report_samples as samples
from harness.fat_tree import End, FatTree

STAGE, AFTER = "fabric_map", "fabric_map_after"
INFINIBAND, ETHERNET = "InfiniBand", "Ethernet"
CHECKS = (fabric_map.PORTS, fabric_map.OPTICS, fabric_map.DISCOVERY)
DISCOVERERS = 2
# What a tool does in place of what it should: (exit status, standard output, standard error), or None if it never ends.
Answer = tuple[int, str, str] | None
SPEEDS = ("EDR", "HDR", "NDR", "XDR")
# {path: what was written there}: most files of most trials are the same.
Written = t.Dict[pathlib.Path, str]
PHYSICAL = {True: ("4: ACTIVE", "5: LinkUp"), False: ("1: DOWN", "2: Polling")}


class Module:
    """The module in a port: its values in the units of mlxlink, one for each lane, limits of the alarm, and flags that it raises. Lanes
    beside the `used` ones of its link are dark."""

    def __init__(self, source: random.Random, is_passive: bool = False, used: int = 4) -> None:
        self.serial = f"SN{source.randrange(10**8):08}"
        self.is_passive = is_passive
        self.celsius = round(source.uniform(28, 66), 1)
        self.bias = [round(source.uniform(6, 9), 2) for _lane in range(4)]
        self.rx_dbm = [round(source.uniform(-3, 2), 2) for _lane in range(4)]
        self.tx_dbm = [round(source.uniform(-1, 2), 2) for _lane in range(4)]
        self.flags: list[str] = []
        self.los = "0,0,0,0"
        self.width = 4
        self.use(used)
        self.effective = source.choice(("15E-255", "1.2E-16", "0"))
        self.symbol = "15E-255"
        self.advice = ("0", "No issue was observed")
        # What it prints in place of each value.
        self.nonsense = ""

    def use(self, lanes: int) -> None:
        """Leave the lanes above dark."""
        self.width = lanes
        self.rx_dbm[lanes:] = [-math.inf] * (4 - lanes)
        self.los = ",".join(["0"] * lanes + ["1"] * (4 - lanes))

    def mlxlink(self) -> str:
        """Return what `mlxlink -m -c --json` prints."""
        info: dict[str, t.Any] = {"Vendor Name": "Maker", "Vendor Part Number": "SR4", "Vendor Serial Number": self.serial}
        for name, values, limits in (
            ("Temperature [C]", [self.celsius], "-10..80"), ("Bias Current [mA]", self.bias, "2..12"),
            ("Rx Power Current [dBm]", self.rx_dbm, "-10.3..5"), ("Tx Power Current [dBm]", self.tx_dbm, "-8.2..5"),
        ):  # fmt: skip
            shown = ",".join("-inf" if value == -math.inf else f"{value:g}" for value in values)
            info[name] = "N/A" if self.is_passive else f"{self.nonsense or shown} [{limits}]"
        info["Rx LOS [per lane]"] = "N/A" if self.is_passive else self.los
        output = {
            "Operational Info": {"State": "Active", "Speed": "IB-NDR", "Width": f"{self.width}x", "FEC": "RS-FEC"},
            "Troubleshooting Info": {"Status Opcode": self.advice[0], "Recommendation": self.advice[1]},
            "Module Info": info,
            "Physical Counters and BER Info": {
                "Raw Physical BER": "3E-9", "Effective Physical BER": self.effective, "Symbol BER": self.symbol, "Link Down Counter": "0",
            },
        }  # fmt: skip
        return json.dumps({"status": {"code": 0, "message": "success"}, "result": {"output": output}}, indent=1)

    def ethtool(self) -> str:
        """Return what `ethtool -m` prints."""
        lines = ["Identifier : 0x18 (QSFP-DD)", "Vendor name : Maker", "Vendor PN : SR4", f"Vendor SN : {self.serial}"]
        if not self.is_passive:
            celsius = f"{self.celsius:.2f} degrees C / {self.celsius * 1.8 + 32:.2f} degrees F"
            lines.append(f"Module temperature : {self.nonsense or celsius}")
            for lane in range(4):
                powers = [0.0 if dbm == -math.inf else 10 ** (dbm / 10) for dbm in (self.tx_dbm[lane], self.rx_dbm[lane])]
                mw = [self.nonsense or f"{power:.4f} mW / {10 * math.log10(power) if power else -math.inf:.2f} dBm" for power in powers]
                lines.append(f"Laser tx bias current (Channel {lane + 1}) : {self.nonsense or f'{self.bias[lane]:.3f} mA'}")
                lines.append(f"Transmit avg optical power (Channel {lane + 1}) : {mw[0]}")
                lines.append(f"Rcvr signal avg optical power(Channel {lane + 1}) : {mw[1]}")
            for words in ("Module temperature high alarm", "Module temperature high warning", "Laser rx power low alarm (Chan 1)"):
                lines.append(f"{words} : {'On' if words.partition(' (')[0].lower() in self.flags else 'Off'}")
            lines += [
                "Module temperature high alarm threshold : 80.00 degrees C / 176.00 degrees F",
                "Laser tx bias current high alarm threshold : 12.000 mA", "Laser tx bias current low alarm threshold : 2.000 mA",
                "Laser rx power low alarm threshold : 0.0933 mW / -10.30 dBm",
                "Module temperature high warning threshold : 72.00 degrees C / 161.60 degrees F",
            ]  # fmt: skip
        return "".join(f"\t{line}\n" for line in lines)


class Machine(Node):
    """A node of a fabric, below a root of its own."""

    def __init__(self, root: pathlib.Path, fabric: Fabric, host: str) -> None:
        super().__init__(600.0, root=str(root))
        self.fabric, self.host = fabric, host
        self.counted = 0

    def which(self, name: str) -> str | None:
        return name if name in self.fabric.tools and (self.host, name) not in self.fabric.without else None

    def run(self, argv: list[str], *_more: t.Any, **_others: t.Any) -> CommandResult:
        result = CommandResult(argv)
        tool = argv[0]
        self.counted += tool == "ibqueryerrors"
        answer: Answer = (0, "", "")
        try:
            answer = self.fabric.answers[self.host, tool]
        except KeyError:
            answer = self.fabric.prints(self, tool, argv)
        if answer is None:
            result.timed_out, result.rc = True, -9
        else:
            result.rc, result.out, result.err = answer
        return result


class Fabric:
    """A fabric of `tree`, InfiniBand or Ethernet, and what its nodes say of it. Change the attributes to plant a fault.

    `nodes` are the hosts of the run, `away` ports without a cable on every node. `answers` are {(host, tool): what it does instead},
    `without` the tools that a host lacks, `settings` variables of the stage. `later` is the fabric at the end of the run, if it is looked
    at again.
    """

    def __init__(self, source: random.Random, layer: str, tree: FatTree) -> None:
        self.source, self.layer, self.tree = source, layer, tree
        self.nodes = list(tree.hosts)
        self.uses_mlxlink = layer == INFINIBAND or source.random() < 0.5
        # Each port of a switch is two, and the cables of nodes and of switches are splitters.
        used = 2 if self.uses_mlxlink and source.random() < 0.2 else 4
        tree.full = f"{used}x{source.choice(SPEEDS)}"
        has_copper = source.random() < 0.3
        self.modules = {(host, rail): Module(source, has_copper, used) for host in tree.hosts for rail in range(1, tree.rails + 1)}
        self.tools = {
            "ibnetdiscover", "iblinkinfo", "ibqueryerrors", "sminfo", "vendstat", "lldpctl",
            "mlxlink" if self.uses_mlxlink else "ethtool",
        }  # fmt: skip
        self.without: set[tuple[str, str]] = set()
        self.answers: dict[tuple[str, str], Answer] = {}
        self.firmware = {name: "31.2012.1024" for name in (*tree.leaves, *tree.spines)}
        self.dates: dict[str, str] = {}
        self.managers = {host: 1 for host in tree.hosts}
        self.manager_state = "3 SMINFO_MASTER"
        self.rising: dict[End, dict[str, int]] = {}
        self.unheard: set[End] = set()
        # What else is heard at a port.
        self.strange: dict[End, tuple[str, str]] = {}
        self.rates: dict[End, str] = {}
        self.spare_port = source.random() < 0.25
        self.form = source.choice(("json", "json0"))
        self.settings: dict[str, t.Any] = {}
        self.options: dict[str, t.Any] = {}
        self.later: Fabric | None = None
        # The tree that another node sees.
        self.others_see: dict[str, FatTree] = {}

    # What tools print ---------------------------------------------------------------------------------------------------

    def prints(self, machine: Machine, tool: str, argv: list[str]) -> Answer:
        tree = self.others_see.get(machine.host, self.tree)
        if not tree.spines and "-C" in argv:
            tree = _rail(tree, int(argv[argv.index("-C") + 1].rpartition("_")[2]))
        if tool == "ibnetdiscover":
            return 0, tree.text(), ""
        if tool == "iblinkinfo":
            return 0, _iblinkinfo(tree), ""
        if tool == "ibqueryerrors":
            is_second = machine.counted % 2 == 0
            text = self.ibqueryerrors(is_second, tree)
            return int("GUID" in text), text, ""
        if tool == "sminfo":
            lid = self.managers[machine.host]
            return 0, f"sminfo: sm lid {lid} sm guid 0xa088c20300010011, activity count 530 priority 0 state {self.manager_state}\n", ""
        if tool == "vendstat":
            return self.vendstat(int(argv[-1]))
        if tool == "lldpctl":
            return 0, self.lldpctl(machine.host), ""
        rail = int(argv[2].rpartition("_")[2]) + 1 if tool == "mlxlink" else int(argv[-1].removeprefix("rail"))
        module = self.modules.get((machine.host, rail))
        if module is None:
            return 1, "", "netlink error: No such device or address\n"
        if tool == "ethtool" and "--json" in argv:
            return 1, "", "ethtool: bad command line argument(s)\n"
        return 0, module.mlxlink() if tool == "mlxlink" else module.ethtool(), ""

    def ibqueryerrors(self, is_second: bool, tree: FatTree) -> str:
        counted = {**self.tree.errors}
        if is_second:
            counted.update({end: {**counted.get(end, {}), **more} for end, more in self.rising.items()})
        linked = tree.linked()
        counted = {end: counters for end, counters in counted.items() if end in linked}
        lines = []
        for end, counters in counted.items():
            name, port = end
            guid, number = (self.tree.port_guid(name, port), 1) if name in self.tree.of_hosts else (self.tree.guid(name), port)
            words = " ".join(f"[{counter} == {count}]" for counter, count in counters.items())
            lines += [f'Errors for "{name}"', f"   GUID 0x{guid} port ALL: {words}", f"   GUID 0x{guid} port {number}: {words}"]
        names = {name for name, _port in linked}
        lines += ["", f"## Summary: {len(names)} nodes checked, {len({name for name, _port in counted})} bad nodes found"]
        lines.append(f"##          {len(linked)} ports checked, {len(counted)} ports have errors beyond threshold")
        lines += ["## (null)", "## Suppressed:"]
        return "\n".join(lines) + "\n"

    def vendstat(self, lid: int) -> Answer:
        name = next(name for name, number in self.tree.numbers.items() if number == lid)
        version = self.firmware.get(name)
        if version is None:
            return 255, "", "vendstat: method 1, attribute 1 failure"
        date = self.dates.get(name, "05/08/2024")
        return 0, f"hw_dev_id:   0xd2f2\nfw_version:  {version}\nfw_date:     {date}\nfw_psid:     'MT_1'\n", ""

    def lldpctl(self, host: str) -> str:
        linked = self.tree.linked()
        listed = []
        for rail in range(1, self.tree.rails + 1):
            ends = [linked[host, rail][0]] if (host, rail) in linked and (host, rail) not in self.unheard else []
            ends += [(name, port) for name, port in [self.strange[host, rail]]] if (host, rail) in self.strange else []  # type: ignore[misc]
            for name, port in ends:
                shown = port if isinstance(port, str) else f"swp{port}"
                listed.append((f"rail{rail}", name, shown))
        if self.form == "json":
            found = [
                {interface: {"via": "LLDP", "chassis": {name: {"id": {"type": "mac", "value": "3a"}}},
                             "port": {"id": {"type": "ifname", "value": port}, "ttl": "120"}}}
                for interface, name, port in listed
            ]  # fmt: skip
            return json.dumps({"lldp": {"interface": found}} if found else {"lldp": {}}, indent=2)
        found = [
            {"name": interface, "via": "LLDP", "chassis": [{"id": [{"type": "mac", "value": "3a"}], "name": [{"value": name}]}],
             "port": [{"id": [{"type": "ifname", "value": port}], "ttl": [{"value": "120"}]}]}
            for interface, name, port in listed
        ]  # fmt: skip
        return json.dumps({"lldp": [{"interface": found}] if found else [{}]}, indent=2)

    # The node's own sysfs -----------------------------------------------------------------------------------------------

    def plant(self, roots: pathlib.Path, host: str, written: Written) -> pathlib.Path:
        """Write what the kernel of a node says of its ports; return its root."""
        root = roots / f"{self.layer}-{self.tree.rails + self.spare_port}" / host
        linked = self.tree.linked()
        _write(root / "dev/infiniband/umad0", "", written)
        for rail in range(1, self.tree.rails + 1 + self.spare_port):
            state, physical = PHYSICAL[(host, rail) in linked]
            rate = self.rates.get((host, rail)) or (linked[host, rail][1] if (host, rail) in linked else self.tree.full)
            width, _x, speed = rate.partition("x")
            port = root / f"sys/class/infiniband/mlx5_{rail - 1}/ports/1"
            guid = self.tree.port_guid(host, rail)
            gid = ":".join(("fe80:0000:0000:0000", *(guid[at : at + 4] for at in range(0, 16, 4))))
            values = {
                "state": state, "phys_state": physical, "link_layer": self.layer, "sm_lid": hex(self.managers[host]), "gids/0": gid,
                "rate": f"{infiniband.gbps(int(width), speed):g} Gb/sec ({width}X {speed})",
            }  # fmt: skip
            if self.layer == ETHERNET:
                values.update({"gid_attrs/ndevs/0": f"rail{rail}", "gid_attrs/types/0": "RoCE v2"})
            for name, value in values.items():
                _write(port / name, f"{value}\n", written)
        return root

    # From the nodes to a verdict ----------------------------------------------------------------------------------------

    def judged(self, folder: pathlib.Path, written: Written) -> verdict.Judgement:
        """Measure and judge the run of this fabric. `folder` may have the roots of other fabrics, as far as they are `written`."""
        run = Run(folder, samples.RUN)
        run.dir.mkdir(parents=True, exist_ok=True)
        items: list[dict[str, t.Any]] = []
        records: list[t.Any] = []
        for stage, fabric in ((STAGE, self), (AFTER, self.later)):
            for place, host in enumerate(self.nodes) if fabric else ():
                names = [check for check in CHECKS if check != fabric_map.DISCOVERY or place < DISCOVERERS]
                checks = [{"check": name, "variant": ""} for name in names if stage == STAGE or name == fabric_map.DISCOVERY]
                if checks:
                    assert fabric
                    root = fabric.plant(folder / "roots", host, written)
                    subject = {"kind": "node", "id": host, "members": []}
                    own = [{"stage": stage, "target": host, "subject": subject, **check} for check in checks]
                    completer = Completer(run, stage, host, "ssh", {(i["check"], i["variant"], host): t.cast(t.Any, i) for i in own})
                    params = {
                        "devices": [], "required": False, "optional": False, "watch": 0.0, "tool_timeout": 5.0, **self.options,
                        "checks": checks,
                    }  # fmt: skip
                    machine = Machine(root, fabric, host)
                    records += [completer.complete(one) for one in fabric_map.probe(params, machine)]
                    items += own
        stages = [STAGE, *(["rdma", AFTER] if self.later else [])]
        settings = {"sets": [self.settings], "of": {host: 0 for host in self.nodes}}
        plan = samples.plan(self.nodes, stages, items=items, settings=settings)
        known = expectations.shipped()
        return verdict.judge(t.cast(t.Any, plan), records, lambda *_who: known, stages=registry.shipped().values())


def _rail(tree: FatTree, rail: int) -> FatTree:
    """Return the part of a fabric without spines that is seen through a port: its leaf, and what is plugged in there."""
    of_rail = copy.copy(tree)
    of_rail.cables = {name: cable for name, cable in tree.cables.items() if (tree.leaves.index(cable[1][0]) - rail) % tree.rails == 0}
    of_rail.leaves = [leaf for place, leaf in enumerate(tree.leaves) if (place - rail) % tree.rails == 0]
    return of_rail


def _write(path: pathlib.Path, text: str, written: Written) -> None:
    if path not in written:
        path.parent.mkdir(parents=True, exist_ok=True)
    if written.get(path) != text:
        path.write_text(text)
        written[path] = text


def _iblinkinfo(tree: FatTree) -> str:
    """Return what `iblinkinfo -l` prints, with the ports that have no cable."""
    linked = tree.linked()
    lines = []
    cabled: set[End] = {*linked}
    if tree.spines:
        cabled |= {(host, rail) for host in tree.hosts for rail in range(1, tree.rails + 1)}
    cabled |= {(leaf, port) for leaf in tree.leaves for port in range(1, tree.per_leaf + tree.uplinks + 1)}
    for name, port in sorted(cabled):
        own = (tree.port_guid(name, port), 1) if name in tree.of_hosts else (tree.guid(name), port)
        front = f'0x{own[0]} "{name:>30}" {tree.numbers[name]:6} {own[1]:4}[  ] ==('
        if (name, port) not in linked:
            lines.append(f'{front}                Down/ Polling)==>             [  ] "" ( )')
            continue
        (far, far_port), rate = linked[name, port]
        there = (tree.port_guid(far, far_port), 1) if far in tree.of_hosts else (tree.guid(far), far_port)
        width, _x, speed = rate.partition("x")
        lane = infiniband.LANE_GBPS[speed]
        state = f'{front} {width}X        {lane:g} Gbps Active/  LinkUp)==>'
        most = tree.full.partition("x")[0]
        could = f"(Could be {most}X )" if width < most else "( )"
        lines.append(f'{state}  0x{there[0]} {tree.numbers[far]:6} {there[1]:4}[  ] "{far}" {could}')
    return "\n".join(lines) + "\n"
