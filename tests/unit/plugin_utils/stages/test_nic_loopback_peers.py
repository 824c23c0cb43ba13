# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an RDMA port does now neither selects its floor nor its peers: fleets are generated, and ports of them made worse."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import nic_models
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import nic_loopback as probe
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import loopback
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from harness import report_samples as samples
from hypothesis import given, settings
from hypothesis import strategies as st

Record = t.Dict[str, t.Any]
WORST_FIRST = ("FAIL", "UNKNOWN", "KNOWN_FAIL", "WARN", "PASS", "SKIPPED")
# {type of the chip: rates that its ports are sold with}, each with the lanes of its slot.
CHIPS = {"MT4129": 400.0, "MT4123": 200.0, "MT4119": 100.0, "MT4117": 25.0}


@dataclasses.dataclass(frozen=True)
class Port:
    """A port: chip and board, the rate that it has negotiated (None if unread), generation and lanes of its slot, and its state."""

    chip: str = "MT4129"
    board: str = "MT_0000000838"
    rate: float | None = 400.0
    generation: int = 5
    lanes: int = 16
    state: str = "ACTIVE"
    layer: str = "Ethernet"
    module: bool | None = None
    function: int = 0
    share: float = 0.98

    @property
    def value(self) -> float:
        """What a loopback gives: what wire and slot let through."""
        link = {"pcie_gen": self.generation, "pcie_width": self.lanes}
        return round(self.share * loopback._let_through(self.rate or CHIPS[self.chip], link), 2)


def _loopback_port(number: int, port: Port) -> tuple[loopback.LoopbackPort, Record]:
    speed = {v: k for k, v in loopback.GENERATIONS.items()}[port.generation]
    link = {"speed": speed, "width": port.lanes}
    device = {
        "device": f"mlx5_{number}", "type": port.chip, "board": port.board, "driver": "mlx5_core", "numa_node": 0, "pci_id": None,
        "pci": f"0000:{number + 16:02x}:00.{port.function}", "pcie": {"max": link, "slot": link, "current": link}, "part_number": None,
        "pci_path": f"/sys/devices/pci0000:00/0000:{number:02x}:01.0/0000:{number + 16:02x}:00.{port.function}",
    }  # fmt: skip
    of = {
        "device": device["device"], "port": 1, "state": port.state, "physical": "LinkUp", "link_layer": port.layer, "rate_gbps": port.rate,
        "most_gbps": None, "module": port.module, "width": 4, "gid": {"index": 3, "address": "10.0.0.1"}, "gid_problem": "",
    }  # fmt: skip
    return loopback.LoopbackPort(device, of, {}), device


def records_of(node: str, ports: t.Sequence[Port], gbps: t.Sequence[float] = (), machine: str = "Maker Model") -> list[Record]:
    """The measurements of a node as the probe makes them."""
    built = [_loopback_port(number, port) for number, port in enumerate(ports)]
    all_ports, devices = [each for each, _device in built], [device for _each, device in built]
    loopback.hold_to(all_ports, gbps, machine, devices)
    params: Record = {"devices": [], "ports": None, "gbps": list(gbps)}
    context = {"machine": machine, "governor": None, "left_out": {}}
    whole = samples.measurement(node, "nic_loopback", "ports")
    row_of = [probe._row_of(port) for port in all_ports]
    findings = [
        {"code": "link_slow", "part": port.part, "text": "below what is stated"}
        for port, least in zip(all_ports, [*gbps] * (len(all_ports) if len(gbps) == 1 else 1))
        if (port.port["rate_gbps"] or 0) < least
    ]
    made = [
        {
            **whole, "metrics": {}, "series": [], "evidence": {}, "variant": "", "target": node,
            "subject": {"kind": "node", "id": node, "members": []},
            "context": {
                **context, "ports": row_of, "wanted": params["ports"], "devices_stated": False,
                "gbps_stated": bool(gbps), "findings": findings,
            },
        }
    ]  # fmt: skip
    active = [(port, spec) for port, spec in zip(all_ports, ports) if port.problem is None]
    for check in ("write_bw", "write_bw_all"):
        results = [
            loopback.Result(
                port, {"size": 65536, "bandwidth": spec.value}, None, "raw",
                {**loopback.NOT_STARTED, "outcome": "measured", "started_at": "2026-11-21T00:00:00Z"},
            )
            for port, spec in active
        ]  # fmt: skip
        common = {"variant": "", "evidence": {"changes": [], "unreadable": []}, "context": context}
        for one in probe._observations(check, results, common) if results else ():
            part = one["part"]
            members = [f"{node}/{member}" for member in one["members"]]
            made.append(
                {
                    **samples.measurement(node, "nic_loopback", check), "variant": "", "target": node, "series": one["series"],
                    "subject": {"kind": "nic" if part else "node", "id": f"{node}/{part}" if part else node, "members": members},
                    "metrics": one["metrics"], "context": one["context"], "evidence": one["evidence"], "outcome": one["outcome"],
                    "reason_code": None, "reason": None,
                }
            )  # fmt: skip
    return made


