# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sides of tests by perftest on this node: started, met, ended in time, and read.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import signal
import struct
import subprocess
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import perftest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import gid, gpudirect
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import ports as rdma_ports
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import live_output, numa, process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

Test = t.Dict[str, t.Any]
# How often children are looked at, and the kernel's table of connections, which is long on a busy machine.
TICK_S = 0.02
LOOK_S = 0.2
# The longest pause between two attempts of a client; each is a start of the tool.
PAUSE_MOST_S = 0.5
# A server whose connection somebody else took listens again, not for ever.
SERVER_TRIES = 5
OUTPUT_LIMIT = 1 << 20
# perftest 24.01, the first whose JSON is JSON; and what else it does not write it for.
JSON_SINCE = (6, 20)
NO_JSON = ("-a", "--all", "--report-both", "--output", "--run_infinitely")
SERIES_UNITS = {"size": "B", "bandwidth": "Gb/s", "peak": "Gb/s", "message_rate": "Mpps", "latency": "us", "latency_avg": "us"}
# Lines of a test that never began and may be tried again: the other side is not there yet, or was not it.
_NOT_YET = ("Couldn't connect to", "Couldn't read remote address", "Failed to exchange data", "accept() failed")
_BEGUN = re.compile(r"(?m)^ *(?:Send|RDMA_Write|RDMA_Read|Atomic)[^\n]{0,40} (?:BW|Latency) Test *$")
# Complaints about the link itself; whatever else ends a test says nothing of it.
_BROKE = ("Completion with error", "Failed status", "Did not get Message for", "Unable to Connect the HCA's", "to RTR")
# Counters that must not rise in a test, by what they mean.
COUNTERS = {
    "link_errors": (
        "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors",
        "port_rcv_switch_relay_errors", "port_xmit_discards", "port_xmit_constraint_errors", "port_rcv_constraint_errors",
        "local_link_integrity_errors", "excessive_buffer_overrun_errors", "rx_icrc_encapsulated", "send_err",
    ),
    "retransmits": (
        "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "implied_nak_seq_err",
        "duplicate_request", "out_of_buffer", "req_transport_retries_exceeded", "roce_adp_retrans", "roce_slow_restart",
        "completer_retry_err", "out_of_seq_request", "rcvd_seq_err", "retry_exceeded_err", "retry_rnr_exceeded_err",
        "rcvd_rnr_err", "send_rnr_err",
    ),
    "congestion": ("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled", "rp_cnp_ignored"),
}  # fmt: skip


class PerftestRunner:
    """Runs sides of tests on a node, those together that belong together.

    `params` has "binary_dir", "pause" and "test_timeout" as the options of the modules do.
    """

    # What a person can do where a tool is not found, and where a TCP port is in use.
    if_missing = "install perftest or set rdma_binary_dir"
    if_in_use = "set rdma_tcp_ports to a free range"

    def __init__(self, params: dict[str, t.Any], node: Node) -> None:
        self.params = params
        self.node = node
        self.versions: dict[str, str | None] = {}
        # Nodes that did not come to an earlier test, and where the others are, of those that came; None where each test says it.
        self.lost: set[str] = set()
        self.there: dict[str, str] | None = None
        self._gpu_memory: dict[str, list[str]] | None = None

    def gpu_memory(self, device: str) -> list[str]:
        """Return perftest's options for buffers in the memory of the GPU that is nearest to a device; empty if there is none."""
        if self._gpu_memory is None:
            self._gpu_memory = gpudirect.options(self.node, rdma_ports.read_devices(self.node, self.params.get("devices") or []))
        return self._gpu_memory.get(device, [])

    def run(self, sides: t.Sequence[PerftestSide]) -> None:
        """Run some sides at the same time, each to its end; what became of it is its `result`."""
        looked = 0.0
        connected: set[tuple[str, str, int]] = set()
        try:
            while not all(side.finished for side in sides):
                now = time.monotonic()
                if now - looked >= LOOK_S and any(side.waits for side in sides):
                    connected, looked = connections(), now
                for side in sides:
                    side.step(now, connected)
                if self.node.live:
                    self.node.live.tick()
                time.sleep(TICK_S)
        finally:
            for side in sides:
                side.end()

    def version(self, tool: str) -> str | None:
        """perftest prints its version with status 1."""
        if tool not in self.versions:
            match = re.search(r"Version: *([\d.]{1,20})", self.node.run([tool, "--version"], timeout=10, merge=True).out)
            self.versions[tool] = match.group(1) if match else None
        return self.versions[tool]


