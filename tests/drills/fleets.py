# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fleets made by hand: what nodes show beside one another (counts, models, facts), what an inventory may not soften, what a waiver
holds. Each is judged as in a run, beside healthy look-alikes."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import baseline, expectations, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import measurement_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from harness.records import judge, make_plan

Record = dict[str, t.Any]
RUN = "20261121T000000Z-0a1b2c"
CARD, H200, H100, B200, A100 = "NVIDIA X1", "NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA B200", "NVIDIA A100-SXM4-80GB"
SMC = {"machine_vendor": "Supermicro", "machine_product": "SYS-821GE", "bios_version": "3.1", "vbios": ["96.00.A5"], "driver": "580"}
DELL = {"machine_vendor": "Dell Inc.", "machine_product": "PowerEdge XE9680", "bios_version": "2.4", "vbios": ["96.00.D0"], "driver": "580"}
VM = {"machine_vendor": "QEMU", "machine_product": "Standard PC (Q35 + ICH9, 2009)", "driver": "580"}
ECC = "GPU 3 (0000:1a:00.0, serial 7): 1 uncorrectable memory errors since the driver was loaded"


def record(subject: str, stage: str, check: str, **fields: t.Any) -> Record:
    return {
        "schema": "measurement/v1", "run_id": RUN, "stage": stage, "check": check, "variant": "", "plane": "ssh",
        "subject": {"kind": "node", "id": subject, "members": []}, "target": subject.split("/", maxsplit=1)[0], "attempt": 1,
        "outcome": "measured", "reason_code": None, "reason": None, "metrics": {}, "series": [], "context": {}, "evidence": {},
        "command": [],
        "tool_version": None, "started_at": "2026-11-21T00:00:00Z", "duration_s": 1.0, "raw": None, "raw_sha256": None,
        "simulated": True, **fields,
    }  # fmt: skip


class Node(t.NamedTuple):
    """A node of a fleet, and what is special about it."""

    gpus: int = 8
    model: str = H200
    facts: Record = SMC
    busbw: float = 478.0
    plane: str = "ssh"
    aside: int = 0
    health: str = ""
    events: tuple[Record, ...] = ()


def records(name: str, number: int, node: Node) -> list[Record]:
    uuids = [f"GPU-{number:04}-{gpu}" for gpu in range(node.gpus)]
    identities = {name: {"machine_id": f"{number:032x}", "gpu_uuids": uuids}}
    seen = {"gpu": node.model, "gpus": node.gpus, "gpu_uuids": uuids, "identities": identities}
    used = uuids[node.aside :]
    many = {**seen, "gpus": len(used), "gpu_uuids": used}
    many.update({"set_aside": {uuid: f"GPU {place}" for place, uuid in enumerate(uuids[: node.aside])}} if node.aside else {})
    nccl = {**many, "nvls": len(used) > 4, "algorithm": "auto", "nodes": 1, "series_units": {"busbw": "GB/s"}}
    alone = {"outcome": "not_applicable", "reason_code": "single_gpu", "reason": "one GPU"} if node.gpus == 1 else {}
    bad = {"outcome": "error", "reason_code": "ecc", "reason": node.health} if node.health else {}
    return [
        record(name, "stack", "facts", plane=node.plane, context={**seen, "facts": node.facts}),
        record(name, "stack", "gpu_health", plane=node.plane, context=seen, **bad),
        record(
            name, "nccl_node", "all_reduce", plane=node.plane, context=nccl, evidence={"changes": list(node.events)},
            metrics={"busbw": {"value": node.busbw, "unit": "GB/s"}}, series=[{"size": 16 << 30, "busbw": node.busbw}], **alone,
        ),
    ]  # fmt: skip


def judged(fleet: dict[str, Node], own: t.Any = None, made: t.Any = None, **options: t.Any) -> verdict.Judgement:
    """`own` are expectations of the inventory's, `made` the records in place of those of the fleet."""
    made = made or [one for number, (name, node) in enumerate(fleet.items()) for one in records(name, number, node)]
    items = [{key: one[key] for key in ("stage", "check", "variant", "subject", "target")} for one in made]
    known = expectations.resolve([("group", own)] if own else [])
    plan = make_plan({"run_id": RUN, "items": items})
    options.setdefault("today", datetime.date(2026, 11, 21))
    return judge(plan, made, lambda *_who: known, stages=registry.shipped().values(), **options)