def judged(
    fleet: t.Sequence[t.Sequence[Port]], gbps: t.Sequence[float] = (), cluster: str = ""
) -> tuple[dict[str, str], dict[tuple[str, str], str | None]]:
    """({node: its worst verdict}, {(subject, check): reason code}), of machines behind SSH or of the nodes of a cluster."""
    records = [record for number, ports in enumerate(fleet) for record in records_of(f"n{number}", ports, gbps)]
    if cluster:
        for record in records:
            subject = {**record["subject"], "members": [f"{cluster}/{member}" for member in record["subject"]["members"]]}
            record.update(subject={**subject, "id": f"{cluster}/{subject['id']}"}, plane="kubernetes", target=cluster)
    return _words(records)


def _words(records: list[Record]) -> tuple[dict[str, str], dict[tuple[str, str], str | None]]:
    items = [{key: r[key] for key in ("stage", "check", "variant", "subject", "target")} for r in records if r["subject"]["kind"] == "node"]
    nodes = list(dict.fromkeys(item["subject"]["id"] for item in items))
    plan: t.Any = samples.plan(list(dict.fromkeys(item["target"] for item in items)), ["nic_loopback"], items=items)
    found = verdict.judge(plan, records, lambda *_who: expectations.shipped(), stages=registry.shipped().values())
    worst: dict[str, str] = {}
    for node in nodes:
        words = {v["verdict"] for v in found.verdicts if (v["subject"]["id"] + "/").startswith(f"{node}/")}
        worst[node] = next(word for word in WORST_FIRST if word in words)
    return worst, {(v["subject"]["id"], v["check"]): v["reason_code"] for v in found.verdicts}


@pytest.mark.parametrize("count", [1, 2, 8])
def test_nodes_of_a_cluster_are_judged_as_machines_are(count: int) -> None:
    for bad in (Port(rate=97.0), Port(rate=200.0), Port(lanes=8), Port(rate=None, share=0.4)):
        fleet = [[GOOD] * 3 + [bad], *[[GOOD] * 4] * (count - 1)]
        on_cluster = judged(fleet, cluster="lab")[0]
        assert {name.removeprefix("lab/"): word for name, word in on_cluster.items()} == judged(fleet)[0]
        assert on_cluster["lab/n0"] == "FAIL"


GOOD = Port()
LOWER = [10.0, 25.0, 50.0, 97.0, 100.0, 200.0]


@pytest.mark.parametrize("machines", [1, 2, 8])
@pytest.mark.parametrize("rate", LOWER)
@pytest.mark.parametrize("ports", [2, 4, 8])
@pytest.mark.parametrize("layer", ["Ethernet", "InfiniBand"])
def test_a_port_that_linked_more_slowly_than_its_siblings_is_refused(machines: int, rate: float, ports: int, layer: str) -> None:
    good = dataclasses.replace(GOOD, layer=layer)
    bad = [good] * (ports - 1) + [dataclasses.replace(good, rate=rate)]
    worst, codes = judged([bad] + [[good] * ports] * (machines - 1))
    assert worst["n0"] == "FAIL" and codes["n0", "ports"] == "link_slow"
    assert {worst[node] for node in worst if node != "n0"} <= {"PASS", "WARN"}


@pytest.mark.parametrize("machines", [1, 2])
def test_the_same_port_is_slow_on_too_few_machines_to_be_the_design(machines: int) -> None:
    worst, _codes = judged([[GOOD] * 3 + [Port(rate=200.0)]] * machines)
    assert set(worst.values()) == {"FAIL"}


