# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a part and the ways that lead to it: the search box, the node's hardware, the cards of a result, and the API."""

from __future__ import annotations

import html
import pathlib
import re
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import fleet, words
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import current
from harness import console_memory as memory
from harness import history_runs as runs
from harness.history_runs import Machine

GUID = "506b:4b03:00ab:cdef"
MODULE = "35A1B205"


@pytest.fixture(autouse=True)
def read_before_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first page waits until the fleet is read, however busy the machine is."""
    monkeypatch.setattr(fleet, "FIRST_S", 600.0)


def machine(name: str, gpu: int, tflops: float, **lists: t.Any) -> Machine:
    """A machine with a GPU that it lists, and what else it lists."""
    table = [{"uuid": runs.uuid(gpu), "index": 3, "serial": f"16520{gpu}", "bdf": "0000:4b:00.0", "name": runs.GPU}]
    return Machine(name * 32, {gpu: tflops}, lists={"gpu_table": table, **lists})


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[memory.Opened]:
    """GPU 1 moved from a to b, where it is slow; the inventory has b only."""
    results = tmp_path_factory.mktemp("parts") / "results"
    lists = {
        "devices": [{"device": "mlx5_2", "guid": GUID, "serial_number": "MT2301", "pci": "0000:02:00.0", "type": "MT4129"}],
        "ports": [{"device": "mlx5_2", "port": 1, "switch": "leaf-03", "switch_port": "Ethernet1/7"}],
        "dimms": [{"slot": "A10", "bank": "", "mib": 0, "serial": ""}, {"slot": "A2", "bank": "", "mib": 65536, "serial": MODULE}],
        "disks": [{"disk": "nvme0", "model": "Example 7T", "serial": "S6CK1", "pci": "0000:81:00.0"}],
        "system": {"serial": "M-771", "uuid": ""},
    }
    runs.judged(results, 1, {"a": machine("a", 1, 672.0), "b": machine("b", 2, 671.0, **lists)}, acceptance_history=True)
    runs.judged(results, 2, {"b": machine("b", 1, 400.0, **lists)}, acceptance_history=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(current, "DAYS", 36500)
        yield memory.opened(results, memory=memory.Memory([actions.NodeInfo("b", 8, 8)]))


def section(text: str, part: str) -> str:
    """Return the part of a page below a heading."""
    return html.unescape(text.partition(f'id="{part}"')[2].partition("<h2")[0])


@pytest.mark.parametrize(
    ("text", "location"),
    [
        (runs.uuid(1), f"/part?name={runs.uuid(1)}"), ("165201", "/part?name=165201"), ("b mlx5_2", "/part?name=b+mlx5_2"),
        (GUID, "/part?name=506b%3A4b03%3A00ab%3Acdef"), (MODULE, f"/part?name={MODULE}"), ("S6CK1", "/part?name=S6CK1"),
        ("leaf-03", "/part?name=leaf-03"), ("M-771", "/part?name=M-771"), ("a", "/node?name=a"), ("b", "/node?name=b"),
        ("mlx5_2", "/runs?text=mlx5_2"),
    ],
)  # fmt: skip
def test_the_search_box_finds_parts_and_nodes_in_history_too(console: memory.Opened, text: str, location: str) -> None:
    answer = console.signed_in().get("/find", params={"q": text})
    assert (answer.status_code, answer.headers["location"]) == (303, location)


def test_a_part_says_where_it_is_and_was_its_problems_causes_and_numbers(console: memory.Opened) -> None:
    client = console.signed_in()
    text = client.get("/part?name=165201").text
    assert f"<dt>UUID</dt><dd>{runs.uuid(1)}</dd>" in text and '<a href="/node?name=b">b</a></dd>' in text
    assert re.findall(r'<td class="w"><a href="/node\?name=(\w)">', section(text, "places")) == ["b", "a"]
    assert f'href="/results/{runs.run_id(1)}"' in section(text, "places")
    assert "400 TFLOPS" in section(text, "broken") and "What to do:" in section(text, "broken")
    assert f'href="/results/{runs.run_id(2)}"' in section(text, "causes")
    assert [text.count(f'<a href="/results/{runs.run_id(day)}">{runs.run_id(day)}</a>') for day in (1, 2)] == [1, 1]
    curves = client.get(html.unescape(re.findall(r'<iframe[^>]* src="([^"]+)"', text)[0]))
    assert curves.status_code == 200 and runs.uuid(1) in curves.text
    history = client.get(f"/history?part={runs.uuid(1)}").text
    assert runs.run_id(1) in section(history, "verdicts") and f'name="part" value="{runs.uuid(1)}"' in history


def test_a_part_without_numbers_of_its_own_has_the_findings_that_name_it(tmp_path: pathlib.Path) -> None:
    dimms = [{"slot": slot, "bank": "", "mib": 65536, "serial": serial} for slot, serial in (("A1", MODULE), ("A2", "35A1B999"))]
    run = runs.measured(tmp_path, 1, {"a": machine("a", 1, 672.0, dimms=dimms)})
    (facts, *_others) = runs._observed(run, "a", machine("a", 1, 672.0, dimms=dimms))
    reason = f"a: DIMM A1, serial number {MODULE}: 3 uncorrectable memory errors"
    run.journal.append([{**facts, "attempt": 2, "outcome": "error", "reason_code": "ecc", "reason": reason}])
    runs.judge(run, acceptance_history=True)
    client = memory.opened(tmp_path).signed_in()
    bad, good = client.get(f"/part?name={MODULE}").text, client.get("/part?name=35A1B999").text
    assert "3 uncorrectable memory errors" in section(bad, "broken") and "3 uncorrectable" in section(bad, "causes")
    assert "None: no check that names this part" in section(good, "broken") and 'id="causes"' not in good
    rows = re.findall(r"name=a%2Fdimm%2F(A\d)\">Memory module</a>.*?</td><td>(.*?)</td>", client.get("/node?name=a").text)
    assert [(name, "FAIL" in verdict) for name, verdict in rows] == [("A1", True), ("A2", False)]


def test_a_switch_has_the_devices_that_were_connected_to_it(console: memory.Opened) -> None:
    text = console.signed_in().get("/part?name=leaf-03").text
    assert "Devices connected to it" in text and "leaf-03 Ethernet1/7" in section(text, "places")
    assert 'href="/part?name=b+mlx5_2"' in text


def test_the_hardware_of_a_node_has_all_kinds_of_parts_each_with_its_page(console: memory.Opened) -> None:
    client = console.signed_in()
    table = section(client.get("/node?name=b").text, "hardware")
    links = re.findall(r'href="(/part\?name=[^"]+)">([^<]+)</a>', table)
    assert [name for _link, name in links] == ["Machine", "GPU 3", "mlx5_2", "nvme0", "Memory module"]  # none for the empty slot
    assert [client.get(link).status_code for link, _name in links] == [200] * 5
    assert 'class="b FAIL"' in table.partition("GPU 3")[2].partition("</tr>")[0]


def test_a_cause_leads_to_its_part(console: memory.Opened) -> None:
    client = console.signed_in()
    (link,) = re.findall(r'href="(/part\?name=[^"]+)"', client.get(f"/results/{runs.run_id(2)}").text)
    assert link == f"/part?name=b%2Fgpu%2F{runs.uuid(1)}" and runs.uuid(1) in client.get(link).text


def test_several_parts_of_one_name_are_listed(tmp_path: pathlib.Path) -> None:
    devices = [{"device": f"mlx5_{port}", "guid": f"{GUID[:-1]}{port}", "serial_number": "MT2301"} for port in range(2)]
    runs.judged(tmp_path, 1, {"a": machine("a", 1, 672.0, devices=devices)}, acceptance_history=True)
    client = memory.opened(tmp_path).signed_in()
    text = client.get("/part?name=MT2301").text
    assert "2 parts have this name" in text
    links = re.findall(r'<li><a href="(/part[^"]+)"', text)
    assert len(links) == 2 and all("mlx5_" in client.get(link).text for link in links)


def test_a_node_of_a_cluster_is_named_as_requests_name_it(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current, "DAYS", 36500)
    runs.judged(tmp_path, 1, {"lab/a": machine("a", 1, 672.0)}, acceptance_history=True)
    client = memory.opened(tmp_path, memory=memory.Memory([actions.NodeInfo("a", 8, 8)])).signed_in()
    assert client.get("/find?q=a GPU 3").headers["location"] == "/part?name=a+GPU+3"
    for name in ("a GPU 3", "lab/a GPU 3", f"lab/a/gpu/{runs.uuid(1)}"):
        assert runs.uuid(1) in client.get("/part", params={"name": name}).text


def test_a_list_of_parts_that_is_cut_says_so(tmp_path: pathlib.Path) -> None:
    disks = [{"disk": f"sd{number}", "model": "QEMU", "serial": "QM00001", "pci": ""} for number in range(101)]
    runs.judged(tmp_path, 1, {"a": machine("a", 1, 672.0, disks=disks)}, acceptance_history=True)
    client = memory.opened(tmp_path).signed_in()
    text = client.get("/part?name=QM00001").text
    assert text.count('<li><a href="/part') == 100 and "parts have this name" not in text and "Not all results are shown" in text
    told = client.get("/api/v1/parts?name=QM00001").json()
    assert (len(told["parts"]), told["more"]) == (20, True)


def test_the_verdicts_of_a_part_are_sorted_by_the_column_that_is_clicked(console: memory.Opened) -> None:
    client = console.signed_in()

    def runs_of(page: str) -> list[str]:
        table = page.partition('id="verdicts"')[2]
        assert 'aria-sort="' in table or "sort=-" not in table
        return re.findall(r"<tr><td><a href=\"/results/([^\"]+)", table)

    plain = client.get("/part?name=165201").text
    (link,) = {html.unescape(link) for link in re.findall(r'<a href="(/part\?[^"]*sort=run[^"]*)"', plain)}
    up = client.get(link).text
    down = client.get(next(html.unescape(link) for link in re.findall(r'<a href="(/part\?[^"]*)"', up) if "sort=-run" in link)).text
    assert runs_of(up) == sorted(runs_of(plain)) != runs_of(down) == sorted(runs_of(plain), reverse=True)
    assert 'aria-sort="ascending"' in up and 'aria-sort="descending"' in down


@pytest.mark.parametrize("name", ["", "nobody", "b mlx5_9", "<script>", "\x00"])
def test_a_part_that_nobody_saw_is_not_found(console: memory.Opened, name: str) -> None:
    answer = console.signed_in().get("/part", params={"name": name})
    assert answer.status_code == 404 and "Part not found" in answer.text


def test_programs_ask_for_a_part_by_its_name(console: memory.Opened) -> None:
    client = console.signed_in()
    (part,) = client.get("/api/v1/parts?name=165201").json()["parts"]
    assert (part["kind"], part["address"], part["node"], part["serial"]) == ("gpu", runs.uuid(1), "b", "165201")
    assert [(place["node"], place["since"]) for place in part["places"]] == [("b", runs.run_id(2)), ("a", runs.run_id(1))]
    assert [cause["run"] for cause in part["causes"]] == [runs.run_id(2)]
    verdicts = client.get("/api/v1/verdicts", params={"part": part["address"]}).json()["verdicts"]
    assert {row["run"] for row in verdicts} == {runs.run_id(1), runs.run_id(2)}
    assert client.get("/api/v1/parts?name=nobody").json() == {"parts": [], "more": False}


def test_pages_of_parts_are_there_in_every_language(console: memory.Opened) -> None:
    client = console.signed_in()
    for language in words.languages():
        for name in ("165201", "leaf-03", MODULE, "S6CK1", "M-771", GUID):
            answer = client.get("/part", params={"name": name}, headers={"accept-language": language})
            assert answer.status_code == 200 and f'<html lang="{language}">' in answer.text


def test_a_name_that_nothing_has_is_answered_with_it(console: memory.Opened) -> None:
    client = console.signed_in()
    assert "Nothing here is called zzz&lt;b&gt;" in client.get("/runs", params={"text": "zzz<b>"}).text
    assert "Nothing found" in client.get("/runs?phase=Cancelled").text
