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

from ansible_collections.gpufleet.acceptance.plugins.module_utils import reasons

Record = t.Dict[str, t.Any]

_NUMBER, _WORD, _LIST, _DICT, _TRUTH = (int, float), (str,), (list,), (dict,), (bool,)
# What a record of each kind must have.
_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "node": {"node": _WORD},
    "rank": {"rank": (int,), "node": _WORD, "world": (int,), "local": (int,)},
    "at": {"rank": (int,), "node": _WORD, "op": _WORD, "seq": (int,)},
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
_WATCHDOG = re.compile(r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d{1,12}), OpType=(\w{1,40})")
# A rank that says these lost another one, or was ended with it: it is not the cause.
_SECOND = ("partner", "timeout", "agent_lost")


def parse(text: str) -> Record:
    """{"nodes": {name: record}, "ranks": {rank: record}, "at": {rank: the last record}, "faults", "ended", "checked", "rows",
    "unsupported", "training", "pace": {rank: record}, "done": ranks that came to the end, "agents": nodes whose agent did,
    "twice": what should have been said once and was said again, "version": of PyTorch and what it uses}."""
    found: Record = {"nodes": {}, "ranks": {}, "at": {}, "pace": {}, "training": None, "done": set(), "agents": set(), "twice": []}
    lists: dict[str, list[Record]] = {"fault": [], "ended": [], "checked": [], "bandwidth": [], "unsupported": []}
    for line in text.splitlines():
        record = _record(line)
        kind = record.get("kind")
        if kind in lists:
            lists[kind].append(record)
        elif kind == "node":
            found["nodes"][record["node"]] = record
        elif kind in ("rank", "at", "pace"):
            of = found["ranks" if kind == "rank" else kind]
            found["twice"] += [f"{kind} {record['rank']}"] if kind != "at" and record["rank"] in of else []
            of[record["rank"]] = record
        elif kind == "training":
            found["twice"] += ["the training"] if found["training"] else []
            found["training"] = record
        elif kind == "end":
            found["done"].add(record["rank"])
        elif kind == "agent":
            found["agents"].add(record["node"])
    found.update(faults=lists["fault"], ended=lists["ended"], checked=lists["checked"], rows=lists["bandwidth"])
    found["unsupported"] = lists["unsupported"]
    found["version"] = _version(found["nodes"])
    return found


def _record(line: str) -> Record:
    line = _TAG.sub("", line).strip()
    if not line.startswith("{"):
        return {}
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    wanted = _FIELDS.get(str(record.get("kind"))) if isinstance(record, dict) else None
    if wanted is None:
        return {}
    for name, types in wanted.items():
        value = record.get(name)
        if not isinstance(value, types) or (isinstance(value, bool) and types is not _TRUTH):
            return {}
        if isinstance(value, (int, float)) and not abs(value) < 2**63:  # nor is infinity any
            return {}
    return t.cast(Record, record)


def _version(nodes: dict[str, Record]) -> str | None:
    first = next(iter(nodes.values()), {})
    words = [f"{name} {first[key]}" for key, name in (("torch", "torch"), ("cuda", "CUDA"), ("nccl", "NCCL")) if first.get(key)]
    return ", ".join(words) or None


class Cause(t.NamedTuple):
    """Why a group did not come to its end. `ranks`: those whose fault it is, where that is known."""

    code: str
    reason: str
    ranks: tuple[int, ...] = ()


def cause(found: Record, ends: t.Mapping[str, int], errors: str, world: int) -> Cause | None:
    """Return the cause that ended a group of so many ranks; None if it finished. `ends`: the status of the program of each node that
    ended by itself, the first one first; `errors`: what was printed on stderr."""
    return (
        _refused(found)
        or _died(found)
        or _said(found)
        or _agent(found, ends)
        or _hung(found, errors, world)
        or _torchrun(found)
        or _lost(found, ends)
        or _unfinished(found, world)
    )


def _name(found: Record, rank: int, node: str = "") -> str:
    about = found["ranks"].get(rank, {})
    where = about.get("node") or node or found["at"].get(rank, {}).get("node")
    uuid = about.get("uuid")
    return f"rank {rank}" + (f" on {where}" if where else "") + (f" ({uuid})" if uuid and isinstance(uuid, str) else "")


def _refused(found: Record) -> Cause | None:
    """The agents did not let torchrun begin."""
    said = [one for one in found["faults"] if "rank" not in one and "by" not in one]
    if not said:
        return None
    # Who could not reach the first node knows better than the first, which only missed it.
    own = [one for one in said if one["code"] in ("name_resolution", "unreachable", "port_in_use")] or said
    reasons = list(dict.fromkeys(one["reason"] for one in own))
    return Cause(_known(own[0]["code"]), "; ".join(reasons[:4]))


def _died(found: Record) -> Cause | None:
    """Ranks that were killed, or went without a word."""
    spoke = {one["rank"] for one in found["faults"] if "rank" in one}
    # torchrun ends the others of its node by SIGTERM; NCCL's watchdog aborts.
    gone = [one for one in found["ended"] if one["exitcode"] not in (0, -signal.SIGTERM, -signal.SIGABRT) and one["rank"] not in spoke]
    if not gone:
        return None
    words = []
    for one in gone[:8]:
        how = f"was killed by signal {-one['exitcode']}" if one["exitcode"] < 0 else f"ended with status {one['exitcode']}"
        words.append(f"{_name(found, one['rank'], one['node'])} {how}{_doing(found, one['rank'])}")
    return Cause("rank_died", "; ".join(words), tuple(one["rank"] for one in gone))


def _doing(found: Record, rank: int) -> str:
    at = found["at"].get(rank)
    return f", when it was last heard of in {at['op']} (operation {at['seq']})" if at else ""


