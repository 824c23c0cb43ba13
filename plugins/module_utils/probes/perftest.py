# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""perftest between pairs of nodes: this node walks its own timetable, without anybody telling it when.

    round            7             8                     9
    node a   ..|  test with c |listens.|  test with b |   ...
    node b   ......|  test with d  |x x|  test with a |   ...

perftest's own TCP connection is the rendezvous. Whoever serves listens as soon as it is free, whoever asks starts its client
until it is let in. A round begins when both are there: while all is well nobody waits for a clock. Every round has a deadline,
the same for all nodes up to the moment their timetables arrived, for coming together; a test that has begun gets its own time.
So a partner that is dead, or hangs in its test, delays nobody so much that a later round is missed.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import contextlib
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import governor, guardian_pod
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import perftest_sides
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import ports as rdma_ports
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import evidence
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import checkpoints, told
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

# The check of a node that walks a timetable.
TIMETABLE = {"check": "timetable"}
# What the observation of a pair says of each of its rails.
RAIL = ("rail", "a", "b", "walk", "outcome", "reason_code", "reason", "broke", "test")
# What the timetable says of each side of each test.
ROW = (
    "check", "variant", "subject", "rail", "a", "b", "role", "partner", "walk", "outcome", "reason_code", "reason", "broke",
    "started_at", "began_epoch", "duration_s", "rows", "test", "tool_version", "changes",
)  # fmt: skip


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """One observation per pair that this node asks (`subject` of its tests), as soon as it is done, and at the end one of the
    timetable, with a row for each side of each test that ran here."""
    for missing in params["absent"]:
        yield observation.failed(
            missing["check"], missing["reason_code"], missing["reason"], "missing", variant=missing["variant"], subject=missing["subject"]
        )
    if params.get("meeting"):
        message = told.message(node, **params["meeting"])
        if message is None:
            reason = f"the addresses of the other nodes did not arrive within {params['meeting']['within']:.0f} s"
            yield observation.failed("timetable", "timeout", reason, "timeout")
            return
        # The addresses of all who came, the rounds, and where a pod beside this one holds the governor, how it is told (guardian_pod.Held).
        params = {**params, "addresses": message["addresses"], "rounds": message["rounds"], "guardian": message.get("guardian")}
    walk = _Walk(params, node)
    with walk.governor or contextlib.nullcontext(), evidence.LoggedErrors(node) as logged:
        yield from walk.rounds()
    walk.changes += logged.changes
    yield walk.timetable()


def default_checks(_params: dict[str, t.Any]) -> list[dict[str, str]]:
    """The checks of a call that names none."""
    return [{"check": "timetable", "variant": ""}]


def _governor(params: dict[str, t.Any], node: Node) -> governor.GovernorLease | guardian_pod.Held | None:
    """Return the holder of the governor during the rounds: a pod beside this one, or a lease of this node; None if it stays as it is."""
    if params.get("guardian"):
        return guardian_pod.Held(params["guardian"])
    return governor.GovernorLease(node, params["governor"]) if params["governor"] and params["rounds"] and node.ledger else None