def nodes(*of: Node) -> dict[str, Node]:
    return {f"n{number}": node for number, node in enumerate(of)}


def counts(*of: int, model: str = H200, **fields: t.Any) -> dict[str, Node]:
    """Nodes with so many GPUs, each as fast as such a node is."""
    return nodes(*(Node(gpus=count, model=model, busbw=478.0 if count > 4 else 360.0, **fields) for count in of))


def stated(fleet: dict[str, Node]) -> dict[str, Record]:
    return {name.split("/")[0]: {"gpu_count": node.gpus, "mig": "allowed"} for name, node in fleet.items()}


def entry(value: float, **match: t.Any) -> list[Record]:
    whole = {"stage": "nccl_node", "check": "all_reduce", "gpu": H200, "gpus": 8, "nvls": True, "size": "plateau", **match}
    of = {key: one for key, one in whole.items() if one is not None}
    said = {"source": "s", "date": "2026-11", "confidence": "derived"}
    return [{"id": "own", "match": of, "metric": "busbw", "value": value, "unit": "GB/s", **said}]


def accepts(fleet: dict[str, Node], own: t.Any = None, **options: t.Any) -> str:
    """The word of a run: `accepted`, `warned` of what is accepted with a WARN, or `refused`."""
    options.setdefault("stated", stated(fleet))
    try:
        found = judged(fleet, own, **options)
    except expectations.ExpectationError:
        return "refused"
    warned = found.warnings or any(v["verdict"] == "WARN" for v in found.verdicts)
    return "refused" if not found.accepted else "warned" if warned else "accepted"


def waived(node: Node, *others: Node, **waiver: t.Any) -> str:
    return accepts(nodes(node, *others), waivers=[{**OLD, **waiver}])


def lost_half(waiver: Record) -> str:
    """The word of a run whose health check saw eight GPUs and whose test four, as fast as four are."""
    before, after = records("n0", 0, Node()), records("n0", 0, Node(gpus=4, busbw=360.0))
    return accepts(nodes(Node()), waivers=[waiver], stated={}, made=[*before[:2], after[2]])


def began_with(code: str, attempt: int) -> str:
    """The word of a run whose test began with a defect, and was in order as this attempt."""
    *before, test = records("n0", 0, Node())
    bad = {**test, "evidence": {"health": [{"code": code, "part": "", "text": "it is so"}]}}
    return accepts(nodes(Node()), made=[*before, bad, {**test, "attempt": attempt}])


def ports(gbps: float, part: str = "MCX75310AAS-NEAT", chip: str = "", layer: str = "InfiniBand") -> str:
    """The word of a fleet of two nodes whose RDMA ports all run at one rate, of adapters with a part number and a chip."""
    made = []
    for node in ("n0", "n1"):
        one = {"device": "mlx5_0", "port": 1, "state": "ACTIVE", "rate_gbps": gbps, "link_layer": layer}
        device = {"device": "mlx5_0", "part_number": part, "type": chip, "pci": "0000:1a:00.0"}
        made.append(record(node, "rdma_ports", "ports", context={"devices": [device], "ports": [one], "findings": [], "wanted": {}}))
    return accepts(nodes(Node(), Node()), made=made)


def state() -> str:
    """The state of the error ECC, as a run says it of a waiver without one."""
    found = judged(nodes(Node(health=ECC)), waivers=[OLD], stated={"n0": {"gpu_count": 8}})
    return found.warnings[0].rpartition("[")[2].rstrip("]")


def proposed(busbw: float) -> str:
    """Return True if a fleet proposes its own number over the shipped one."""
    made = [one for number in range(6) for one in records(f"n{number}", number, Node(busbw=busbw))]
    return "accepted" if baseline.propose(map(measurement_of, made), RUN, "2026-11-21").entries else "refused"


OLD: Record = {"subject": "n0", "codes": ["ecc"], "ticket": "T-1", "expires": "2026-12-01"}
NOBODY: Record = {"stated": {}}
ROSE = {"code": "ecc", "part": "gpu/GPU-0000-3", "text": "GPU 3: ecc rose from 1 to 5", "before": 1, "after": 5}
TEN_AND_THREE = [Node()] * 10 + [Node(facts=DELL)] * 3
POD = dict(SMC)
DOCKER = {**SMC, "container_docker": "27.1"}
PODS = {**{f"n{n}": Node(facts=DOCKER) for n in range(4)}, **{f"lab/n{n}": Node(facts=POD, plane="kubernetes") for n in range(3)}}