def _said(found: Record) -> Cause | None:
    """Ranks that say themselves what is wrong."""
    own = [one for one in found["faults"] if isinstance(one.get("rank"), int) and one["code"] not in _SECOND]
    if not own:
        return None
    code = own[0]["code"]
    alike = [one for one in own if one["code"] == code]
    reasons: dict[str, list[Record]] = {}
    for one in alike:
        reasons.setdefault(one["reason"], []).append(one)
    if code == "rank_mismatch":  # all of them were told so
        return Cause(code, next(iter(reasons)))
    words = []
    for reason, of in list(reasons.items())[:4]:
        names = ", ".join(_name(found, one["rank"], one["node"]) for one in of[:4])
        where = of[0].get("op")
        words.append(f"{names}{f' in {where}' if isinstance(where, str) else ''}: {reason}")
    return Cause(_known(code), "; ".join(words), tuple(one["rank"] for one in alike))


def _agent(found: Record, ends: t.Mapping[str, int]) -> Cause | None:
    """Agents that were killed; their ranks see that and end."""
    lost = [one for one in found["faults"] if one["code"] == "agent_lost"]
    killed = [node for node, status in ends.items() if status < 0 or (status > 128 and status != 255)]
    nodes = list(dict.fromkeys([*(one["node"] for one in lost), *killed]))
    if not nodes:
        return None
    statuses = ", ".join(f"{node} (status {ends[node]})" if node in ends else node for node in nodes)
    return Cause("agent_lost", f"the agent of {statuses} ended before its ranks did")


def _hung(found: Record, errors: str, world: int) -> Cause | None:
    """Ranks that did not come to the operation in which others waited."""
    waited = {one["rank"]: one for one in found["faults"] if one["code"] == "timeout" and isinstance(one.get("rank"), int)}
    if not waited:
        return None
    where = {rank: (one["seq"], one["op"]) for rank, one in found["at"].items() if rank not in found["done"]}
    for rank, one in waited.items():
        if isinstance(one.get("seq"), int) and isinstance(one.get("op"), str):
            where[rank] = (one["seq"], one["op"])
    if not where:
        return Cause("timeout", next(iter(waited.values()))["reason"])
    seq, op = max(where.values())
    behind = sorted(rank for rank, (number, _op) in where.items() if number < seq)
    dog = _WATCHDOG.search(errors)
    said = f"; NCCL's watchdog named {dog.group(2)}, sequence number {dog.group(1)}" if dog else ""
    reason = next((one["reason"] for one in waited.values() if one.get("seq") == seq), "")
    if behind and len(behind) < len(where):
        names = ", ".join(f"{_name(found, rank)}, last in {where[rank][1]} (operation {where[rank][0]})" for rank in behind[:8])
        waiting = f"in which {len(where) - len(behind)} of {world} ranks waited{said}"
        return Cause("rank_hung", f"{names} did not come to {op} (operation {seq}), {waiting}", tuple(behind))
    return Cause("timeout", f"no rank came out of {op} (operation {seq}): {reason}{said}")


def _torchrun(found: Record) -> Cause | None:
    """torchrun itself failed, and no rank or agent says why."""
    said = [one for one in found["faults"] if "rank" not in one]
    return Cause(_known(said[0]["code"]), "; ".join(dict.fromkeys(f"torchrun on {one['reason']}" for one in said[:4]))) if said else None


def _lost(found: Record, ends: t.Mapping[str, int]) -> Cause | None:
    """Return the cause if ranks only lost other ranks, or nodes went away."""
    gone = [node for node, status in ends.items() if status == 255]
    if gone:
        return Cause("lost_node", f"the connection to {', '.join(gone)} was lost while the group ran")
    lost = [one for one in found["faults"] if one["code"] == "partner" and isinstance(one.get("rank"), int)]
    if lost:
        words = "; ".join(f"{_name(found, one['rank'], one['node'])}: {one['reason']}" for one in lost[:3])
        return Cause("partner", f"ranks lost one another: {words}")
    return None


def _unfinished(found: Record, world: int) -> Cause | None:
    missing = sorted(set(range(world)) - found["done"])
    if not missing:
        return None
    shown = ", ".join(_name(found, rank) for rank in missing[:8])
    return Cause("incomplete_output", f"{len(missing)} of {world} ranks did not come to their end: {shown}")


def _known(code: str) -> str:
    """A code of a record, which has to be one of ours."""
    return code if code in reasons.ALL else "tool_failed"


# Wrong values --------------------------------------------------------------------------------------------------------


def wrong(found: Record) -> tuple[str, tuple[int, ...]] | None:
    """Return the wrong values of all operations as (sentence, convicted ranks); None if every value was right.

    Where every rank but one got right what one sent, or what one got was wrong whoever sent it, that one is to blame.
    """
    bad = [one for one in found["checked"] if one["wrong"]]
    if not bad:
        return None
    words = []
    for one in bad[:6]:
        words.append(f"{one['op']} {one['type']}: {one['wrong']} of {one['elements']} values, {one.get('example') or 'no example'}")
    return "; ".join(words), _blamed(bad, len(found["ranks"]))


def _blamed(bad: list[Record], world: int) -> tuple[int, ...]:
    senders: set[int] = set()
    receivers: list[set[int]] = []
    for one in bad:
        senders |= {int(word) for word in one["senders"] if str(word).isdigit()}
        receivers.append({rank for rank in one["ranks"] if isinstance(rank, int)})
    if len(senders) == 1:
        return tuple(senders)
    common = set.intersection(*receivers) if receivers else set()
    union = set.union(*receivers) if receivers else set()
    return tuple(union) if len(union) == 1 and common == union and world > 1 else ()