class PerftestSide:
    """One side of one test: started, started again while the other side is not there, ended in time, and read.

    `place` of a test is the NUMA node to start it on, if any.
    """

    def __init__(self, test: Test, kind: dict[str, t.Any], walk: PerftestRunner, latest: float) -> None:
        self.test = test
        self.kind = kind
        self.walk = walk
        self.latest = latest
        self.serves = test["role"] == "server"
        tool = os.path.join(walk.params["binary_dir"], kind["tool"])
        words = [tool, "-d", test["device"], "-i", str(test["port"])]
        words += ["-x", str(test["gid_index"])] if test["gid_index"] is not None else []
        words += [*kind["options"], *(walk.gpu_memory(test["device"]) if kind.get("gpu") else []), "-p", str(test["tcp_port"])]
        self.argv = words if self.serves else [*words, test["peer"]]
        self.command = self.argv
        self.tool = tool
        self.child: subprocess.Popen[bytes] | None = None
        # What of its NUMA node it was bound to, in the words of system/numa.py.
        self.bound: str | None = None
        self.output = -1
        self.json = -1
        self.shown: live_output.RunningTool | None = None
        self.structured = ""
        self.tries = 0
        # A server needs a moment before it listens.
        self.next_try = 0.0 if self.serves else time.monotonic() + walk.params["pause"]
        self.began_at: float | None = None
        self.started = time.monotonic()
        self.said = ""
        self.result: dict[str, t.Any] = {}
        self.before = rdma_ports.counters(walk.node, test["device"], test["port"])
        refused = self._refused()
        if refused:
            self._finish(*refused)

    @property
    def finished(self) -> bool:
        return bool(self.result)

    @property
    def waits(self) -> bool:
        """Return True if the other side has not come yet."""
        return self.child is not None and self.began_at is None

    def _refused(self) -> tuple[str, str, str] | None:
        """Return (outcome, code, reason) why the test makes no sense, before it starts; None if it does."""
        test, node = self.test, self.walk.node
        where = f"{test['device']} port {test['port']}"
        if test["partner"] in self.walk.lost:
            return "timeout", "partner", f"{test['partner']} did not come to an earlier round and was given up"
        present = self.walk.there
        if present is not None and test["partner"] not in present:
            return "missing", "partner", f"{test['partner']} has no running test"
        state = rdma_ports.port_state(node, test["device"], test["port"])
        if state is None:
            devices = ", ".join(rdma_ports.names(node)) or "none"
            return "error", "no_rdma", f"there is no {where}; the devices are: {devices}"
        if state != "ACTIVE":
            return "error", "port_down", f"{where} is {state}"
        if self.kind.get("gpu") and not self.walk.gpu_memory(test["device"]):
            return "error", "no_gpu", gpudirect.NO_GPU
        if test["gid_index"] is not None and test["gid"]:
            now = gid.address(node.read(f"{rdma_ports.CLASS}/{test['device']}/ports/{test['port']}/gids/{test['gid_index']}") or "")
            if now != test["gid"]:
                reason = f"GID {test['gid_index']} of {where} is {now}; it was {test['gid']} when the test was planned"
                return "error", "gid_changed", reason
        return None

    # Running ---------------------------------------------------------------------------------------------------------

    def step(self, now: float, connected: set[tuple[str, str, int]]) -> None:
        """Look at the child, and do what is due."""
        if self.finished:
            return
        if self.child is None:
            if now >= self.latest:
                self._no_partner()
            elif now >= self.next_try:
                self._start()
            return
        if process.has_exited(self.child.pid):
            self._exited(now)
            return
        if self.began_at is None and self._connected(connected):
            self.began_at = now
        if self.began_at is None and now >= self.latest:
            self.end()
            self._no_partner()
        elif self.began_at is not None and now >= min(self.began_at + self.walk.params["test_timeout"], self.walk.node.end):
            self.end()
            sentence = f"{self.kind['tool']} did not end within {self.walk.params['test_timeout']:g} s of its begin and was ended"
            self._finish("timeout", "timeout", f"{sentence}: the link or {self.test['partner']} is gone, or far too slow")

    def _connected(self, connected: set[tuple[str, str, int]]) -> bool:
        """Return True if the other side is connected. A server may be asked at another address than it has, a client knows whom it asks."""
        port = self.test["tcp_port"]
        if self.serves or not _is_address(self.test["peer"]):
            return ("local" if self.serves else "remote", "", port) in connected
        return ("remote", self.test["peer"], port) in connected

    def _start(self) -> None:
        self.tries += 1
        self.output = os.memfd_create("perftest")
        self._show()
        if self._writes_json():
            self.json = os.memfd_create("perftest.json")
            self.command = [*self.argv[:-1], "--out_json", f"--out_json_file=/proc/{os.getpid()}/fd/{self.json}", self.argv[-1]]
        try:
            with numa.bound(self.test.get("place")) as self.bound:
                self.child = process.spawn(self.command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output)
        except ReasonedError as error:
            self._close()
            self._finish("error", error.reason_code, f"{self.test['device']} port {self.test['port']}: {error.reason}")
        except OSError as error:
            self._close()
            code = "tool_missing" if isinstance(error, FileNotFoundError) else "tool_not_executable"
            self._finish("error", code, f"{self.tool}: {os.strerror(error.errno or 0)}; {self.walk.if_missing}")

    def _show(self) -> None:
        live, output = self.walk.node.live, self.output
        self.shown = live.begin(self.argv, lambda most: live_output.end_of(output, most)) if live else None

    def _writes_json(self) -> bool:
        """Return True if the side whose number counts can write JSON too; the text stays the raw output."""
        if self.serves or any(word.partition("=")[0] in NO_JSON for word in self.kind["options"]):
            return False
        version = self.walk.version(self.tool)
        return version is not None and tuple(int(n) for n in version.split(".") if n) >= JSON_SINCE

    def _exited(self, now: float) -> None:
        rc = self.end()
        text = self.said
        begun = bool(_BEGUN.search(text))
        may_retry = not self.serves or self.tries < SERVER_TRIES
        if rc and may_retry and not begun and any(mark in text for mark in _NOT_YET):
            self.began_at = None
            # Often while the other side may be about to listen, seldom while it is late.
            self.next_try = now + min(PAUSE_MOST_S, self.walk.params["pause"] * 1.5 ** min(self.tries - 1, 20))
            return
        if "Couldn't listen to port" in text:
            self._finish("error", "port_in_use", f"TCP port {self.test['tcp_port']} is in use here; {self.walk.if_in_use}")
            return
        self._read(text, rc)

    def end(self) -> int:
        """End the child, if there is one, and take what it printed; its status."""
        if self.child is None:
            return 0
        process.end(self.child, signal.SIGKILL)
        rc = self.child.returncode
        self.child = None
        self.said = _content(self.output)
        self.structured = _content(self.json) if self.json >= 0 else ""
        self._close()
        return rc

    def _close(self) -> None:
        if self.shown:
            self.shown.end()
            self.shown = None
        for handle in (self.output, self.json):
            if handle >= 0:
                os.close(handle)
        self.output = self.json = -1

    # Reading ---------------------------------------------------------------------------------------------------------

    def _no_partner(self) -> None:
        waited = time.monotonic() - self.started
        if self.serves:
            reason = f"{self.test['partner']} did not come to {self.test['device']} port {self.test['port']} within {waited:.0f} s"
        else:
            words = " ".join(self.said.split()[-24:]) or "no answer"
            where = f"{self.test['peer']}:{self.test['tcp_port']}"
            reason = f"{self.test['partner']} did not accept the connection at {where} within {waited:.0f} s: {words}"
        self._finish("timeout", "partner", reason)

    def _read(self, text: str, rc: int) -> None:
        kind = self.kind
        expectations = {"expect_bytes": kind["bytes"], "expect_iterations": kind["iterations"], "expect_duration": kind.get("duration")}
        read = perftest.parse(text, rc, **expectations)
        if read["outcome"] == "measured" and self.structured:
            unit = (read["rows"][-1].get("bw_average") or {}).get("unit")
            same = perftest.parse(self.structured, rc, unit=unit, **expectations)
            read = _precise(read, same) if same["outcome"] == "measured" else {**same, "reason": f"its JSON: {same['reason']}"}
        if read["outcome"] != "measured":
            self._finish("error", read["reason_code"], f"{kind['tool']}: {read['reason']}", read)
            return
        wrong = self._unexpected(read)
        if wrong:
            self._finish("error", "bad_output", f"{kind['tool']}: {wrong}", read)
        else:
            self._finish("measured", None, None, read)

    def _unexpected(self, read: dict[str, t.Any]) -> str | None:
        """Return the sentence about a difference between the requested test and the one in the output; None if there is none."""
        kind, test, seen_test = self.kind, self.test, read["test"]
        for name, expected, measured in (
            ("op", kind["op"], seen_test["op"]),
            ("kind", kind["kind"], seen_test["kind"]),
            ("device", test["device"], seen_test["device"]),
            ("number of QPs", kind["qps"], seen_test["qps"]),
            ("GID index", test["gid_index"], seen_test["gid_index"]),
            ("test of both directions", kind["context"].get("bidirectional"), seen_test["bidirectional"]),
            ("own GID", test["gid"], _ipv4(seen_test["local_gid"])),
            ("GID of the other side", test["peer_gid"], _ipv4(seen_test["remote_gid"])),
        ):
            if expected is not None and measured is not None and expected != measured:
                return f"the {name} is {measured}, expected {expected}"
        return None

    def _finish(self, outcome: str, code: str | None, reason: str | None, read: dict[str, t.Any] | None = None) -> None:
        test, kind = self.test, self.kind
        if kind.get("gpu") and outcome == "error" and gpudirect.is_refusal(f"{self.said}{reason}"):
            code, reason = "no_gpudirect", f"{gpudirect.ADVICE}; perftest: {reason}"
        now = time.monotonic()
        since = self.began_at or self.started
        self.result = {
            "kind": test["kind"],
            **{name: kind[name] for name in ("check", "variant")},
            **{name: test[name] for name in ("subject", "rail", "a", "b", "role", "partner", "context")},
            "walk": self.walk.params.get("walk") or "",
            "outcome": outcome,
            "reason_code": code,
            "reason": reason[:1000] if reason else None,
            # It came together with its partner and then stood still, or the device reported an error.
            "broke": outcome != "measured" and (code == "timeout" or any(mark in self.said for mark in _BROKE)),
            "rows": _rows(read) if read and outcome == "measured" else [],
            "test": (read or {}).get("test"),
            "warnings": (read or {}).get("warnings") or [],
            "tool_version": self.walk.version(self.tool) if code != "tool_missing" else None,
            "command": self.command,
            "raw": self.said,
            "started_at": observation.utc(time.time() - (now - since)),
            "began_epoch": round(time.time() - (now - since), 3),
            "duration_s": round(now - since, 3),
            "changes": self._changes(),
        }

    def _changes(self) -> list[dict[str, t.Any]]:
        """Counters of errors that rose: evidence."""
        device, port = self.test["device"], self.test["port"]
        counters_now = rdma_ports.counters(self.walk.node, device, port)
        changes = []
        for code, names in COUNTERS.items():
            for name in names:
                old, new = self.before.get(name), counters_now.get(name)
                if old is not None and new is not None and new > old:
                    text = f"{device} port {port}: {name} rose from {old} to {new}"
                    changes.append({"code": code, "part": f"nic/{device}/{port}", "text": text, "before": old, "after": new})
        return changes


