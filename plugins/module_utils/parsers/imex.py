# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of an IMEX domain as `nvidia-imex-ctl` prints it, and the files of the IMEX daemon.

IMEX (internode memory exchange) lets GPUs of one NVLink domain use the memory of GPUs in other trays. Each tray runs a daemon, and all
daemons of a domain have the same list of nodes.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

UP, READY, CONNECTED = "UP", "READY", "CONNECTED"
# More than a rack of the largest kind prints as JSON: 72 nodes with 72 connections each.
LIMIT = 4 << 20
# A line of the form without -j: `Node #0   - 10.0.0.1   - READY   - Version: 570.172`.
_NODE = re.compile(r"(?m)^\s*Node #(\d{1,4})\s+-\s+(\S{1,100})\s+-\s+([A-Z_]{1,40})(?:\s+-\s+Version:\s*(\S{1,40}))?")
_STATE = re.compile(r"(?m)^\s*Domain State:\s*([A-Z_]{1,40})\s*$")


class ImexNode(t.NamedTuple):
    """One node of an IMEX domain: its line in nodes_config.cfg counted from 0, its address as that line has it, its state, the version of
    its daemon if it is printed, and the connections that are not up, as {address of the other node: state}."""

    number: int
    host: str
    state: str
    version: str
    broken: dict[str, str]


class ImexDomain(t.NamedTuple):
    """The state of a whole IMEX domain, `UP`, `DOWN` or `DEGRADED`, and its nodes."""

    state: str
    nodes: list[ImexNode]


def parse(text: t.Any) -> ImexDomain | None:
    """Return the domain that `nvidia-imex-ctl -N -j`, or `-N` of a program without -j, printed; None if the text is neither."""
    if not isinstance(text, str) or len(text) > LIMIT:
        return None
    start = text.find("{")
    if start < 0:
        return _of_lines(text)
    try:
        read = json.loads(text[start:])
    except (ValueError, RecursionError):
        return None
    state, nodes = (read.get(name) for name in ("status", "nodes")) if isinstance(read, dict) else (None, None)
    if not isinstance(state, str) or not isinstance(nodes, dict):
        return None
    parsed = [_node(index, node) for index, node in nodes.items()]
    known = [node for node in parsed if node is not None]
    return ImexDomain(_word(state), sorted(known)) if len(known) == len(parsed) else None


def _of_lines(text: str) -> ImexDomain | None:
    state = _STATE.search(text)
    nodes = [ImexNode(int(index), host, word, version or "", {}) for index, host, word, version in _NODE.findall(text)]
    return ImexDomain(state.group(1), nodes) if state and nodes else None


def _node(index: t.Any, node: t.Any) -> ImexNode | None:
    if not isinstance(node, dict) or not isinstance(node.get("status"), str) or not str(index).isdecimal():
        return None
    connections = node.get("connections")
    broken = {
        str(connection.get("host") or number)[:100]: _word(connection.get("status"))
        for number, connection in (connections.items() if isinstance(connections, dict) else ())
        if isinstance(connection, dict) and _word(connection.get("status")) != CONNECTED
    }
    version = node.get("version")
    return ImexNode(int(index), str(node.get("host"))[:100], _word(node["status"]), str(version)[:40] if version else "", broken)


def _word(text: t.Any) -> str:
    return str(text).strip().upper()[:40]


def state_of_daemon(text: t.Any) -> str | None:
    """Return the state of the local daemon, which `nvidia-imex-ctl -q` prints as one word; None if the text has no such word."""
    words = re.findall(r"(?m)^\s*(?:State:\s*)?([A-Z][A-Z_]{2,39})\s*$", text) if isinstance(text, str) and len(text) < LIMIT else []
    return str(words[-1]) if words else None


def nodes_of_config(text: str) -> list[str]:
    """Return the addresses of nodes_config.cfg in their order, without comments and empty lines."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def digest(nodes: t.Sequence[str]) -> str:
    """Return a short digest of a list of nodes. The order counts: each daemon numbers the nodes by it."""
    return hashlib.sha256("\n".join(nodes).encode()).hexdigest()[:16]
