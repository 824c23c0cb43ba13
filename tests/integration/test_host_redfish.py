# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Management controllers asked by Redfish in a run over simulated hosts: services of the tests that know one user, and sushy-static, which
others wrote. The password is nowhere afterwards."""

from __future__ import annotations

import base64
import collections
import json
import pathlib
import shutil
import typing as t

import pytest
from harness import redfish_service as of_service
from harness.demo_runs import Done, play
from harness.redfish_service import PASSWORD, USER, RedfishService
from rigs.services import Service, free_port

FEW = ("--tags", "host_health")


def run(folder: pathlib.Path, services: dict[str, RedfishService], *arguments: str, **variables: t.Any) -> Done:
    """Run host_health on the hosts, {name: its management controller}."""
    urls = {host: service.url for host, service in services.items()}
    settings = {
        "host_health_tests": ["clock"], "host_health_redfish_url": f"{{{{ {json.dumps(urls)}[inventory_hostname] }}}}",
        "host_health_redfish_user": USER, "host_health_redfish_ca_path": f"{next(iter(services.values())).cert}", **variables,
    }  # fmt: skip
    environment = {"GPUFLEET_REDFISH_PASSWORD": PASSWORD}
    return play(folder / "results", "--limit", ",".join(services), *FEW, *arguments, env=environment, **settings)


def verdicts(results: pathlib.Path) -> dict[str, dict[str, t.Any]]:
    """Return {host: verdict} of the check `redfish`."""
    (file,) = results.glob("*/verdicts.jsonl")
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return {v["subject"]["id"]: v for v in found if v["check"] == "redfish"}


@pytest.fixture
def services(tmp_path: pathlib.Path) -> t.Iterator[list[RedfishService]]:
    (folder := tmp_path / "certificates").mkdir()
    with (
        RedfishService(folder) as one,
        RedfishService(folder, one.key, "35A1B3") as two,
        RedfishService(folder, one.key, "35A1B4") as three,
    ):
        yield [one, two, three]


def test_parts_are_judged_and_the_password_is_nowhere(services: list[RedfishService], tmp_path: pathlib.Path) -> None:
    healthy, broken, half = services
    of_service.break_parts(broken.tree)
    half.answers[f"{of_service.CHASSIS}/Power"] = (500, b"")
    done = run(tmp_path, {"h100-01": healthy, "h100-02": broken, "h100-04": half}, "-vvv")
    found = verdicts(tmp_path / "results")
    words = {host: (v["verdict"], v["reason_code"]) for host, v in found.items()}
    assert words == {"h100-01": ("PASS", None), "h100-02": ("FAIL", "bmc_fault"), "h100-04": ("UNKNOWN", "bmc_unreadable")}, done.output[
        -3000:
    ]
    assert "power supply PSU2 (serial number PS002)" in found["h100-02"]["reason"]
    for secret in (PASSWORD, base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()):
        assert secret not in done.output
        left = [path for path in tmp_path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
        assert not left, left
    # A node is never asked to do it, so nothing that travels to nodes has the address.
    assert all(collections.Counter(service.asked)[of_service.BASE + "/"] == 1 for service in services)


def test_a_wrong_password_is_unknown_and_a_bad_address_refused(services: list[RedfishService], tmp_path: pathlib.Path) -> None:
    done = run(tmp_path, {"h100-01": services[0]}, host_health_redfish_password="s3cret")
    (found,) = verdicts(tmp_path / "results").values()
    assert (found["verdict"], found["reason_code"]) == ("UNKNOWN", "credentials"), done.output[-3000:]
    refused = run(tmp_path / "again", {"h100-01": services[0]}, host_health_redfish_url="https://me:s3cret@bmc")
    said = " ".join(refused.output.split())
    assert "host_health_redfish_url: found another text, expected https://HOST or https://HOST:PORT, without a login" in said
    assert not (tmp_path / "again" / "results").exists()
    assert "s3cret" not in done.output


@pytest.mark.skipif(not shutil.which("sushy-static"), reason="sushy-static (sushy-tools) is not installed")
def test_a_service_that_others_wrote(tmp_path: pathlib.Path) -> None:
    tree = of_service.machine()
    of_service.break_parts(tree)
    of_service.write(tree, tmp_path / "mockup")
    cert, key = of_service.certificate(tmp_path)
    port = free_port()
    argv = ["sushy-static", "-i", "127.0.0.1", "-p", str(port), "-m", str(tmp_path / "mockup"), "-c", str(cert), "-k", str(key)]
    service = Service("sushy-static", argv, tmp_path)
    service.start()
    try:
        service.listens(port)
        settings = {
            "host_health_tests": ["clock"], "host_health_redfish_url": f"https://127.0.0.1:{port}", "host_health_redfish_user": USER,
            "host_health_redfish_ca_path": str(cert), "host_health_redfish_password": PASSWORD,
        }  # fmt: skip
        done = play(tmp_path / "results", "--limit", "h100-01", *FEW, **settings)
    finally:
        service.end()
    (found,) = verdicts(tmp_path / "results").values()
    assert (found["verdict"], found["reason_code"]) == ("FAIL", "bmc_fault"), done.output[-3000:]
    assert "fan FAN2: reading 300 RPM" in found["reason"] and "power supply PSU2" in found["reason"]