class _Walk(perftest_sides.PerftestRunner):
    """A node's way through its rounds."""

    def __init__(self, params: dict[str, t.Any], node: Node) -> None:
        super().__init__(params, node)
        self.begin = time.monotonic()
        self.governor = _governor(params, node)
        self.rows: list[dict[str, t.Any]] = []
        self.raw: list[str] = []
        self.changes: list[dict[str, t.Any]] = []
        self.left: collections.Counter[t.Any] = collections.Counter()
        self.done: dict[t.Any, list[dict[str, t.Any]]] = collections.defaultdict(list)
        self.there = params.get("addresses")
        tests = [test for planned in params["rounds"] for test in planned["tests"]]
        self.left.update(self._key(test) for test in tests if self._asks(test))
        self._take_up({self._test(test) for test in tests})

    def _take_up(self, repeated: set[tuple[str, ...]]) -> None:
        """Take over the tests that this node had finished when its walk was cut off, without those that the other side had not finished."""
        latest: dict[tuple[str, ...], dict[str, t.Any]] = {}
        for checkpoint in self.node.checkpoints or ():
            _round, _walk, *test = checkpoint["key"]
            if tuple(test) not in repeated:
                latest[tuple(test)] = checkpoint
        for checkpoint in latest.values():
            result = checkpoint["result"]
            self._enter(checkpoint["key"][0], result)
            if result["role"] == "client":
                self.done[result["check"], result["variant"], result["subject"]].append(result)

    def _taken_up(self) -> t.Iterator[dict[str, t.Any]]:
        """The pairs of which nothing is left, and those of which something that was finished is not to be found any more."""
        finished = {(entry["check"], entry["variant"], entry["subject"]): entry for entry in self.params.get("finished") or ()}
        for key in [key for key in self.done if key not in finished]:
            del self.done[key]  # the other side is not there to say it too
        for key, entry in finished.items():
            test_count = len(self.done[key])
            if test_count != entry["tests"]:
                reason = (
                    f"{entry['tests']} tests of it were finished before the controller was lost, {test_count} are found; resume once more"
                )
                yield observation.failed(
                    key[0], "interrupted", reason, variant=key[1], subject={"kind": "pair", "id": key[2], "members": []}
                )
                self.left.pop(key, None)
            elif not self.left[key]:
                yield self._pair(key, self.done.pop(key))

    def _test(self, test: perftest_sides.Test) -> tuple[str, ...]:
        """By what a side of a test is known, whichever walk it is in."""
        return (*self._key(test), *(test[name] for name in ("rail", "a", "b", "role")))

    def _checkpoint(self, number: int, side: perftest_sides.PerftestSide) -> dict[str, t.Any]:
        check, variant, subject = self._key(side.test)
        subject_of_test = (
            {"check": check, "variant": variant, "subject": {"kind": "pair", "id": subject}} if self._asks(side.test) else TIMETABLE
        )
        key = [number, self.params.get("walk") or "", *self._test(side.test)]
        return checkpoints.checkpoint(checkpoints.name_of(subject_of_test), key, result=side.result)

    def _key(self, test: perftest_sides.Test) -> tuple[str, str, str]:
        kind = self.params["kinds"][test["kind"]]
        return kind["check"], kind["variant"], test["subject"]

    def _asks(self, test: t.Mapping[str, t.Any]) -> bool:
        """Return True if this side speaks for the pair. Tests that only tell a suspect from its partners speak for none."""
        return test["role"] == "client" and bool(test["subject"])

    def rounds(self) -> t.Iterator[dict[str, t.Any]]:
        yield from self._taken_up()
        own_ports = self.params.get("own_ports")
        ports = rdma_ports.ports_of(rdma_ports.read_devices(self.node, own_ports["devices"]), own_ports) if own_ports else None
        for planned in self.params["rounds"]:
            number = planned["round"]
            latest = self.begin + self.params["begins_in"] + (number + 1) * self.params["slot"]
            tests = [self._here(test, ports) for test in planned["tests"]]
            kinds, end = self.params["kinds"], min(latest, self.node.end)
            sides = [perftest_sides.PerftestSide(test, kinds[test["kind"]], self, end) for test in tests]
            self.run(sides)
            number += self.params.get("rounds_before") or 0
            for side in sides:
                side.result["governor"] = self._held()
                self._keep(number, side)
                if self.node.checkpoints is not None and side.result["outcome"] == "measured":
                    yield self._checkpoint(number, side)
                key = self._key(side.test)
                if self._asks(side.test) and key in self.left:
                    self.done[key].append(side.result)
                    self.left[key] -= 1
                    if not self.left[key]:
                        yield self._pair(key, self.done.pop(key))

    def _here(self, test: perftest_sides.Test, ports: list[rdma_ports.Port] | None) -> perftest_sides.Test:
        """A test with what is only known here and now: the server's address and, where every pod has devices of its own, those of
        its rail."""
        if self.there is not None:
            server = test["peer"]
            test = {**test, "peer": self.there.get(server, server)}
        if ports is not None:
            rails = test["rail"].split("-")
            rail = int(rails[0] if test["role"] == "server" else rails[-1])
            if rail < len(ports):
                chosen = ports[rail]["gid"] or {}
                own_side = {"gid_index": chosen.get("index"), "gid": chosen.get("address"), "peer_gid": None}
                test = {**test, "device": ports[rail]["device"], "port": ports[rail]["port"], **own_side}
        return test

    def _keep(self, number: int, side: perftest_sides.PerftestSide) -> None:
        """A row of the timetable; what the pair's own observation says already is not said twice."""
        self._enter(number, side.result)
        if side.result["reason_code"] == "partner":
            self.lost.add(side.test["partner"])

    def _enter(self, number: int, result: dict[str, t.Any]) -> None:
        row = {"round": number, **{name: result[name] for name in ROW}}
        if self._asks(result):
            row.update(rows=[], changes=[], test=None)
        else:
            self.raw.append(f"# round {number}, {result['role']}: {' '.join(result['command'])}\n{result['raw']}")
        self.rows.append(row)
        self.changes += result["changes"]

    def _pair(self, key: tuple[str, str, str], results: list[dict[str, t.Any]]) -> dict[str, t.Any]:
        """The observation of a pair: the rows of all its rails; what one of them lacks the pair lacks."""
        check, variant, subject = key
        first = results[0]
        kind = self.params["kinds"][first["kind"]]
        context = {**kind["context"], "series_units": perftest_sides.SERIES_UNITS, "governor": results[-1]["governor"]}
        context["rails"] = [{name: r[name] for name in RAIL} for r in results]
        for name in {name for r in results for name in r["context"]}:
            values = [r["context"].get(name) for r in results]
            # Ports of different speed are held to the slower one's.
            context[name] = min(values) if name == "nic_gbps" and None not in values else values[0]
        context["warnings"] = sorted({w for r in results for w in r["warnings"]})
        common: dict[str, t.Any] = {
            "variant": variant,
            "subject": {"kind": "pair", "id": subject, "members": []},
            "series": [{**row, "rail": r["rail"], "a": r["a"], "b": r["b"]} for r in results for row in r["rows"]],
            "context": context,
            "evidence": {"changes": [c for r in results for c in r["changes"]], "unreadable": ["pfc"]},
            "command": first["command"],
            "tool_version": first["tool_version"],
            "started_at": first["started_at"],
            "duration_s": max(r["duration_s"] for r in results),
            "raw": "\n".join(f"# rail {r['rail']}: {' '.join(r['command'])}\n{r['raw']}" for r in results),
        }
        bad = [r for r in results if r["outcome"] != "measured"]
        if bad:
            reason = "; ".join(dict.fromkeys(f"rail {r['rail']}: {r['reason']}" for r in bad))
            return observation.failed(check, bad[0]["reason_code"], reason[:2000], bad[0]["outcome"], **common)
        name = "bandwidth" if kind["kind"] == "bw" else "latency"
        values = [row[name] for r in results for row in r["rows"][-1:]]
        worst = min(values) if name == "bandwidth" else max(values)
        return observation.measured(check, metrics={name: {"value": worst, "unit": perftest_sides.SERIES_UNITS[name]}}, **common)

    def _held(self) -> dict[str, t.Any] | None:
        """Return the present state of the governor's lease."""
        return self.governor.summary() if self.governor else None

    def timetable(self) -> dict[str, t.Any]:
        raw = "\n".join(self.raw)
        return observation.measured(
            "timetable",
            series=self.rows,
            context={"governor": self._held(), "tool_versions": self.versions, "slot_s": self.params["slot"]},
            evidence={"changes": self.changes, "unreadable": ["pfc"]},
            raw=raw,
            duration_s=time.monotonic() - self.begin,
            started_at=observation.utc(time.time() - (time.monotonic() - self.begin)),
        )
