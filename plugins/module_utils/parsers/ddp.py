# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for the workload of the stage `ddp`: its output on all nodes of a group, and why it did not finish.

Pure functions; nothing here raises for bad text. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import re
import signal
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import PlainData

_NUMBER, _WORD, _LIST, _DICT, _TRUTH = (int, float), (str,), (list,), (dict,), (bool,)
# What a record of each kind must have.
_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "node": {"node": _WORD},
    "rank": {"rank": (int,), "node": _WORD, "world": (int,), "local": (int,)},
    "at": {"rank": (int,), "node": _WORD, "op": _WORD, "seq": (int,)},
    "stuck": {"rank": (int,), "node": _WORD, "op": _WORD, "seq": (int,)},
    "fault": {"node": _WORD, "code": _WORD, "reason": _WORD},
    "ended": {"node": _WORD, "rank": (int,), "exitcode": (int,)},
    "checked": {"op": _WORD, "type": _WORD, "elements": (int,), "wrong": (int,), "ranks": _LIST, "senders": _DICT, "unsupported": _WORD},
    "bandwidth": {"op": _WORD, "size": (int,), "time_us": _NUMBER, "algbw": _NUMBER, "busbw": _NUMBER},
    "unsupported": {"op": _WORD, "size": (int,)},
    "training": {"steps": (int,), "finite": _TRUTH, "identical": _TRUTH, "repeatable": _TRUTH, "odd": _LIST},
    "pace": {"rank": (int,), "node": _WORD, "compute_ms": _NUMBER, "step_ms": _NUMBER},
    "end": {"rank": (int,), "node": _WORD},
    "agent": {"node": _WORD},
}
# torchrun puts the local rank in front of what it hands through.
_TAG = re.compile(r"^\[[^\]\s]{1,40}\]:")
# PyTorch 1.13 has no number. What else the parentheses have differs between versions, and torch_npu has its own word.
_WATCHDOG = re.compile(r"Watchdog caught collective operation timeout: Work(NCCL|HCCL)\((?:SeqNum=(\d{1,20}), )?OpType=(\w{1,40})")
# A rank that says these lost another one, or was ended with it: it is not the cause.
_SECOND = ("partner", "timeout", "agent_lost")


def parse(text: str) -> PlainData:
    """{"nodes": {name: record}, "ranks": {rank: record}, "at": {rank: the last record}, "faults", "ended", "checked", "rows",
    "unsupported", "training", "pace": {rank: record}, "done": ranks that came to the end, "agents": nodes whose agent did,
    "twice": what should have been said once and was said again, "version": of PyTorch and what it uses}."""
    parsed: PlainData = {"nodes": {}, "ranks": {}, "at": {}, "pace": {}, "training": None, "done": set(), "agents": set(), "twice": []}
    lists: dict[str, list[PlainData]] = {"fault": [], "ended": [], "checked": [], "bandwidth": [], "unsupported": []}
    for line in text.splitlines():
        record = _record(line)
        kind = record.get("kind")
        if kind in lists:
            lists[kind].append(record)
        elif kind == "node":
            parsed["nodes"][record["node"]] = record
        elif kind in ("rank", "at", "stuck", "pace"):
            of = parsed["ranks" if kind == "rank" else "pace" if kind == "pace" else "at"]
            parsed["twice"] += [f"{kind} {record['rank']}"] if kind in ("rank", "pace") and record["rank"] in of else []
            of[record["rank"]] = record
        elif kind == "training":
            parsed["twice"] += ["the training"] if parsed["training"] else []
            parsed["training"] = record
        elif kind == "end":
            parsed["done"].add(record["rank"])
        elif kind == "agent":
            parsed["agents"].add(record["node"])
    parsed.update(faults=lists["fault"], ended=lists["ended"], checked=lists["checked"], rows=lists["bandwidth"])
    parsed["unsupported"] = lists["unsupported"]
    parsed["version"] = _version(parsed["nodes"])
    return parsed


def _record(line: str) -> PlainData:
    line = _TAG.sub("", line).strip()
    if not line.startswith("{"):
        return {}
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    fields = _FIELDS.get(str(record.get("kind"))) if isinstance(record, dict) else None
    if fields is None:
        return {}
    for name, types in fields.items():
        value = record.get(name)
        if not isinstance(value, types) or (isinstance(value, bool) and types is not _TRUTH):
            return {}
        if isinstance(value, (int, float)) and not abs(value) < 2**63:  # nor is infinity any
            return {}
    return t.cast(PlainData, record)


def _version(nodes: dict[str, PlainData]) -> str | None:
    first = next(iter(nodes.values()), {})
    words = [f"{name} {first[key]}" for key, name in (("torch", "torch"), ("cuda", "CUDA"), ("nccl", "NCCL")) if first.get(key)]
    return ", ".join(words) or None


class Failure(t.NamedTuple):
    """The reason why a group did not finish. `ranks`: the ranks that caused it, empty if that is unknown."""

    code: str
    reason: str
    ranks: tuple[int, ...] = ()


