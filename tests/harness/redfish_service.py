# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The management controller of a machine by Redfish: a tree of resources that faults are planted in, and a small HTTPS service over it
that knows one user."""

from __future__ import annotations

import base64
import http.server
import json
import pathlib
import ssl
import subprocess
import threading
import typing as t

from harness.machine_tree import BATCH

BASE = "/redfish/v1"
USER, PASSWORD = "reader", "correct-horse-7391"
DIMMS = [f"DIMM{number}" for number in range(8)]
SYSTEM, CHASSIS = f"{BASE}/Systems/1", f"{BASE}/Chassis/1"
ENTRIES = f"{SYSTEM}/LogServices/SEL/Entries"

Resource = t.Dict[str, t.Any]
OK = {"State": "Enabled", "Health": "OK"}


def reference(path: str) -> Resource:
    return {"@odata.id": path}


def collection(path: str, ids: t.Iterable[str]) -> Resource:
    return {"Members": [reference(f"{path}/{member}") for member in ids]}


def machine(batch: str = BATCH) -> dict[str, Resource]:
    """Return {path: resource} of a healthy machine with eight memory modules, whose serial numbers begin with `batch`, two fans and two
    power supplies."""
    fans = [
        {
            "MemberId": str(n),
            "Name": f"FAN{n + 1}",
            "Reading": 8400,
            "ReadingUnits": "RPM",
            "LowerThresholdCritical": 1000,
            "Status": {**OK},
        }
        for n in range(2)
    ]
    supplies = [
        {"MemberId": str(n), "Name": f"PSU{n + 1}", "SerialNumber": f"PS00{n + 1}", "LineInputVoltage": 230, "Status": {**OK}}
        for n in range(2)
    ]
    inlet = {"Name": "Inlet Temp", "ReadingCelsius": 24, "UpperThresholdNonCritical": 40, "UpperThresholdCritical": 45, "Status": {**OK}}
    tree: dict[str, Resource] = {
        "": {
            "RedfishVersion": "1.11.0", "Systems": reference(f"{BASE}/Systems"), "Chassis": reference(f"{BASE}/Chassis"),
            "Managers": reference(f"{BASE}/Managers"),
        },
        "/Systems": collection(f"{BASE}/Systems", ["1"]),
        "/Systems/1": {
            "Name": "System", "Manufacturer": "Example", "SerialNumber": "SN0001",
            "Status": {**OK, "HealthRollup": "OK"}, "Memory": reference(f"{SYSTEM}/Memory"),
            "LogServices": reference(f"{SYSTEM}/LogServices"),
        },
        "/Systems/1/Memory": collection(f"{SYSTEM}/Memory", DIMMS),
        "/Systems/1/LogServices": collection(f"{SYSTEM}/LogServices", ["SEL", "Audit"]),
        "/Systems/1/LogServices/SEL": {"Id": "SEL", "Name": "SEL", "LogEntryType": "SEL", "Entries": reference(ENTRIES)},
        "/Systems/1/LogServices/SEL/Entries": {"Members": []},
        "/Systems/1/LogServices/Audit": {"Id": "Audit", "Name": "Audit log", "Entries": reference(f"{SYSTEM}/LogServices/Audit/Entries")},
        "/Systems/1/LogServices/Audit/Entries": {"Members": [{"Id": "1", "Severity": "Warning", "Message": "A login failed"}]},
        "/Chassis": collection(f"{BASE}/Chassis", ["1"]),
        "/Chassis/1": {
            "Name": "Chassis", "Status": {**OK}, "Thermal": reference(f"{CHASSIS}/Thermal"), "Power": reference(f"{CHASSIS}/Power"),
        },
        "/Chassis/1/Thermal": {"Name": "Thermal", "Temperatures": [inlet], "Fans": fans},
        "/Chassis/1/Power": {"Name": "Power", "PowerSupplies": supplies},
        "/Managers": collection(f"{BASE}/Managers", ["BMC"]),
        "/Managers/BMC": {"Name": "BMC", "Status": {**OK}},
    }  # fmt: skip
    for number, name in enumerate(DIMMS):
        locator, serial = f"P{number // 4}-DIMM{'ABCD'[number % 4]}1", f"{batch}{number:02X}"
        tree[f"/Systems/1/Memory/{name}"] = {"Name": name, "DeviceLocator": locator, "SerialNumber": serial, "Status": {**OK}}
    return {BASE + path: {"@odata.id": BASE + path, **resource} for path, resource in tree.items()}


def break_parts(tree: dict[str, Resource]) -> None:
    """Plant a power supply without input, a fan that stands, a hot inlet, a memory module with errors, and the log of it."""
    tree[f"{CHASSIS}/Power"]["PowerSupplies"][1].update(LineInputVoltage=0, Status={"State": "Enabled", "Health": "Critical"})
    tree[f"{CHASSIS}/Thermal"]["Fans"][1].update(Reading=300, Status={"State": "Enabled", "Health": None})
    tree[f"{CHASSIS}/Thermal"]["Temperatures"][0].update(ReadingCelsius=42)
    tree[f"{SYSTEM}/Memory/DIMM2"]["Status"] = {"State": "Enabled", "Health": "Warning"}
    tree[f"{SYSTEM}/Memory/DIMM6"].update(SerialNumber=None, Status={"State": "Absent"})
    tree[ENTRIES]["Members"] = [
        {"Id": "1", "Created": "2026-11-24T06:54:01Z", "Severity": "Critical", "Message": "PSU2 input lost", "SensorType": "Power Supply"},
        {"Id": "2", "Created": "2026-11-24T06:54:02Z", "Severity": "Warning", "Message": "correctable ECC", "Resolved": True},
        {"Id": "3", "Created": "2026-11-24T06:54:03Z", "Severity": "OK", "Message": "power on"},
    ]


def write(tree: t.Mapping[str, Resource], folder: pathlib.Path) -> None:
    """Write a tree as folders of index.json, the first of which is /redfish/v1."""
    for path, resource in tree.items():
        target = folder / path.removeprefix(BASE).strip("/") / "index.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(resource))


def certificate(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Return the files of a certificate for 127.0.0.1 that nobody else trusts, and of its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=bmc",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


class RedfishService:
    """Serves `tree` on a port of 127.0.0.1. `answers` replaces the answer of a path by (status, bytes); `asked` are the paths in order.
    `folder` gets a certificate, unless `key` is that of the certificate that it has."""

    def __init__(self, folder: pathlib.Path, key: pathlib.Path | None = None, batch: str = BATCH) -> None:
        self.tree = machine(batch)
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.asked: list[str] = []
        self.cert, self.key = (folder / "cert.pem", key) if key else certificate(folder)
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = service.answer(self.path, self.headers.get("Authorization", ""))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: t.Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> RedfishService:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, path: str, authorization: str) -> tuple[int, bytes]:
        self.asked.append(path)
        path = path if "?" in path else path.rstrip("/")
        if path in self.answers:
            return self.answers[path]
        if path != BASE and authorization != "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode():
            return 401, b'{"error": {"code": "Base.1.8.NoValidSession"}}'
        return (200, json.dumps(self.tree[path]).encode()) if path in self.tree else (404, b"<html>no</html>")