@pytest.mark.parametrize("machines", [3, 8])
def test_a_port_that_is_cabled_more_slowly_everywhere_is_a_warning(machines: int) -> None:
    worst, codes = judged([[GOOD] * 3 + [Port(rate=200.0)]] * machines)
    assert set(worst.values()) == {"WARN"} and codes["n0", "ports"] == "link_slow"


@pytest.mark.parametrize("board", [None, ""])
@pytest.mark.parametrize("rate", [100.0, 200.0])
@pytest.mark.parametrize("machines", [1, 2, 8])
def test_a_slow_port_that_does_not_give_its_board_has_the_peers_of_its_chip(machines: int, rate: float, board: str | None) -> None:
    bad = Port(rate=rate, board=t.cast(str, board))
    assert judged([[GOOD] * 3 + [bad]] + [[GOOD] * 4] * (machines - 1))[0]["n0"] == "FAIL"


@pytest.mark.parametrize(("stated", "wanted"), [([400.0, 400.0, 400.0, 200.0], "PASS"), ([400.0], "FAIL")])
def test_the_inventory_states_the_rate(stated: list[float], wanted: str) -> None:
    worst, _codes = judged([[GOOD] * 3 + [Port(rate=200.0)]], stated)
    assert worst["n0"] == wanted


@pytest.mark.parametrize("machines", [1, 3])
@pytest.mark.parametrize("rate", [100.0, 200.0])
def test_all_ports_below_what_their_adapter_can_do_are_a_warning(machines: int, rate: float) -> None:
    worst, codes = judged([[Port(rate=rate)] * 4] * machines)
    assert set(worst.values()) == {"WARN"} and codes["n0", "ports"] == "link_slow"


@pytest.mark.parametrize("machines", [1, 2, 8])
@pytest.mark.parametrize("slot", [(5, 8), (5, 4), (4, 16), (3, 16)])
def test_a_nic_in_a_worse_slot_than_its_siblings_is_refused(machines: int, slot: tuple[int, int]) -> None:
    bad = [GOOD] * 3 + [Port(generation=slot[0], lanes=slot[1])]
    worst, codes = judged([bad] + [[GOOD] * 4] * (machines - 1))
    assert worst["n0"] == "FAIL" and str(codes["n0/nic/mlx5_3/1", "write_bw"]).startswith("below_")


@pytest.mark.parametrize("machines", [1, 4])
@pytest.mark.parametrize("chip", ["MT4117", "MT4119", "MT4123"])
@pytest.mark.parametrize("slot", [(3, 8), (4, 8), (4, 16), (5, 16)])
def test_a_slower_nic_of_another_kind_has_a_ceiling_of_its_own(machines: int, chip: str, slot: tuple[int, int]) -> None:
    other = Port(chip, f"{chip}_1", CHIPS[chip], *slot)
    lets_through = loopback._let_through(CHIPS[chip], {"pcie_gen": slot[0], "pcie_width": slot[1]})
    worst, _codes = judged([[GOOD] * 4 + [other]] * machines)
    assert set(worst.values()) == {"PASS"}, lets_through


@pytest.mark.parametrize(
    ("ports", "wanted"),
    [
        ([GOOD, GOOD, GOOD, Port(state="DOWN")], "UNKNOWN"),  # a cable is missing
        ([GOOD, Port(state="DOWN")], "UNKNOWN"),
        ([GOOD, Port(state="DOWN", function=1)], "WARN"),  # the second port of an adapter
        ([GOOD, Port(state="DOWN", function=1, module=True)], "UNKNOWN"),
        ([GOOD, Port("MT4117", "MT_1", 25.0, state="DOWN")], "WARN"),
        ([GOOD, Port(state="DOWN", function=1), GOOD, Port(function=1)], "UNKNOWN"),
    ],
)
def test_a_port_without_a_link_on_a_machine_alone(ports: list[Port], wanted: str) -> None:
    assert judged([ports])[0]["n0"] == wanted


def test_a_rate_that_cannot_be_read_takes_no_port_out_of_its_group() -> None:
    unread = Port(rate=None, share=0.49)
    worst, codes = judged([[GOOD] * 3 + [unread]])
    assert worst["n0"] == "FAIL" and codes["n0/nic/mlx5_3/1", "write_bw"] in ("below_floor", "below_siblings")


