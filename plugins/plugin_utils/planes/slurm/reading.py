# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the answers of Slurm's client commands.

`scontrol show nodes --json` has whole nodes from 23.02 on. In 22.05 scontrol has no JSON and `sinfo --json` has the same nodes, which it
lacks later. Where Slurm is built without JSON, lines of a format of ours tell the same.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.reasons import NONE, Reason
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.records import Partition, SlurmJob, SlurmNode

NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,127}")
# The words of sinfo and squeue for one line. A reason is last: it may hold anything.
NODE_FIELDS = ("%N", "%R", "%T", "%f", "%G", "%v", "%u", "%H", "%E")
PARTITION_FIELDS = ("%R", "%a", "%l", "%P")
JOB_FIELDS = ("%i", "%j", "%T", "%r", "%n")

# Long names of sinfo's %T that are more than one state, and its marks behind a state.
_COMPOUND = {
    "drained": ("IDLE", "DRAIN"), "draining": ("ALLOCATED", "DRAIN"), "failing": ("ALLOCATED", "FAIL"), "fail": ("IDLE", "FAIL"),
    "reboot": ("IDLE", "REBOOT_REQUESTED"), "reboot_issued": ("DOWN", "REBOOT_ISSUED"), "no_respond": ("DOWN", "NOT_RESPONDING"),
}  # fmt: skip
_MARKS = {
    "*": "NOT_RESPONDING", "~": "POWERED_DOWN", "#": "POWERING_UP", "!": "POWER_DOWN", "%": "POWERING_DOWN", "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED", "^": "REBOOT_ISSUED", "-": "PLANNED",
}  # fmt: skip


def nodes_of_json(text: str) -> list[SlurmNode] | None:
    """Return the nodes of an answer in JSON; None if it is no JSON, or has no whole nodes. A list of none is no answer: sinfo of 22.05 says
    so, with status 0, where slurmctld does not answer."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return None
    records = answer.get("nodes") if isinstance(answer, dict) else None
    if not records or not isinstance(records, list):
        return None
    if not all(isinstance(record, dict) and isinstance(record.get("name"), str) for record in records):
        return None
    return [_node(record) for record in records if NAME.fullmatch(record["name"])]


def _node(record: dict[str, t.Any]) -> SlurmNode:
    states = [*_words(record.get("state")), *_words(record.get("state_flags"))]
    text = _text(record.get("reason"))
    return SlurmNode(
        name=record["name"],
        states=frozenset(state.upper() for state in states) or frozenset({"UNKNOWN"}),
        reason=Reason(text, _text(record.get("reason_set_by_user")), _number(record.get("reason_changed_at"))) if text else NONE,
        partitions=tuple(_words(record.get("partitions"))),
        features=tuple(_words(record.get("features"))),
        address=_text(record.get("address")),
        gres=_text(record.get("gres")),
        version=_text(record.get("version") or record.get("slurmd_version")),
        reservation=_text(record.get("reservation")),
        comment=_text(record["comment"]) if "comment" in record else None,
        booted=_number(record.get("boot_time")),
    )


def _words(value: t.Any) -> list[str]:
    """Return a list of words: a text with commas in 22.05, a list later."""
    if isinstance(value, list):
        return [word for word in value if isinstance(word, str) and word]
    return [word for word in value.split(",") if word] if isinstance(value, str) else []


def _text(value: t.Any) -> str:
    return value if isinstance(value, str) and value not in ("N/A", "(null)", "None") else ""


def _number(value: t.Any) -> int:
    """Return a number: itself in 22.05, {"set", "infinite", "number"} later; 0 if it is not set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") is True else 0
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 33 else 0


def form(mark: str, fields: t.Sequence[str]) -> str:
    """Return the argument of `sinfo -o` or `squeue -o` for lines that lines() reads. `mark` is new for each call: a reason with a newline
    cannot pass for a line."""
    return "|".join((mark, *fields))


def lines(text: str, mark: str, fields: t.Sequence[str]) -> t.Iterator[list[str]]:
    """Yield the fields of each line of an answer in a form() of ours."""
    row: list[str] | None = None
    for line in text.split("\n"):
        if line.startswith(f"{mark}|"):
            if row is not None:
                yield row
            row = [field.strip() for field in line.split("|", len(fields))[1:]]
            row = row if len(row) == len(fields) else None
        elif row is not None and line:
            row[-1] += f"\n{line}"
    if row is not None:
        yield row


def nodes_of_lines(text: str, mark: str) -> list[SlurmNode]:
    """Return the nodes of `sinfo -N` with NODE_FIELDS: it has a line for each partition of a node. Their addresses are their names, as
    Slurm has them unless slurm.conf says otherwise."""
    nodes: dict[str, SlurmNode] = {}
    for name, partition, state, features, gres, version, user, at, reason in lines(text, mark, NODE_FIELDS):
        if not NAME.fullmatch(name):
            continue
        known = nodes.get(name)
        if known:
            nodes[name] = known._replace(partitions=tuple(dict.fromkeys((*known.partitions, partition))))
            continue
        nodes[name] = SlurmNode(
            name,
            states_of(state),
            Reason(reason, _named(user), int(at) if at.isdecimal() and len(at) < 11 else 0) if _named(reason) else NONE,
            (partition,),
            tuple(_words(_named(features))),
            _named(gres),
            _named(version),
            comment=None,
        )
    return [node._replace(address=node.name) for node in nodes.values()]


def _named(value: str) -> str:
    return "" if value in ("none", "(null)", "N/A", "Unknown", "") else value


def states_of(word: str) -> frozenset[str]:
    """Return the states in sinfo's word for them, as `drained*` or `idle$`."""
    base = word.rstrip("".join(_MARKS))
    states = _COMPOUND.get(base.lower(), (base.upper() or "UNKNOWN",))
    return frozenset((*states, *(_MARKS[mark] for mark in word[len(base) :])))


def partitions_of_lines(text: str, mark: str) -> list[Partition]:
    """Return the partitions of `sinfo` with PARTITION_FIELDS."""
    rows = lines(text, mark, PARTITION_FIELDS)
    return [Partition(name, state.upper(), minutes_of(limit), marked == f"{name}*") for name, state, limit, marked in rows]


_LIMIT = re.compile(r"(?:(?P<days>\d{1,6})-)?(?:(?P<hours>\d{1,6}):)?(?P<minutes>\d{1,2}):(?P<seconds>\d\d)")


def minutes_of(limit: str) -> int:
    """Return the minutes of a time limit as Slurm writes it, `1-02:00:00` or `30:00`; 0 for `infinite` and what is no limit."""
    match = _LIMIT.fullmatch(limit)
    return max(1, (int(match["days"] or 0) * 24 + int(match["hours"] or 0)) * 60 + int(match["minutes"])) if match else 0


_SDIAG = re.compile(r"^sdiag output at [^(\n]*\((\d{9,11})\)", re.MULTILINE)


def time_of_sdiag(text: str) -> int:
    """Return the time of slurmctld in its answer to `sdiag`, in seconds since 1970, 0 if there is none."""
    match = _SDIAG.search(text)
    return int(match[1]) if match else 0


def jobs_of_lines(text: str, mark: str) -> list[SlurmJob]:
    """Return the jobs of `squeue` with JOB_FIELDS."""
    return [SlurmJob(*row) for row in lines(text, mark, JOB_FIELDS)]
