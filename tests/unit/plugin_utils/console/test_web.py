# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The console's pages and its API over actions in memory: what people and programs do with it."""

from __future__ import annotations

import html
import itertools
import json
import pathlib
import re
import shutil
import socket
import string
import typing as t

import jsonschema
import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions, runner
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import request as requests
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import api, forms, local_server, openapi, storage, words
from harness import console_memory as memory
from harness import history_runs as runs

RDMA = {"rdma": {"nodes": ["n0001", "n0002"], "operation": "write"}}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Three runs of two machines, of which one becomes slow."""
    folder = tmp_path_factory.mktemp("console") / "results"
    for day, slow in enumerate((670.0, 671.0, 400.0), 1):
        runs.judged(folder, day, runs.fleet(a=672.0, b=slow), acceptance_history=True)
    return folder


@pytest.fixture
def console(results: pathlib.Path) -> memory.Opened:
    return memory.opened(results)


def csrf(text: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', text)
    assert found
    return found[1]


def test_an_action_goes_from_the_form_to_its_page(console: memory.Opened) -> None:
    client = console.signed_in()
    asked = {"kind": "rdma", "where": "nodes", "nodes": "n0001, n0002", "device": "mlx5_0", "port": "1", "rdma_operation": "send"}
    page = client.get("/start", params={**asked, "do": "show"}).text
    assert "ib_send_bw -d mlx5_0 -i 1" in page
    made = client.post("/start", data={**asked, "csrf": csrf(page), "name": "mine"})
    assert (made.status_code, made.headers["location"]) == (303, "/runs/mine")
    shown = client.get("/runs/mine").text
    assert "b, which has its nodes" in shown
    assert "/runs/mine" in client.get("/runs").text
    assert console.actions.get("mine").spec == {
        "rdma": {
            "nodes": ["n0001", "n0002"], "device": "mlx5_0", "port": 1, "operation": "send", "measure": "bandwidth", "scope": "all_pairs",
        }
    }  # fmt: skip
    # The same form, sent twice, is one action.
    again = client.post("/start", data={**asked, "csrf": csrf(page), "name": "mine"})
    assert (again.status_code, again.headers["location"]) == (303, "/runs/mine")
    assert len(console.actions.of) == 1
    asks = client.get("/cancel?name=mine").text
    assert 'href="/cancel?name=mine"' in shown and "<h1>Cancel this run?</h1>" in asks and 'action="/runs/mine"' in asks
    assert console.actions.get("mine").status.phase == actions.QUEUED
    assert "<h1>Cancel this run?</h1>" in client.get("/cancel?name=mine&name=mine").text
    cancelled = client.post("/runs/mine", data={"csrf": csrf(asks), "do": "cancel"})
    assert cancelled.headers["location"] == "/runs/mine"
    assert console.actions.get("mine").status.phase == actions.CANCELLED
    assert client.post("/runs/mine/delete", data={"csrf": csrf(shown)}).headers["location"] == "/runs"
    assert not console.actions.of
    told = [json.loads(line) for line in console.audit.getvalue().splitlines()]
    assert [(one["who"], one["what"], one["about"], one["from"], one["outcome"]) for one in told] == [
        ("tester", "enter", "", "192.0.2.1", "done"), ("tester", "create", "mine", "192.0.2.1", "done"),
        ("tester", "create", "mine", "192.0.2.1", "done"), ("tester", "set", "mine", "192.0.2.1", "done"),
        ("tester", "delete", "mine", "192.0.2.1", "done"),
    ]  # fmt: skip


def test_every_button_twice_in_every_order_keeps_the_form_as_it_was_typed(console: memory.Opened) -> None:
    client = console.signed_in()
    variables = "gemm_seconds: 5\r\ngemm_types: bf16"
    typed = {"kind": "stages", "where": "nodes", "nodes": "n0001\r\nn0002", "stage": "gemm", "variables": variables}
    for order in itertools.permutations(("show", "find", "add"), 2):
        fields = dict(typed)
        for do in [press for press in order for _twice in range(2)]:
            page = client.get("/start", params={**fields, "do": do}, follow_redirects=True).text
            areas = {name: html.unescape(text) for name, text in re.findall(r'<textarea id="(\w+)"[^>]*>([^<]*)</textarea>', page)}
            assert areas["nodes"].split("\n") == ["n0001", "n0002"] and len(areas["variables"].split("\n")) == 2, (order, do)
            # A browser sends the lines of a text field with CRLF.
            fields = {**typed, **{name: text.replace("\n", "\r\n") for name, text in areas.items()}}
        made = client.post("/start", data={**fields, "csrf": csrf(page), "name": "-".join(order)})
        assert made.status_code == 303, made.text
        spec = console.actions.get("-".join(order)).spec["stages"]
        assert spec["nodes"] == ["n0001", "n0002"] and spec["variables"] == {"gemm_seconds": "5", "gemm_types": "bf16"}


def test_a_ticked_node_counts_without_the_button_that_lists_it(console: memory.Opened) -> None:
    client = console.signed_in()
    form = {"kind": "rdma", "nodes": "n0001", "found": ["n0002", "n0001"], "name": "ticked"}
    page = client.get("/start", params={**form, "do": "show"}).text
    assert ">n0001\nn0002</textarea>" in page and 'value="n0002" checked disabled' in page
    assert client.post("/start", data={**form, "csrf": csrf(page)}).status_code == 303
    assert console.actions.get("ticked").spec["rdma"]["nodes"] == ["n0001", "n0002"]


def test_back_a_change_and_start_makes_a_second_action_once(console: memory.Opened) -> None:
    client = console.signed_in()
    form = {"kind": "rdma", "nodes": "n0001 n0002", "name": "mine", "csrf": csrf(client.get("/start").text)}
    assert client.post("/start", data=form).headers["location"] == "/runs/mine"
    changed = {**form, "nodes": "n0003 n0004"}
    second = client.post("/start", data=changed).headers["location"]
    assert second.startswith("/runs/mine-") and client.post("/start", data=changed).headers["location"] == second
    assert sorted(console.actions.of) == ["mine", second.removeprefix("/runs/")]


def test_who_opens_the_console_sees_what_was_measured_from_a_terminal(console: memory.Opened) -> None:
    client = console.signed_in()
    first = client.get("/runs").text
    assert [f"/results/{runs.run_id(day)}" in first for day in (1, 2, 3)] == [True] * 3
    assert runs.run_id(3) not in client.get("/runs", params={"phase": "Running"}).text


def test_the_page_shows_the_tunnel_that_the_console_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_server.getpass, "getuser", lambda: "ops")
    monkeypatch.setattr(local_server.socket, "gethostname", lambda: "controller-1")
    page = (pathlib.Path(__file__).resolve().parents[4] / "docs/console.md").read_text(encoding="utf-8")
    assert f"\n    {local_server.from_elsewhere('127.0.0.1', local_server.PORT)}\n" in page


def test_who_follows_the_link_before_the_console_serves_waits_and_is_not_turned_away() -> None:
    with local_server._Listening("127.0.0.1", 0) as found, socket.create_connection(("127.0.0.1", found.port), 5):
        pass


@pytest.mark.parametrize(
    ("mode", "why", "word", "accepted", "said"),
    [
        ("run", "because", None, True, "ACCEPTED"),
        ("quick", "because", None, False, "QUICK TEST PASSED"),
        ("quick", "because", "ACCEPTED", False, "QUICK TEST PASSED"),
        ("run", "all is fine; gates of GPU sharing: P0 not proven", "ACCEPTED", False, "PASSED, NOT PROVEN"),
    ],
)
def test_a_report_of_an_older_version_is_readable_and_accepts_no_more_than_one_of_today(
    results: pathlib.Path, tmp_path: pathlib.Path, mode: str, why: str, word: str | None, accepted: bool, said: str
) -> None:
    run = runs.run_id(1)
    shutil.copytree(results / run, tmp_path / run)
    report, plan = json.loads((tmp_path / run / "report.json").read_text()), json.loads((tmp_path / run / "plan.json").read_text())
    old = {"run_id": run, "accepted": True, "why": why, "counts": report["counts"], **({"word": word} if word else {})}
    (tmp_path / run / "report.json").write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in old.items()) + "\n}\n")
    (tmp_path / run / "plan.json").write_text(json.dumps({**plan, "mode": mode}))
    client = memory.opened(tmp_path).signed_in()
    told = client.get(f"/api/v1/runs/{run}").json()["report"]
    assert (told["accepted"], told["word"]) == (accepted, said)
    page = client.get(f"/results/{run}")
    assert page.status_code == 200 and said in page.text


def test_a_form_that_is_wrong_keeps_what_was_typed_and_says_it_at_the_field(console: memory.Opened) -> None:
    client = console.signed_in()
    typed = {"kind": "rdma", "where": "nodes", "nodes": "n0001\nnobody", "device": "mlx5 <0>", "port": "one", "rdma_operation": "read"}
    answer = client.post("/start", data={**typed, "csrf": csrf(client.get("/start").text)})
    assert answer.status_code == 422
    assert "n0001\nnobody</textarea>" in answer.text
    assert 'value="mlx5 &lt;0&gt;"' in answer.text
    assert '<option value="read" selected>' in answer.text
    for field, said in (("nodes", "&#39;nobody&#39;, expected a node"), ("device", "&#39;mlx5 &lt;0&gt;&#39;"), ("port", "&#39;one&#39;")):
        assert re.search(rf'name="{field}"[^>]* aria-describedby="wrong-{field}" aria-invalid="true"', answer.text)
        assert re.search(rf'id="wrong-{field}" data-part><span>found {re.escape(said)}', answer.text), field
    assert not console.actions.of


def wrong_of(page: str) -> dict[str, str]:
    """Return {field of the form: what the page says is wrong with it}."""
    found = re.findall(r'id="wrong-(\w*)" data-part>(.*?)</span></span>', page)
    return {field: html.unescape(re.sub(r"(<[^>]+>)+", " ", said)).strip() for field, said in found}


def test_all_wrong_fields_are_named_at_once_in_the_words_of_the_page(console: memory.Opened) -> None:
    client = console.signed_in()
    typed = {
        "kind": "stages", "nodes": "Röck, n0001, nobody", "variables": "gemm_seconds: much", "stage": "gemm", "cron": "61 * * * *",
        "ttl": "x", "image": "evil:1", "name": "Größe",
    }  # fmt: skip
    page = client.post("/start", data={**typed, "csrf": csrf(client.get("/start").text)}).text
    assert wrong_of(page) == {
        "": "image: found 'evil:1', expected none: no image may be chosen here",
        "nodes": "found 'Röck', expected the name of a node found 'nobody', expected a node that is there",
        "variables": "gemm_seconds: found 'much', expected a number from 0 to 1000000000000",
        "cron": "found '61 * * * *', expected minute, hour, day, month and weekday, like 0 3 * * 6",
        "ttl": "found 'x', expected a whole number from 0 to 315360000",
        "name": "found 'Größe', expected small letters, digits and dashes, at most 63, a letter or digit at both ends",
    }
    preview = re.search(r'<section id="preview".*?</section>', page, re.DOTALL)
    links = re.findall(r'<a href="#(\w+)">([^<]+)', preview[0]) if preview else []
    assert links == [
        ("nodes", "Nodes, one per line"), ("variables", "Stage variables"), ("cron", "Schedule"),
        ("ttl", "Delete the request after (seconds)"), ("name", "Name of this run"),
    ]  # fmt: skip
    assert all(f'id="{name}"' in page for name, _label in links)
    # Each word stands once, and the reader is led to what comes first on the page.
    assert page.count("nobody&#39;") == 1 and re.findall(r"<[^>]* autofocus>", page) == ['<div role="alert" tabindex="-1" autofocus>']
    del typed["image"]
    page = client.get("/start", params={**typed, "do": "show"}).text
    assert len(re.findall(r'id="nodes"[^>]* autofocus>', page)) == 1 == page.count("autofocus")
    assert "autofocus" not in client.get("/start", params=typed).text


def test_every_field_that_can_be_wrong_has_a_label_and_a_place(console: memory.Opened) -> None:
    fields = set(forms.LABELS)
    of_specs = {name for table in (forms.RDMA, forms.COLLECTIVE, forms.STAGES, forms.OTHER) for name in table.values()}
    assert fields == {*of_specs, "kind", "nodes", "labels", "name"}
    page = console.signed_in().get("/start").text
    assert fields - set(re.findall(r'id="wrong-(\w+)"', page)) == {"image"} and fields - set(re.findall(r' id="(\w+)"', page)) == {"image"}
    assert set(forms.LABELS.values()) <= set(words.languages()["en"])


def test_the_preview_says_what_has_no_expectation(console: memory.Opened) -> None:
    client = console.signed_in()
    asked = {"kind": "collective", "nodes": "n0001 n0002", "library": "HCCL", "do": "show"}
    page = client.get("/start", params=asked).text
    assert "No expectation is known for these" in page and "<li>hccl all_reduce" in page
    assert "No expectation" not in client.get("/start", params={**asked, "kind": "rdma"}).text


def test_a_missing_value_is_said_to_be_missing_and_equal_words_once(console: memory.Opened) -> None:
    client = console.signed_in()
    page = client.get("/start", params={"kind": "stages", "nodes": "", "do": "show"}).text
    assert wrong_of(page)["nodes"] == "missing; expected a list of 1 to 5000 nodes"
    assert wrong_of(page)["stage"].startswith("missing; expected a list of stack")
    page = client.get("/start", params={"nodes": " ".join(f"x{n}" for n in range(30)), "device": "-", "do": "show"}).text
    assert wrong_of(page)["nodes"].startswith("found 'x0', 'x1',") and "device" in wrong_of(page)
    assert "не указано" in wrong_of(client.get("/start", params={"nodes": "", "do": "show", "lang": "ru"}).text)["nodes"]


def test_nodes_are_found_by_a_part_of_their_name_and_added_to_those_chosen(console: memory.Opened) -> None:
    client = console.signed_in()
    page = client.get("/start", params={"q": "n000", "nodes": "n0011", "do": "find"}).text
    assert page.count('name="found"') == 10
    added = client.get("/start", params=[("nodes", "n0011"), ("found", "n0001"), ("found", "n0002"), ("do", "add")])
    assert added.status_code == 303
    assert "n0011\nn0001\nn0002</textarea>" in client.get(added.headers["location"]).text
    pool = client.get("/start", params={"kind": "collective", "where": "pool", "labels": "pool=p1", "do": "show"}).text
    assert "mpirun -np RANKS" in pool or "mpirun" in pool
    assert "Nodes: 4." in pool


@pytest.mark.parametrize(
    "spec",
    [
        {"rdma": {"nodes": ["a", "b"], "device": "mlx5_0", "port": 2, "operation": "send", "measure": "latency", "scope": "ring"}},
        {"collective": {"pool": {"matchLabels": {"x/y": "z"}}, "library": "HCCL", "operation": "all_gather", "gpusPerNode": 4,
                        "sizes": ["8M:1G", "1:2"]}},
        {"stages": {"names": ["stack", "gemm"], "nodes": ["a"], "variables": {"gemm_seconds": "10"}}, "ttlSecondsAfterFinished": 60},
    ],
)  # fmt: skip
def test_what_was_asked_for_can_be_asked_for_again(spec: dict[str, t.Any]) -> None:
    assert forms.spec_of(forms.fields_of(spec)) == spec


def test_every_problem_of_a_request_has_its_field(console: memory.Opened) -> None:
    wrong = {
        "rdma": {"nodes": ["n0001", "x y"], "device": "-", "port": 0, "operation": "o", "measure": "m", "scope": "s"},
        "ttlSecondsAfterFinished": -1, "schedule": {"cron": "x", "timeZone": "y"}, "image": "i",
    }  # fmt: skip
    with pytest.raises(requests.RequestError) as found:
        requests.read(wrong, requests.Limits(plane="kubernetes"))
    fields = set(forms.at_fields(found.value.problems))
    assert fields == {"nodes", "device", "port", "rdma_operation", "measure", "scope", "ttl", "cron", "zone", "image"}


def test_the_api_does_what_its_document_says(console: memory.Opened) -> None:
    client = console.signed_in()
    document = client.get("/api/v1/openapi.json").json()
    token = csrf(client.get("/start").text)
    head = {"x-csrf-token": token}

    def ask(method: str, path: str, way: str = "", **given: t.Any) -> t.Any:
        answer = client.request(method, path, headers=head, **given)
        told = document["paths"][way or path.partition("?")[0]][method.lower()]["responses"]
        schema = told.get(str(answer.status_code), told["default"])["content"]["application/json"]["schema"]
        jsonschema.validate(answer.json(), {**schema, "components": document["components"]})
        return answer.json()

    one = "/api/v1/actions/{name}"
    made = ask("POST", "/api/v1/actions", json={"name": "x", "spec": RDMA})
    assert made["status"]["phase"] == "Queued" and made["who"] == "tester"
    assert ask("GET", "/api/v1/actions")["actions"] == [made]
    assert ask("GET", "/api/v1/actions/x", one) == made
    assert ask("GET", "/api/v1/actions/x/output?node=a", f"{one}/output")["error"] == "The run is not in progress."
    assert ask("PATCH", "/api/v1/actions/x", one, json={"cancel": True})["status"]["phase"] == "Cancelled"
    assert ask("POST", "/api/v1/actions", json={"name": "x", "spec": RDMA})["error"] == "action x is there already"
    assert ask("DELETE", "/api/v1/actions/x", one) == {}
    assert ask("GET", "/api/v1/actions/x", one)["error"] == "action x is not there"
    wrong = ask("POST", "/api/v1/actions", json={"spec": {"rdma": {"nodes": ["nobody", "n0001"]}}})
    assert wrong["problems"] == [{"field": "rdma.nodes[0]", "found": "'nobody'", "expected": "a node that is there"}]
    wrong = ask("POST", "/api/v1/actions", json={"name": "Ü", "spec": {"rdma": {"nodes": ["n1", "n0001"], "device": "Röck"}, "x": 1}})
    assert [(one["field"], one["found"]) for one in wrong["problems"]] == [
        ("x", "an unknown field"), ("rdma.device", "'Röck'"), ("rdma.nodes[0]", "'n1'"), ("metadata.name", "'Ü'"),
    ]  # fmt: skip
    wrong = ask("POST", "/api/v1/actions", json={"spec": RDMA, "vars": {}, "more": 1})
    assert [one["field"] for one in wrong["problems"]] == ["more", "vars"]
    assert ask("POST", "/api/v1/preview", json={"spec": RDMA})["command"][0] == "ib_write_bw"
    assert ask("GET", "/api/v1/nodes?text=n0003")["count"] == 1
    listed = ask("GET", "/api/v1/runs")["runs"]
    assert [one["run"] for one in listed] == [runs.run_id(day) for day in (3, 2, 1)]
    assert ask("GET", f"/api/v1/runs/{runs.run_id(3)}", "/api/v1/runs/{run}")["report"]["accepted"] is False
    bad = ask("GET", "/api/v1/verdicts?verdict=FAIL")["verdicts"]
    assert {(one["run"], one["subject"].split("/")[0]) for one in bad} == {(runs.run_id(3), "b")}
    assert ask("GET", f"/api/v1/parts?name={runs.uuid(ord('b'))}")["parts"][0]["node"] == "b"
    compared = ask("GET", f"/api/v1/compare?after={runs.run_id(3)}")
    assert compared["before"] == runs.run_id(2) and compared["compared"] > 1
    assert ask("GET", "/api/v1/runs?limit=0")["problems"][0]["field"] == "limit"
    # Every way in is in the document, and every one that looks was tried here.
    ways = {(one.path, one.method.lower()) for one in api.ENDPOINTS} | {("/api/v1/changes", "get")}
    assert ways == {(path, method) for path, methods in document["paths"].items() for method in methods}


def test_the_documents_schema_of_a_spec_takes_what_the_request_takes() -> None:
    schemas = openapi.schemas()
    document = {"$ref": "#/components/schemas/Spec", "components": {"schemas": schemas}}
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    pool = {"collective": {"pool": {"matchLabels": {"a": "b"}}, "sizes": ["1:2"]}}
    for spec in (RDMA, pool, {"stages": {"names": ["gemm"], "nodes": ["a"]}}):
        requests.read(spec, requests.Limits(plane="kubernetes"))
        jsonschema.validate(spec, document)
    for wrong in ({"rdma": {"port": 256}}, {"rdma": {"nodes": ["a\n"]}}, {"stages": {"names": ["reboot"]}}, {"rdma": {}, "x": 1}):
        with pytest.raises(requests.RequestError):
            requests.read(wrong, requests.Limits(plane="kubernetes"))
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, document)


def test_a_result_shows_its_report_its_raw_files_and_stays_when_the_folder_goes(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "results"
    for day in (1, 2):
        runs.judged(folder, day, runs.fleet(a=670.0), acceptance_history=True)
    client = memory.opened(folder).signed_in()
    run = runs.run_id(1)
    page = client.get(f"/results/{run}").text
    assert "ACCEPTED" in page and f'src="/results/{run}/report.html"' in page
    report = client.get(f"/results/{run}/report.html")
    assert report.status_code == 200 and "sandbox allow-scripts;" in report.headers["content-security-policy"]
    digest = re.search(r"/digest/([0-9a-f]{64})", page)
    assert digest and client.get(digest[0]).headers["location"] == f"/results/{run}"
    link = re.search(rf'"(/results/{run}/raw/a\.txt\.gz%23\d+)"', page)
    text = client.get(link[1]) if link else None
    assert text is not None and text.status_code == 200 and text.text == "a  670.0"
    assert text.headers["content-type"].startswith("text/plain") and "a-0.txt" in text.headers["content-disposition"]
    place = folder / run / "raw" / "a.txt.gz"
    whole = place.read_bytes()
    place.write_bytes(whole[:30] + b"x" + whole[31:])
    assert client.get(link[1] if link else "").status_code == 409
    (folder / run).rename(tmp_path / "away")
    later = client.get(f"/results/{run}")
    assert later.status_code == 200
    assert "The folder of this run no longer exists" in later.text and "bf16" in later.text


def test_a_quick_test_that_passed_is_accepted_on_no_page(tmp_path: pathlib.Path) -> None:
    quick = runs.measured(tmp_path, 1, runs.fleet(a=670.0), mode="quick", partial=True, not_proven=["the plateau"])
    runs.judge(quick, acceptance_history=True)
    client = memory.opened(tmp_path).signed_in()
    for path in ("/history", f"/results/{quick.id}"):
        text = client.get(path).text
        assert "✓ QUICK TEST PASSED" in text and "ACCEPTED" not in text
    (told,) = client.get("/api/v1/runs").json()["runs"]
    assert (told["accepted"], told["word"]) == (False, "QUICK TEST PASSED")


def test_history_nodes_and_compare_say_what_there_is(console: memory.Opened) -> None:
    client = console.signed_in()
    page = client.get("/history", params={"verdict": "FAIL"}).text
    assert runs.run_id(3) in page and "400" in page
    assert "expected some of" in client.get("/history", params={"verdict": "BAD"}).text
    assert 'aria-describedby="wrong-search"' in client.get("/history", params={"since": "long ago"}).text
    node = client.get("/node", params={"name": "b"}).text
    assert "580.1" in node and "400" in node and "This node is not in the inventory now" in node
    assert "n0001" in client.get("/node", params={"name": "n0001"}).text
    assert client.get("/node", params={"name": "nobody"}).status_code == 404
    curves = client.get("/history/curves", params={"node": "b"})
    assert "sandbox allow-scripts;" in curves.headers["content-security-policy"] and "Plotly" in curves.text
    assert "before, 400 now" not in client.get("/compare", params={"after": runs.run_id(3)}).text
    assert runs.run_id(2) in client.get("/compare", params={"after": runs.run_id(3)}).text
    assert client.get("/compare", params={"after": "20990101T000000Z-000000"}).status_code == 404
    free = client.get("/nodes", params={"state": "free", "sort": "-free"}).text
    assert re.findall(r'/node\?name=(n\d+)', free)[:2] == ["n0008", "n0007"]
    assert "n0000" not in free


def test_a_console_without_any_run_says_so(tmp_path: pathlib.Path) -> None:
    (tmp_path / "results").mkdir()
    client = memory.opened(tmp_path / "results").signed_in()
    assert "No measurements yet." in client.get("/history").text
    assert client.get("/readyz").text == "ok\n"
    assert client.get("/results/20260101T000000Z-0a1b2c").status_code == 404


def test_trouble_with_the_storage_is_on_every_page_and_in_readyz(
    results: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "HOLDS_S", -1.0)
    folder = tmp_path / "results"
    shutil.copytree(results, folder)
    client = memory.opened(folder).signed_in()

    def seen() -> tuple[int, str, list[str]]:
        ready = client.get("/readyz")
        banners = [re.findall(r'banner" role="alert">([^<]*)', client.get(path).text) for path in ("/runs", "/start")]
        return ready.status_code, ready.text, banners

    assert seen() == (200, "ok\n", [[], []])
    folder.rename(tmp_path / "away")
    status, text, banners = seen()
    assert (status, text) == (503, "results: not there\n")
    assert all(len(of) == 1 and "No such file" in of[0] for of in banners)
    (tmp_path / "away").rename(folder)
    assert seen()[0] == 200
    monkeypatch.setattr(runner, "LEAST_FREE_BYTES", 1 << 62)
    status, text, banners = seen()
    assert (status, text) == (503, "results: no room\n") and "MiB left" in banners[0][0]
    monkeypatch.setattr(runner, "LEAST_FREE_BYTES", 0)
    for path in folder.glob("history.db*"):
        path.unlink()
    status, text, banners = seen()
    assert (status, text) == (200, "ok; history: not answering\n") and "history is empty" in banners[0][0]


@pytest.mark.parametrize(
    ("query", "field", "expected"),
    [
        ("nod=a", "nod", "any of node, check, since, until, from, to, verdict, run, part, regressed, limit"),
        ("verdict=BAD", "verdict", "some of FAIL, UNKNOWN"),
        ("regressed=yes", "regressed", "true or false"),
        ("limit=many", "limit", "a whole number from 1 to 500"),
    ],
)
def test_a_query_that_would_have_no_effect_is_refused(console: memory.Opened, query: str, field: str, expected: str) -> None:
    answer = console.signed_in().get(f"/api/v1/verdicts?{query}")
    assert answer.status_code == 422
    (problem,) = answer.json()["problems"]
    assert problem["field"] == field and problem["expected"].startswith(expected)


def test_a_request_for_more_gpus_than_a_node_has_is_refused(console: memory.Opened) -> None:
    client = console.signed_in()
    spec = {"collective": {"nodes": ["n0001", "n0002"], "operation": "all_reduce", "gpusPerNode": 9}}
    token = {"x-csrf-token": csrf(client.get("/start").text)}
    told = client.post("/api/v1/preview", json={"spec": spec}, headers=token).json()
    assert told["problems"] == [{"field": "collective.gpusPerNode", "found": "9", "expected": "at most 8, as many as n0001 has"}]
    spec = {"stages": {"nodes": ["n0001"], "names": ["gemm"], "variables": {"gemm_seconds": "99999999"}}}
    told = client.post("/api/v1/preview", json={"spec": spec}, headers=token).json()
    assert "at most 86400 seconds" in told["problems"][0]["expected"]
    spec["stages"]["variables"] = {"gemm_seconds": "3600"}
    assert client.post("/api/v1/preview", json={"spec": spec}, headers=token).json()["seconds"] > 3600


def test_wrong_fields_are_explained_in_the_language_of_the_page(console: memory.Opened) -> None:
    client = console.signed_in()
    asked = {"kind": "rdma", "where": "nodes", "nodes": "n0001, n0002", "port": "one", "ttl": "x", "do": "show"}
    for language, port in (("ru", "ожидается целое число от 1 до 255"), ("zh", "应为 1 到 255 的整数")):
        page = client.get("/start", params=asked, headers={"accept-language": language}).text
        assert port in page and "a whole number" not in page
        assert "a day as" not in client.get("/history?since=x", headers={"accept-language": language}).text


def test_every_page_is_there_in_every_language(console: memory.Opened) -> None:
    client = console.signed_in()
    def places(texts: dict[str, str]) -> dict[str, set[str]]:
        return {name: {field for _text, field, *_ in string.Formatter().parse(text) if field} for name, text in texts.items()}

    for language, texts in words.languages().items():
        assert places(texts) == places(words.languages()["en"]), language
        for path in ("/", "/start", "/runs", "/history", "/nodes", "/compare", f"/results/{runs.run_id(3)}", "/node?name=b"):
            answer = client.get(path, headers={"accept-language": language})
            assert answer.status_code == 200 and f'<html lang="{language}">' in answer.text
    assert 'language=ru' in client.get("/runs?lang=ru").headers["set-cookie"]
    assert '<html lang="ru">' in client.get("/runs", headers={"accept-language": "zh"}).text
    assert words.chosen("xx", "", "de-DE, zh-CN;q=0.8, en;q=0.5") == "zh"


def test_a_store_of_actions_that_is_away_gives_503(console: memory.Opened) -> None:
    client = console.signed_in()
    console.actions.away = True
    assert client.get("/readyz").status_code == 503
    assert client.get("/healthz").status_code == 200
    assert client.get("/api/v1/actions").status_code == 503
    assert "nobody answers" in client.get("/runs").text
    assert client.get("/node?name=b").status_code == 200
    assert client.get("/history").status_code == 200


def test_metrics_count_ways_and_name_nobody(console: memory.Opened) -> None:
    client = console.signed_in()
    client.get("/node?name=b")
    client.get("/api/v1/actions/nothing")
    text = client.get("/metrics").text
    assert 'console_requests_total{method="GET",status="200",way="/node"} 1.0' in text
    assert 'way="/api/v1/actions/{name}"' in text
    assert "tester" not in text and "nothing" not in text


def test_a_template_is_shared_and_opens_as_it_was_saved(results: pathlib.Path, tmp_path: pathlib.Path) -> None:
    first, second = memory.opened(tmp_path), memory.opened(tmp_path)
    client = first.signed_in()
    token = csrf(client.get("/start").text)
    form = {"kind": "stages", "nodes": "n0001", "found": "n0002", "stage": ["gemm", "stack"], "variables": "gemm_seconds: 5", "q": "n"}
    saved = client.post("/templates", data={**form, "name": "weekly", "csrf": token})
    assert (saved.status_code, saved.headers["location"]) == (303, "/start?template=weekly")
    others = second.signed_in()
    assert 'href="/start?template=weekly" title="tester"' in others.get("/start").text
    page = others.get("/start?template=weekly").text
    assert ">n0001\nn0002</textarea>" in page and ">gemm_seconds: 5</textarea>" in page and 'name="name" value="weekly"' not in page
    assert all(f'value="{stage}" checked' in page for stage in ("gemm", "stack"))
    assert json.loads(first.audit.getvalue().splitlines()[-1])["about"] == "weekly"
    token = csrf(page)
    assert others.post("/templates/weekly/delete", data={"csrf": token}).status_code == 303
    assert client.get("/start?template=weekly").status_code == 404 and "template=weekly" not in client.get("/start").text
    assert others.post("/templates/weekly/delete", data={"csrf": token}).status_code == 303  # it is gone already


@pytest.mark.parametrize(("name", "status"), [("", 422), ("../x", 422), ("A", 422), ("a" * 64, 422)])
def test_a_template_needs_a_plain_name(tmp_path: pathlib.Path, name: str, status: int) -> None:
    client = memory.opened(tmp_path).signed_in()
    form = {"kind": "rdma", "nodes": "n0001", "name": name, "csrf": csrf(client.get("/start").text)}
    answer = client.post("/templates", data=form)
    assert answer.status_code == status and ">n0001</textarea>" in answer.text and not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("content", ["", "no json", "[]", '{"fields": 7, "who": ""}', '{"fields": [["nodes"]], "who": ""}', "[" * 100_000])
def test_a_file_that_is_no_template_is_left_out(tmp_path: pathlib.Path, content: str) -> None:
    folder = tmp_path / ".console/templates"
    folder.mkdir(parents=True)
    (folder / "bad.json").write_text(content)
    (folder / "good.json").write_text(json.dumps({"fields": [["nodes", "<b>"], ["csrf", "x"], ["do", "add"]], "who": "<i>"}))
    client = memory.opened(tmp_path).signed_in()
    text = client.get("/start").text
    assert "template=good" in text and "template=bad" not in text and "<i>" not in text
    assert client.get("/start?template=bad").status_code == 404 and "&lt;b&gt;</textarea>" in client.get("/start?template=good").text


def test_a_template_that_cannot_be_written_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / ".console").write_text("a file in the way")
    client = memory.opened(tmp_path).signed_in()
    answer = client.post("/templates", data={"kind": "rdma", "name": "weekly", "csrf": csrf(client.get("/start").text)})
    assert answer.status_code == 503 and "the template cannot be saved" in answer.text


def test_who_is_signed_in_may_ask_for_another_link(console: memory.Opened) -> None:
    client = console.signed_in()
    token = csrf(client.get("/enter").text)
    assert "A new link is in the terminal" in client.post("/enter", data={"csrf": token}).text