def cause(parsed: PlainData, ends: t.Mapping[str, int], errors: str, world: int) -> Failure | None:
    """Return the cause that ended a group of so many ranks; None if it finished. `ends`: the status of the program of each node that
    ended by itself, the first one first; `errors`: what was printed on stderr."""
    return (
        _refused(parsed)
        or _died(parsed)
        or _failure_that_ranks_report(parsed)
        or _agent(parsed, ends)
        or _hung(parsed, errors, world)
        or _torchrun(parsed)
        or _lost(parsed, ends)
        or _unfinished(parsed, world)
    )


def name(parsed: PlainData, rank: int, node: str = "") -> str:
    """Return a rank for people, with its node and its GPU as far as known."""
    record = parsed["ranks"].get(rank, {})
    where = record.get("node") or node or parsed["at"].get(rank, {}).get("node")
    uuid = record.get("uuid")
    return f"rank {rank}" + (f" on {where}" if where else "") + (f" ({uuid})" if uuid and isinstance(uuid, str) else "")


def _refused(parsed: PlainData) -> Failure | None:
    """The agents did not let torchrun begin."""
    refusals = [fault for fault in parsed["faults"] if "rank" not in fault and "by" not in fault]
    if not refusals:
        return None
    # Who could not reach the first node knows better than the first, which only missed it.
    causes = [fault for fault in refusals if fault["code"] in ("name_resolution", "unreachable", "port_in_use")] or refusals
    reasons = list(dict.fromkeys(fault["reason"] for fault in causes))
    return Failure(_known_code(causes[0]["code"]), "; ".join(reasons[:4]))


def _died(parsed: PlainData) -> Failure | None:
    """Ranks that were killed, or went without a word."""
    spoke = {fault["rank"] for fault in parsed["faults"] if "rank" in fault}
    # torchrun ends the others of its node by SIGTERM; NCCL's watchdog aborts.
    harmless = (0, -signal.SIGTERM, -signal.SIGABRT)
    dead = [record for record in parsed["ended"] if record["exitcode"] not in harmless and record["rank"] not in spoke]
    if not dead:
        return None
    words = []
    for record in dead[:8]:
        how = f"was killed by signal {-record['exitcode']}" if record["exitcode"] < 0 else f"ended with status {record['exitcode']}"
        words.append(f"{name(parsed, record['rank'], record['node'])} {how}{_doing(parsed, record['rank'])}")
    return Failure("rank_died", "; ".join(words), tuple(record["rank"] for record in dead))


def _doing(parsed: PlainData, rank: int) -> str:
    at = parsed["at"].get(rank)
    return f", when it was last heard of in {at['op']} (operation {at['seq']})" if at else ""


def _failure_that_ranks_report(parsed: PlainData) -> Failure | None:
    """Ranks that say themselves what is wrong."""
    faults = [fault for fault in parsed["faults"] if isinstance(fault.get("rank"), int) and fault["code"] not in _SECOND]
    if not faults:
        return None
    code = faults[0]["code"]
    alike = [fault for fault in faults if fault["code"] == code]
    reasons: dict[str, list[PlainData]] = {}
    for fault in alike:
        reasons.setdefault(fault["reason"], []).append(fault)
    if code == "rank_mismatch":  # all of them were told so
        return Failure(code, next(iter(reasons)))
    words = []
    for reason, of in list(reasons.items())[:4]:
        names = ", ".join(name(parsed, fault["rank"], fault["node"]) for fault in of[:4])
        where = of[0].get("op")
        words.append(f"{names}{f' in {where}' if isinstance(where, str) else ''}: {reason}")
    return Failure(_known_code(code), "; ".join(words), tuple(fault["rank"] for fault in alike))


def _agent(parsed: PlainData, ends: t.Mapping[str, int]) -> Failure | None:
    """Agents that were killed; their ranks see that and end."""
    lost = [fault for fault in parsed["faults"] if fault["code"] == "agent_lost"]
    killed = [node for node, status in ends.items() if status < 0 or (status > 128 and status != 255)]
    nodes = list(dict.fromkeys([*(fault["node"] for fault in lost), *killed]))
    if not nodes:
        return None
    statuses = ", ".join(f"{node} (status {ends[node]})" if node in ends else node for node in nodes)
    return Failure("agent_lost", f"the agent of {statuses} ended before its ranks did")


def waited(parsed: PlainData) -> dict[int, PlainData]:
    """Return the faults of ranks that waited in vain, by rank."""
    return {fault["rank"]: fault for fault in parsed["faults"] if fault["code"] == "timeout" and isinstance(fault.get("rank"), int)}


def places(parsed: PlainData) -> dict[int, tuple[int, str]]:
    """Return {rank: (number of its operation, operation)} of ranks that have not come to their end, as they said last."""
    where = {rank: (fault["seq"], fault["op"]) for rank, fault in parsed["at"].items() if rank not in parsed["done"]}
    for rank, fault in waited(parsed).items():
        if isinstance(fault.get("seq"), int) and isinstance(fault.get("op"), str):
            where[rank] = (fault["seq"], fault["op"])
    return where