def _content(handle: int) -> str:
    """Return the text of a file in memory, up to a sane size."""
    return os.pread(handle, min(os.fstat(handle).st_size, OUTPUT_LIMIT), 0).decode("utf-8", "replace")


def _precise(read: dict[str, t.Any], same: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the result of the text with the row of the JSON, which has more digits; an error if they contradict each other."""
    (row,), metric = same["rows"], "t_avg" if same["test"]["kind"] == "lat" else "bw_average"
    text, json = ((of["value"] if metric == "bw_average" else of) for of in (read["rows"][-1][metric], row[metric]))
    digit = 0.01 if text >= 0.1 else 1e-6  # the last that perftest prints
    differs = [name for name in ("bytes", "iterations") if read["rows"][-1][name] != row[name]]
    differs += [name for name in read["test"] if "_gid" not in name and read["test"][name] != same["test"][name]]
    if differs:
        of = {name: [r["rows"][-1].get(name, r["test"].get(name)) for r in (same, read)] for name in differs}
        reason = "; ".join(f"its JSON says {name} {json}, its text {text}" for name, (json, text) in of.items())
        return {**read, "outcome": "error", "reason_code": "bad_output", "reason": reason}
    if read["tool"] != same["tool"] or abs(text - json) > 0.51 * digit:
        reason = f"its JSON says {json} ({same['tool']}), its text {text} ({read['tool']})"
        return {**read, "outcome": "error", "reason_code": "bad_output", "reason": reason}
    return {**read, "rows": [row]}


def connections() -> set[tuple[str, str, int]]:
    """TCP ports with a connection, from the kernel's tables: ("local" or "remote", address, port), and each with "" for any address."""
    connected = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table, encoding="ascii") as source:
            next(source, None)
            for line in source:
                words = line.split(None, 4)
                if words[3] == "01":  # established (include/net/tcp_states.h)
                    for side, word in (("local", words[1]), ("remote", words[2])):
                        digits, _colon, port = word.partition(":")
                        connected.update({(side, "", int(port, 16)), (side, _address(digits), int(port, 16))})
    return connected