# What is planted, and the best word that it may end in.
FAULTS: list[tuple[str, str, t.Callable[[], str]]] = [
    *(
        (
            f"{count} {model} of a board of 8, and nobody says how many",
            "refused",
            lambda c=count, m=model: accepts(counts(c, c, model=m), **NOBODY),
        )
        for model in (H200, H100, B200)
        for count in (7, 6, 5, 3, 2, 1)
    ),
    *((f"{c} A100 of a board", "refused", lambda c=c: accepts(counts(c, model=A100), **NOBODY)) for c in (7, 3, 1)),
    *((f"{c} GPUs of a tray of GB200", "refused", lambda c=c: accepts(counts(c, model="NVIDIA GB200"), **NOBODY)) for c in (3, 1)),
    ("half of the nodes have half of their GPUs", "refused", lambda: accepts(counts(8, 8, 4, 4), **NOBODY)),
    *(
        (
            f"half of a node's GPUs are missing, and stack_ignore has {pattern}",
            "refused",
            lambda p=pattern: accepts(counts(8, 8, 8, 4), stack={f"n{n}": {"ignore": [p]} for n in range(4)}, **NOBODY),
        )
        for pattern in ("gpu*", "*")
    ),
    ("one of two nodes has half of its GPUs", "refused", lambda: accepts(counts(8, 4), **NOBODY)),
    ("three numbers of GPUs, none in the majority", "refused", lambda: accepts(counts(8, 8, 4, 4, 2), **NOBODY)),
    ("four of eight GPUs, and nobody says how many", "warned", lambda: accepts(counts(4), **NOBODY)),
    ("four of eight GPUs on every node, and nobody says how many", "warned", lambda: accepts(counts(4, 4, 4), **NOBODY)),
    ("one node of another model", "warned", lambda: accepts(nodes(*[Node()] * 9, Node(model=H100)))),
    *(
        (
            f"an override of 250 for 480, with {', '.join(more)} in its match",
            "refused",
            lambda m=more: accepts(nodes(Node(busbw=250.0)), entry(250.0, **m)),
        )
        for more in ({"nodes": 1}, {"type": "float"}, {"op": "all_reduce"}, {"gpus": [8]}, {"gpus": None}, {"nvls": None}, {"gpu": None})
    ),
    ("six slow nodes propose their own number", "refused", lambda: proposed(250.0)),
    ("six nodes a little under the floor propose their own number", "refused", lambda: proposed(450.0)),
    ("a waiver for an old error takes new ones during a test", "refused", lambda: waived(Node(health=ECC, events=(ROSE,)))),
    ("a waiver for one error takes five", "refused", lambda: waived(Node(health=ECC.replace(": 1 ", ": 5 ")), state=state())),
    ("a waiver for one error does not say for which state it is", "warned", lambda: waived(Node(health=ECC))),
    (
        "a waiver for one GPU's errors takes those of another",
        "refused",
        lambda: waived(Node(health=ECC.replace("GPU 3", "GPU 5")), state=state()),
    ),
    ("a waiver for lost GPUs takes those that are lost in the run", "refused", lambda: lost_half({**OLD, "codes": ["gpu_lost"]})),
    ("memory errors that an earlier attempt began with", "refused", lambda: began_with("ecc", 2)),
    ("a link that one of two records of an attempt began without", "refused", lambda: began_with("nvlink", 1)),
    ("a waiver for a slow node takes a slower one", "refused", lambda: waived(Node(busbw=200.0), codes=["below_floor"], state=400)),
    (
        "another BIOS within one product",
        "refused",
        lambda: accepts(nodes(*TEN_AND_THREE[:12], Node(facts={**DELL, "bios_version": "1.0"}))),
    ),
    (
        "another driver on a machine of another vendor",
        "refused",
        lambda: accepts(nodes(*TEN_AND_THREE[:12], Node(facts={**DELL, "driver": "570"}))),
    ),
    (
        "another driver on a machine with a rule of its own about something else",
        "warned",
        lambda: accepts(nodes(*[Node()] * 5, Node(facts={**SMC, "driver": "570"})), stack={"n5": {"ignore": ["kernel"]}}),
    ),
    ("all RDMA ports run at half the rate of their adapters", "warned", lambda: ports(200.0)),
    (
        "all InfiniBand ports run at half the rate of their chips, with part numbers of a machine's maker",
        "warned",
        lambda: ports(200.0, "0H3X6V", "MT4129"),
    ),
    ("a product that stands alone", "warned", lambda: accepts(nodes(*TEN_AND_THREE[:11]))),
    (
        "a pod's node with another driver",
        "refused",
        lambda: accepts({**PODS, "lab/n1": Node(facts={**POD, "driver": "570"}, plane="kubernetes")}),
    ),
    ("one machine without what all behind SSH have", "warned", lambda: accepts({**PODS, "n1": Node(facts=SMC)})),
    ("the seven GPUs beside one with MIG are slow", "refused", lambda: accepts(nodes(Node(busbw=400.0, aside=1)))),
    (
        "MIG on one GPU, which nobody allowed",
        "refused",
        lambda: accepts(nodes(Node(busbw=468.0, aside=1)), stated={"n0": {"gpu_count": 8}}),
    ),
    ("a number that no seven GPUs can give", "refused", lambda: accepts(nodes(Node(busbw=900.0, aside=1)))),
]
# Look-alikes that are healthy, and the worst word that each may end in.
HEALTHY: list[tuple[str, str, t.Callable[[], str]]] = [
    ("ten machines of one vendor and three of another", "accepted", lambda: accepts(nodes(*TEN_AND_THREE))),
    (
        "another driver on a machine whose rule names it",
        "accepted",
        lambda: accepts(nodes(*[Node()] * 5, Node(facts={**SMC, "driver": "570"})), stack={"n5": {"ignore": ["driver"]}}),
    ),
    ("RDMA ports at the rate of their adapters", "accepted", lambda: ports(400.0)),
    ("RDMA ports of adapters whose part number tells nothing", "accepted", lambda: ports(200.0, "0H3X6V")),
    ("RDMA ports that reach what their chips can do", "accepted", lambda: ports(400.0, "0H3X6V", "MT4129")),
    ("Ethernet ports, whose chips are sold at several rates", "accepted", lambda: ports(200.0, "0H3X6V", "MT4129", "Ethernet")),
    ("nodes with four and with eight GPUs, as was said", "accepted", lambda: accepts(counts(8, 8, 4, 4))),
    ("one GPU of eight in a virtual machine", "warned", lambda: accepts(counts(1, facts=VM), **NOBODY)),
    ("three cards for slots", "warned", lambda: accepts(counts(3, model=CARD), entry(300.0, gpu=CARD, gpus=3, nvls=False), **NOBODY)),
    (
        "four GPUs beside eight, and stack_ignore names gpu_count",
        "accepted",
        lambda: accepts(counts(8, 8, 8, 4), stack={f"n{n}": {"ignore": ["gpu_count"]} for n in range(4)}, **NOBODY),
    ),
    ("half a fleet of H200, half of H100", "accepted", lambda: accepts(nodes(*[Node()] * 3, *[Node(model=H100)] * 3))),
    ("a fleet that is all WARN", "warned", lambda: accepts(nodes(*[Node(busbw=450.0)] * 2))),
    ("an override that is a little stricter", "accepted", lambda: accepts(nodes(Node()), entry(485.0, nodes=1))),
    ("pods beside machines behind SSH", "accepted", lambda: accepts(PODS)),
    ("a waiver in the state that it was written for", "accepted", lambda: waived(Node(health=ECC), state=state())),
    ("a waiver for a number that is as it was", "accepted", lambda: waived(Node(busbw=398.0), Node(), codes=["below_floor"], state=400)),
    ("the seven GPUs beside one with MIG", "accepted", lambda: accepts(nodes(Node(busbw=468.0, aside=1)))),
    ("a healthy fleet proposes its own number", "accepted", lambda: proposed(475.0)),
]
WORDS = ("refused", "warned", "accepted")


def wrong() -> tuple[int, list[str], list[str]]:
    """Return the number of planted faults, the accepted ones, and the healthy fleets that are refused."""
    bad = [f"{what}: {word}" for what, best, ask in FAULTS if WORDS.index(word := ask()) > WORDS.index(best)]
    good = [f"{what}: {word}" for what, worst, ask in HEALTHY if WORDS.index(word := ask()) < WORDS.index(worst)]
    return len(FAULTS), bad, good
