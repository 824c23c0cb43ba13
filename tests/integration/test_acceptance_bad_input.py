# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that answer nonsense, and disks that are full: one clear reason, nobody else suffers, nothing gets out."""

from __future__ import annotations

import contextlib
import pathlib
import re
import subprocess
import typing as t
import xml.etree.ElementTree as ET

import pytest
from harness import journals
from harness.fleet_runs import ROOT, Acceptance, Done, results_of, run_folder

pytestmark = pytest.mark.fleet
HTML = '<html><script>alert("evil-html")</script><img src=x onerror=alert(1)> | [a](javascript:alert(1)) `x`</html>'
ANSWERS = {
    "garbage": "head -c 4000000 /dev/urandom",
    "control": r"""printf '\033[2J\033]0;evil-title\007\033[31mred\r\b\b\342\200\256\000\n'""",
    "html": f"cat <<'EOF'\n{HTML}\nEOF",
    "path": "printf '../../../../../../tmp/evil-of-a-node\\n/etc/passwd\\n'",
}
# Who answers so: nccl-tests of the first four, Python itself of the next four; ids that are paths of gpu-09 (its matrix
# products) and gpu-10 (its nvidia-smi).
TOOL = dict(zip(ANSWERS, ("gpu-01", "gpu-02", "gpu-03", "gpu-04"), strict=True))
PYTHON = dict(zip(ANSWERS, ("gpu-05", "gpu-06", "gpu-07", "gpu-08"), strict=True))
GOOD = ("gpu-11", "gpu-12")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def nonsense(acceptance: Acceptance) -> Done:
    for host in acceptance.fleet.hosts:
        acceptance.plant(host)
    variables = {}
    for kind, script in ANSWERS.items():
        acceptance.tool(TOOL[kind], "all_reduce_perf", f"#!/bin/sh\n{script}\n")
        acceptance.tool(PYTHON[kind], "nonsense", f"#!/bin/sh\ncat > /dev/null\n{script}\n")
        variables[PYTHON[kind]] = {"ansible_python_interpreter": "/opt/simulated/bin/nonsense"}
    for host, tool in (("gpu-09", "python3"), ("gpu-10", "nvidia-smi")):
        path = acceptance.fleet.plant(host) / "bin" / tool
        path.write_text(path.read_text().replace("GPU-%08x", "../../../../../../tmp/evil-of-a-node-%08x"))
    hosts = [*TOOL.values(), *PYTHON.values(), "gpu-09", "gpu-10", *GOOD]
    return acceptance.run(hosts, variables=variables)


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_tool_that_prints_nonsense(nonsense: Done, kind: str) -> None:
    host = TOOL[kind]
    assert nonsense.of(host, "nccl_node") == {"UNKNOWN"} and nonsense.codes(host, "nccl_node") == {"bad_output"}
    assert nonsense.of(host, "gemm") == {"PASS"}
    assert all(host in v["reason"] and len(v["reason"]) < 700 for v in nonsense.on(host, "nccl_node"))


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_python_that_answers_nonsense(nonsense: Done, kind: str) -> None:
    host = PYTHON[kind]
    assert nonsense.of(host) == {"UNKNOWN"} and nonsense.codes(host) == {"module_failed"}
    for v in nonsense.on(host):
        assert host in v["reason"] and len(v["reason"]) < 700 and "Module result deserialization failed" in v["reason"]
        assert "ErrorSummary" not in v["reason"] and v["reason"].encode() and not CONTROL.search(v["reason"])


def test_a_python_that_a_node_lacks_is_told_before_any_load_by_variable_and_host(acceptance: Acceptance) -> None:
    hosts = ("gpu-11", "gpu-12", "gpu-13")
    for host in hosts:
        acceptance.plant(host)
    variables = {
        "gpu-11": {"acceptance_python": "/nowhere/bin/python3"}, "gpu-12": {"ansible_python_interpreter": "/nowhere/bin/python3"},
    }  # fmt: skip
    done = acceptance.run(hosts, "--tags", "stack,nccl_node,gemm", variables=variables)
    assert done.good("gpu-13"), done.output[-3000:]
    for host, code, words in (
        ("gpu-11", "tool_missing", "acceptance_python: found /nowhere/bin/python3, which does not exist"),
        ("gpu-12", "no_python", "set ansible_python_interpreter"),
    ):
        records = [m for m in done.journal if m["target"] == host]
        assert {m["reason_code"] for m in records} == {code} and len({m["reason"] for m in records}) == 1, records
        assert host in records[0]["reason"] and words in records[0]["reason"]
        assert done.of(host) == {"UNKNOWN"}
    acceptance.nothing_left(*hosts)


def test_ids_that_are_paths_stay_names(nonsense: Done) -> None:
    assert any("tmp/evil-of-a-node" in v["subject"]["id"] for v in nonsense.on("gpu-10"))
    assert not list(pathlib.Path("/tmp").glob("evil-of-a-node*")) and nonsense.folder
    assert {path.name for path in nonsense.folder.parent.parent.iterdir()} == {"inventory.yml", "ssh_config", "output", "results"}
    assert {path.name for path in nonsense.folder.parent.iterdir()} == {nonsense.folder.name, "history.db"}


def test_nobody_else_suffers(nonsense: Done, acceptance: Acceptance) -> None:
    assert nonsense.status != 0 and all(nonsense.good(host) for host in GOOD), nonsense.output[-3000:]
    acceptance.nothing_left(*TOOL.values(), *PYTHON.values(), "gpu-09", "gpu-10", *GOOD)