def _address(digits: str) -> str:
    """An address as the kernel's tables have it: words of four bytes in the order of this machine."""
    raw = b"".join(struct.pack("=I", int(digits[i : i + 8], 16)) for i in range(0, len(digits), 8))
    address = ipaddress.ip_address(raw)
    return str(getattr(address, "ipv4_mapped", None) or address)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _ipv4(text: str | None) -> str | None:
    """`::ffff:192.0.2.1` in any spelling -> `192.0.2.1`, as a GID's address is written elsewhere."""
    return gid.address(text) if text else None


def _rows(read: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """Rows of the parser as rows of a series, in the units of SERIES_UNITS."""
    rows = []
    for row in read["rows"]:
        if row.get("side") == "remote":
            continue
        if read["test"]["kind"] == "bw":
            peak = row["bw_peak"]
            rows.append(
                {
                    "size": row["bytes"],
                    "iterations": row["iterations"],
                    "bandwidth": _gigabits(row["bw_average"]),
                    "peak": _gigabits(peak) if peak else None,
                    "message_rate": row["message_rate"],
                }
            )
        else:
            rows.append(
                {
                    "size": row["bytes"],
                    "iterations": row["iterations"],
                    # What the tool calls typical is the median; a test of a duration prints the mean alone.
                    "latency": row["t_avg"] if row["t_typical"] is None else row["t_typical"],
                    "latency_avg": row["t_avg"],
                    "percentiles": row.get("percentiles") or {},
                }
            )
    return rows


def _gigabits(value: dict[str, t.Any]) -> float:
    return float(value["value"]) if value["unit"] == "Gb/s" else value["value"] * (1 << 20) * 8 / 1e9