kinds = st.sampled_from([Port(), Port("MT4123", "MT_2", 200.0, 4), Port("MT4119", "MT_3", 100.0, 3), Port(layer="InfiniBand")])
machines = st.lists(kinds, min_size=1, max_size=8).map(lambda ports: sorted(ports, key=lambda port: port.chip))


@settings(max_examples=60, deadline=None)
@given(
    ports=machines, count=st.integers(1, 5), at=st.integers(0, 7), rate=st.sampled_from([*LOWER, None]), down=st.booleans(),
    share=st.sampled_from([0.98, 0.5, 0.25]),
)  # fmt: skip
def test_no_state_of_a_port_makes_a_verdict_better(
    ports: list[Port], count: int, at: int, rate: float | None, down: bool, share: float
) -> None:
    """A healthy fleet is accepted. Whatever a port negotiates, no verdict of its node becomes a PASS, and if the port has peers none gets
    better than with the same number and the rate that it should have."""
    fleet = [ports] * count
    before, _codes = judged(fleet)
    assert set(before.values()) <= {"PASS", "WARN"}
    at %= len(ports)
    fine = ports[at]
    slow = dataclasses.replace(fine, share=share)
    lower = rate if rate is None or rate < (fine.rate or 0) else fine.rate
    worse = dataclasses.replace(fine, rate=lower, state="DOWN" if down else "ACTIVE")
    # The number stays that of the port with its full rate, whatever it says of its rate.
    same_number = dataclasses.replace(worse, share=share * fine.value / 0.98 / (worse.value / worse.share))
    with_state = judged([[*ports[:at], same_number, *ports[at + 1 :]], *fleet[1:]])[0]
    without = judged([[*ports[:at], slow, *ports[at + 1 :]], *fleet[1:]])[0]
    has_peers = count * len([port for port in ports if port.board == fine.board]) > 1
    assert with_state["n0"] != "PASS" or without["n0"] == "PASS"
    if not down and has_peers:
        assert WORST_FIRST.index(with_state["n0"]) <= WORST_FIRST.index(without["n0"])
    elif len([port for port in ports if port == fine]) > 1:
        assert with_state["n0"] in ("FAIL", "UNKNOWN")


def test_models_of_adapters() -> None:
    cases: list[tuple[Record, float | None, bool | None]] = [
        ({"type": "MT4129", "part_number": "MCX75310AAS-NEAT"}, 400.0, True),
        ({"type": "MT4129", "part_number": "MCX75310AAS-HEAT"}, 200.0, True),
        ({"type": "MT4119", "part_number": "MCX512A-ACAT"}, 25.0, True),
        ({"type": "MT4129", "part_number": "0J7T7X"}, 400.0, False),
        ({"driver": "bnxt_en", "pci_id": "14e4:1760:14e4:1234"}, 400.0, False),
        ({"driver": "irdma", "pci_id": "8086:1592:8086:0002"}, 100.0, False),
        ({"driver": "somebody", "pci_id": "ffff:0001"}, None, None),
        ({}, None, None),
    ]
    for device, gbps, certain in cases:
        found = nic_models.capable(device, {"port": 1}, [device])
        assert (found and found.gbps, found and found.certain) == (gbps, certain), device
    assert nic_models.capable({"type": "MT4129"}, {"port": 1, "most_gbps": 200}, []) == (200.0, "the modes that it supports", True)
    two = [{"type": "MT4125", "pci": "0000:01:00.0"}, {"type": "MT4125", "pci": "0000:01:00.1"}]
    assert nic_models.capable(two[0], {"port": 1}, two) is None, "of an adapter with two ports the chip tells nothing"


def test_a_part_number_that_cannot_be_read_makes_no_other_model() -> None:
    device = {"type": "MT4129", "board": "MT_1", "part_number": "MCX75310AAS-NEAT", "driver": "mlx5_core", "pci_id": "15b3:1021"}
    for lost in itertools.chain.from_iterable(itertools.combinations(("part_number", "driver", "type", "pci_id"), n) for n in range(5)):
        assert nic_models.model({name: value for name, value in device.items() if name not in lost}) == "MT_1"