def test_what_nodes_print_is_escaped_wherever_people_read_it(nonsense: Done) -> None:
    assert nonsense.folder
    assert not CONTROL.search(re.sub(r"\x1b\[[0-9;]*m", "", nonsense.output))
    for name in ("report.html", "report.md", "report.junit.xml", "report.prom"):
        text = (nonsense.folder / name).read_text(encoding="utf-8")
        # The charting library has such characters itself.
        assert not CONTROL.search(re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)), name
        assert not re.search(r'(?<!\\)<(script>alert\("evil|img src=x)', text), name
    markdown = (nonsense.folder / "report.md").read_text()
    assert "](javascript:" not in markdown.replace("\\]", "").replace("\\(", "")
    # A | of a node does not add a column.
    table = [line for line in markdown.splitlines() if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table if "evil" in line or "gpu-07" in line}
    assert widths <= {len(re.findall(r"(?<!\\)\|", line)) for line in table if set(line) <= set("|-: ")}


def test_junit_and_prometheus_parse(nonsense: Done) -> None:
    assert nonsense.folder
    cases = list(ET.parse(nonsense.folder / "report.junit.xml").getroot().iter("testcase"))
    assert {*GOOD, *TOOL.values(), *PYTHON.values()} <= {case.get("classname") for case in cases}
    sample = re.compile(r'[a-z_]+(\{([a-z_]+="([^"\\\n]|\\[\\"n])*",?)*\})? [-+0-9.eE]+(NaN)?( [0-9]+)?')
    lines = (nonsense.folder / "report.prom").read_text().splitlines()
    assert lines and all(line.startswith("#") or sample.fullmatch(line) for line in lines)


def test_megabytes_of_garbage_do_not_fill_the_controller(nonsense: Done) -> None:
    assert nonsense.folder
    assert max(map(len, journals.lines(nonsense.folder / "journal.jsonl.gz"))) < 1 << 18
    assert (nonsense.folder / "report.json").stat().st_size < 1 << 20


def test_a_file_of_the_inventory_that_cannot_be_read_is_not_a_smaller_fleet(tmp_path: pathlib.Path) -> None:
    (tmp_path / "good.yml").write_text("all: {hosts: {gpu-01: {}}}")
    (tmp_path / "more.yml").write_text("all: {hosts: [")
    command = [ROOT / ".venv/bin/ansible-playbook", "acceptance.yml", "-i", tmp_path, "--check"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    said = "".join((done.stdout + done.stderr).split())
    assert done.returncode and f"Completelyfailedtoparseinventorysource{tmp_path}/more.yml" in said, said


# Disks ---------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def disk(folder: pathlib.Path, *options: str) -> t.Iterator[pathlib.Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize(("options", "words"), [(("-o", "size=4k"), "No space left on device"), (("-o", "ro"), "Read-only file system")])
def test_a_results_directory_that_takes_nothing(healthy: Acceptance, tmp_path: pathlib.Path, options: tuple[str, ...], words: str) -> None:
    before = healthy.logins("gpu-01")
    with disk(tmp_path / "disk", *options) as results:
        done = healthy.run(["gpu-01"], results=results)
    said = " ".join(done.output.split())
    assert done.status != 0 and words in said and str(results) in said, done.output
    assert healthy.logins("gpu-01") == before


def test_a_results_directory_that_is_a_file(healthy: Acceptance, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    done = healthy.run(["gpu-01"], results=tmp_path / "file")
    assert done.status != 0 and f"acceptance_results_dir {tmp_path}/file" in " ".join(done.output.split()), done.output


@pytest.mark.long
def test_a_results_directory_that_fills_up_in_the_middle(healthy: Acceptance, tmp_path: pathlib.Path) -> None:
    variables = healthy.gate("gpu-01")
    with disk(tmp_path / "disk", "-o", "size=16m") as results:
        command = healthy.command(["gpu-01", "gpu-02"], results=results, variables=variables)
        running = healthy.start(command)
        healthy.at_gate(running, "gpu-01")
        subprocess.run(["dd", "if=/dev/zero", f"of={results}/filler", "bs=4k"], check=False, capture_output=True)
        healthy.open("gpu-01")
        done = healthy.end(command, running)
        assert done.status != 0 and f"{results}" in done.output and "No space left on device" in done.output, done.output
        (results / "filler").unlink()
        folder = run_folder(results_of(command))
        assert folder
        more = {"results": results, "variables": variables, "playbook": "playbooks/resume.yml"}
        resumed = healthy.run(["gpu-01", "gpu-02"], "-e", f"run_id={folder.name}", **more)
        assert resumed.status == 0 and resumed.good("gpu-01") and resumed.good("gpu-02"), resumed.output[-3000:]
    healthy.nothing_left("gpu-01", "gpu-02")


def test_a_state_directory_that_cannot_be_made(healthy: Acceptance) -> None:
    done = healthy.run(["gpu-01", "gpu-02"], variables={"gpu-01": {"acceptance_state_dir": "/proc/nonexistent"}})
    assert done.status != 0 and done.codes("gpu-01") == {"state_dir"} and done.good("gpu-02")
    assert all("/proc/nonexistent" in v["reason"] for v in done.on("gpu-01"))