def _hung(parsed: PlainData, errors: str, world: int) -> Failure | None:
    """Ranks that did not come to the operation in which others waited."""
    in_vain = waited(parsed)
    if not in_vain:
        return None
    where = places(parsed)
    if not where:
        return Failure("timeout", next(iter(in_vain.values()))["reason"])
    seq, op = max(where.values())
    behind = {rank: number for rank, (number, _op) in where.items() if number < seq}
    watchdog = _watchdogs(errors)
    reason = next((fault["reason"] for fault in in_vain.values() if fault.get("seq") == seq), "")
    if 2 * len(behind) > len(where):  # most ranks are no fault of themselves: a few have gone on
        words = f"{len(behind)} of {world} ranks did not come to {op} (operation {seq}), more than did"
        return Failure("timeout", f"{words}: who holds the others up is not known{watchdog}")
    if behind:
        first = sorted(rank for rank, number in behind.items() if number == min(behind.values()))
        names = ", ".join(f"{name(parsed, rank)}, last in {where[rank][1]} (operation {where[rank][0]})" for rank in first[:8])
        waiting = f"in which {len(where) - len(behind)} of {world} ranks waited{watchdog}"
        return Failure("rank_hung", f"{names} did not come to {op} (operation {seq}), {waiting}", tuple(first))
    return Failure("timeout", f"no rank came out of {op} (operation {seq}): {reason}{watchdog}")


def waiting(parsed: PlainData, errors: str, world: int) -> str:
    """Return how many ranks of a group that hangs wait in which operation, without a word about who holds them up."""
    where = places(parsed)
    seq, op = max(where.values(), default=(0, "an unknown operation"))
    return f"{sum(number == seq for number, _op in where.values())} of {world} ranks waited in {op} (operation {seq}){_watchdogs(errors)}"


def _watchdogs(errors: str) -> str:
    """Return a clause with the operations that the watchdogs of ranks named, the earliest first; empty without any."""
    dogs = {(int(dog.group(2) or -1), dog.group(3), dog.group(1)) for dog in _WATCHDOG.finditer(errors)}
    words = [f"{op}, sequence number {seq}" if seq >= 0 else op for seq, op, _library in sorted(dogs)[:4]]
    return f"; {min(dogs)[2]}'s watchdog named {' and '.join(words)}" if dogs else ""


def _torchrun(parsed: PlainData) -> Failure | None:
    """Return the cause if torchrun itself failed, and no rank or agent says why."""
    faults = [fault for fault in parsed["faults"] if "rank" not in fault]
    if not faults:
        return None
    return Failure(_known_code(faults[0]["code"]), "; ".join(dict.fromkeys(f"torchrun on {fault['reason']}" for fault in faults[:4])))


def _lost(parsed: PlainData, ends: t.Mapping[str, int]) -> Failure | None:
    """Return the cause if ranks only lost other ranks, or nodes went away."""
    lost_nodes = [node for node, status in ends.items() if status == 255]
    if lost_nodes:
        return Failure("lost_node", f"the connection to {', '.join(lost_nodes)} was lost while the group ran")
    lost = [fault for fault in parsed["faults"] if fault["code"] == "partner" and isinstance(fault.get("rank"), int)]
    if lost:
        words = "; ".join(f"{name(parsed, fault['rank'], fault['node'])}: {fault['reason']}" for fault in lost[:3])
        return Failure("partner", f"ranks lost one another: {words}")
    return None


def _unfinished(parsed: PlainData, world: int) -> Failure | None:
    missing = sorted(set(range(world)) - parsed["done"])
    if not missing:
        return None
    names = ", ".join(name(parsed, rank) for rank in missing[:8])
    return Failure("incomplete_output", f"{len(missing)} of {world} ranks did not come to their end: {names}")


def _known_code(code: str) -> str:
    """Return a code of a record if it is a known reason code, else `tool_failed`."""
    return code if code in reasons.ALL else "tool_failed"


# Wrong values --------------------------------------------------------------------------------------------------------


def wrong(parsed: PlainData) -> tuple[str, tuple[int, ...]] | None:
    """Return the wrong values of all operations as (sentence, convicted ranks); None if every value was right.

    Where every rank but one got right what one sent, or what one got was wrong whoever sent it, that one is to blame.
    """
    bad = [record for record in parsed["checked"] if record["wrong"]]
    if not bad:
        return None
    words = []
    for record in bad[:6]:
        example = record.get("example") or "no example"
        words.append(f"{record['op']} {record['type']}: {record['wrong']} of {record['elements']} values, {example}")
    return "; ".join(words), _blamed(bad, len(parsed["ranks"]))


def _blamed(bad: list[PlainData], world: int) -> tuple[int, ...]:
    senders: set[int] = set()
    receivers: list[set[int]] = []
    for record in bad:
        senders |= {int(word) for word in record["senders"] if str(word).isdigit()}
        receivers.append({rank for rank in record["ranks"] if isinstance(rank, int)})
    if len(senders) == 1:
        return tuple(senders)
    common = set.intersection(*receivers) if receivers else set()
    union = set.union(*receivers) if receivers else set()
    return tuple(union) if len(union) == 1 and common == union and world > 1 else ()
