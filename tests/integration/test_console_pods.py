# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The console in pods of its own image on real kubelets: two replicas of which one works, an action from the API to its condition, a leader
that is killed in the middle; people in real browsers, from the form to the verdict; and all but the data taken away.

Pictures of the pages are kept in the folder that CONSOLE_PICTURES names."""

from __future__ import annotations

import os
import pathlib
import typing as t
import urllib.error
import urllib.request

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions, cluster
from harness import journals, rails
from harness.console_lab import NAME, RBAC, ConsoleLab, person, until
from harness.own_rig import own
from rigs.browser import Browser, executable
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = [pytest.mark.kubernetes(own=True), pytest.mark.long, pytest.mark.timeout(3600)]
SWEEP = {"nccl_node_sizes": "8M:16G"}
TEXT = "document.body.innerText"
VERBS = ["get", "list", "create", "patch", "delete"]
# Two ranks over two nodes: both share the processors of this machine.
FABRIC = {
    "nccl_fabric_binary_suffix": "_mpi", "nccl_fabric_repeats": 1, "acceptance_kube_group_launcher": "job",
    "acceptance_expectations": [{
        "id": "test-fabric", "match": {"stage": "nccl_fabric", "check": "all_reduce", "gpus": 1, "size": 16777216}, "metric": "busbw",
        "value": 28, "unit": "GB/s", "source": "the simulated tool", "date": "2026-11", "confidence": "measured",
    }],
}  # fmt: skip
browsers = pytest.mark.skipif(not executable(), reason="no chromium here: apt-get install chromium")


@pytest.fixture(scope="module")
def rig() -> t.Iterator[Kubernetes]:
    with own(Kubernetes) as found:
        found.up(2, 0, operators=())
        yield found


@pytest.fixture(scope="module")
def lab(rig: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[ConsoleLab]:
    more = {"console_replicas": 2, "console_wait": 600, "console_variables": rails.VARIABLES, **FABRIC}
    found = ConsoleLab(rig, tmp_path_factory.mktemp("lab"), rig.console(), **more)
    for node in rig.nodes:
        rails.plant(rig, node)
    rails.offer(rig, 1)
    try:
        assert found.play() == "changed=1"
        yield found
    finally:
        found.close()


def answer(url: str, token: str = "") -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as got:
            return got.status, got.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_both_pods_are_ready_and_one_of_them_works(lab: ConsoleLab) -> None:
    until(lambda: len(lab.ready()) == 2, 600, lab.said)
    names = {pod["metadata"]["name"] for pod in lab.pods()}
    assert until(lab.leader) in names
    for pod in lab.pods():
        url = f"http://{pod['status']['podIP']}:8470"
        # The pages may have looked for the results folder before the controller made it, and look again after a few seconds.
        until(lambda url=url: answer(f"{url}/readyz") == (200, "ok\n"), 60, lab.said)  # type: ignore[misc]
        assert answer(f"{url}/healthz")[0] == 200
        assert answer(f"{url}/api/v1/actions")[0] == 401


def test_an_action_ends_accepted_though_the_pod_that_runs_it_is_killed(lab: ConsoleLab, rig: Kubernetes) -> None:
    until(lambda: len(lab.ready()) == 2, 600, lab.said)
    first = lab.leader()
    spec = {"stages": {"nodes": rig.nodes, "names": ["stack", "nccl_node"], "variables": SWEEP}}
    lab.admin.post(cluster._path(lab.namespace), cluster._object("first", spec, {}), fieldValidation="Strict")
    run = until(lambda: lab.status("first").get("runID"), 300, lab.said)
    until((lab.results / run / "plan.json").exists, 300, lab.said)
    lab.kill(first)
    until(lambda: lab.condition("first", "Finished") == "True", 900, lab.said)
    assert lab.condition("first", "Accepted") == "True", lab.said()
    assert lab.leader() not in ("", first)
    status = lab.status("first")
    assert status["runID"] == run and status["verdict"] == actions.ACCEPTED
    assert [path.name for path in lab.results.iterdir() if path.is_dir()] == [run], "one action is one run"
    # Whoever asks any of the pods finds it; the volume is theirs together.
    token = person(lab.admin, lab.namespace, "reader", ["get", "list"])
    for pod in until(lambda: len(lab.ready()) == 2 and lab.ready(), 600, lab.said):
        url = f"http://{pod['status']['podIP']}:8470"
        until(lambda url=url: answer(f"{url}/results/{run}", token)[0] == 200, 120, lab.said)  # type: ignore[misc]
        assert run in answer(f"{url}/api/v1/runs", token)[1] and f'"{rig.nodes[1]}"' in answer(f"{url}/api/v1/nodes", token)[1]


# People, each with a browser of their own ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def url(lab: ConsoleLab) -> str:
    until(lambda: len(lab.ready()) == 2, 600, lab.said)
    return lab.door()


def entered(browser: Browser, url: str, token: str) -> Browser:
    browser.size(1280, 900)
    browser.open(f"{url}/enter", "document.getElementById('token')", 300)
    browser.value(f"document.getElementById('token').value = {token!r}; document.querySelector('main form button').click()")
    browser.wait("location.pathname === '/'", 120)
    return browser


@pytest.fixture(scope="module")
def ann(lab: ConsoleLab, url: str) -> t.Iterator[Browser]:
    token = person(lab.admin, lab.namespace, "ann", VERBS)
    with Browser() as browser:
        yield entered(browser, url, token)


@pytest.fixture(scope="module")
def bob(lab: ConsoleLab, url: str) -> t.Iterator[Browser]:
    token = person(lab.admin, lab.namespace, "bob", VERBS)
    with Browser() as browser:
        yield entered(browser, url, token)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    kept = pathlib.Path(os.environ.get("CONSOLE_PICTURES") or tmp_path_factory.mktemp("pictures"))
    kept.mkdir(parents=True, exist_ok=True)
    return kept


def ask(browser: Browser, url: str, shows: str, **fields: str) -> str:
    """Fill in the form and send it when its preview shows this; the name of what came of it."""
    browser.open(f"{url}/start?kind={fields.pop('kind')}")
    for name, value in fields.items():
        browser.value(f"""(() => {{ const e = document.querySelector('#start [name="{name}"]'); e.value = {value!r};
          e.dispatchEvent(new Event("input", {{bubbles: true}})); }})()""")
    browser.wait(f"document.getElementById('preview').innerText.includes({shows!r})", 120)
    browser.value("document.querySelector('button.main').click()")
    browser.wait("location.pathname.startsWith('/runs/')", 120)
    return str(browser.value("location.pathname.slice(6)"))


def to_its_result(browser: Browser, lab: ConsoleLab, pictures: pathlib.Path, name: str) -> str:
    """The page of an action follows by itself, until there is a result; what stands there."""
    browser.value("window.same = true")
    try:
        browser.wait("document.querySelector('a.main')", 900)
    except TimeoutError:
        raise AssertionError(lab.said()) from None
    assert browser.value("window.same") is True, "nobody has loaded it again"
    browser.value("document.querySelector('a.main').click()")
    browser.wait("location.pathname.startsWith('/results/') && document.querySelector('iframe.report')", 120)
    browser.picture(pictures / f"cluster-{name}.png", full=True)
    return str(browser.value(TEXT))


@browsers
def test_from_the_form_to_the_verdict_of_nccl_over_two_nodes(
    lab: ConsoleLab, rig: Kubernetes, ann: Browser, url: str, pictures: pathlib.Path
) -> None:
    fields = {"collective_operation": "all_reduce", "gpus": "1", "sizes": "8M:16M"}
    name = ask(ann, url, "mpirun", kind="collective", nodes=" ".join(rig.nodes), **fields)
    text = to_its_result(ann, lab, pictures, "nccl")
    assert "ACCEPTED" in text and "NOT ACCEPTED" not in text and "all_reduce_perf" in text, lab.said()
    assert lab.condition(name, "Accepted") == "True"
    run = lab.status(name)["runID"]
    journal = journals.of(lab.results / run)
    assert any(m["check"] == "member" for m in journal) and all(node in str(journal) for node in rig.nodes)
    ann.open(f"{url}/history?run={run}", "document.querySelector('#verdicts')")
    assert "nccl_fabric" in ann.value(TEXT), "it is found again in the history"


@browsers
def test_from_the_form_to_the_verdict_of_rdma(lab: ConsoleLab, rig: Kubernetes, ann: Browser, url: str, pictures: pathlib.Path) -> None:
    name = ask(ann, url, "ib_write_bw", kind="rdma", nodes=" ".join(rig.nodes), rdma_operation="write", device="mlx5_0", port="1")
    text = to_its_result(ann, lab, pictures, "rdma")
    assert "ACCEPTED" in text and "NOT ACCEPTED" not in text and "ib_write_bw" in text, lab.said()
    assert lab.condition(name, "Accepted") == "True"


@browsers
def test_two_people_at_once_and_one_of_them_may_no_longer(
    lab: ConsoleLab, rig: Kubernetes, ann: Browser, bob: Browser, url: str, pictures: pathlib.Path
) -> None:
    lab.plant(SLEEP=120)
    ann.open(f"{url}/runs", "document.querySelector('.live').innerText === 'live'", 120)
    ann.value("window.same = true")
    theirs = ask(bob, url, "all_reduce_perf", kind="collective", nodes=rig.nodes[0], collective_operation="all_reduce")
    token = bob.value("document.querySelector('form input[name=csrf]').value")
    ann.wait(f"{TEXT}.includes({theirs!r}) && {TEXT}.includes('system:serviceaccount:{lab.namespace}:bob')", 120)
    assert ann.value("window.same") is True, "what one asks for, the other sees"
    mine = ask(ann, url, "all_reduce_perf", kind="collective", nodes=rig.nodes[0], collective_operation="all_reduce")
    ann.wait(f"{TEXT}.includes({theirs!r})", 300)  # for whom it waits
    ann.picture(pictures / "cluster-waits.png")
    lab.admin.delete(f"{RBAC}/namespaces/{lab.namespace}/rolebindings/bob")
    until(lambda: bob.value("fetch('/api/v1/actions').then((r) => r.status)") == 403, 120)
    bob.wait(f"{TEXT}.includes('You do not have the right')", 300)
    sent = f"fetch('/runs/{theirs}', {{method: 'POST', body: new URLSearchParams({{do: 'cancel', csrf: {token!r}}})}})"
    assert bob.value(f"{sent}.then((r) => r.status)") == 403, "nor by the form that he still had"
    bob.picture(pictures / "cluster-no-right.png")
    assert not lab.action(theirs)["spec"].get("cancel") and not lab.action(mine)["spec"].get("cancel")
    # The other one still may, and cancels both: of the running one in the middle.
    until(lambda: lab.condition(theirs, "Running") == "True", 300, lab.said)
    for name in (mine, theirs):
        ann.open(f"{url}/cancel?name={name}", "document.querySelector('button.danger')")
        ann.value("document.querySelector('button.danger').click()")
        ann.wait(f"{TEXT}.includes('cancelled')", 300)
        ann.picture(pictures / f"cluster-cancelled-{name}.png")
    until(lambda: {lab.status(name)["phase"] for name in (mine, theirs)} == {actions.CANCELLED}, 300, lab.said)
    lab.nothing_left(300)


@browsers
def test_a_page_that_is_open_outlives_the_pods(lab: ConsoleLab, rig: Kubernetes, ann: Browser, url: str, pictures: pathlib.Path) -> None:
    lab.plant()
    ann.open(f"{url}/runs", "document.querySelector('.live').innerText === 'live'", 120)
    ann.value("window.same = true")
    for pod in lab.pods():
        lab.kill(pod["metadata"]["name"])
    ann.wait("document.querySelector('.live').classList.contains('off')", 300)
    ann.picture(pictures / "cluster-away.png")
    until(lambda: len(lab.ready()) == 2, 600, lab.said)
    ann.wait("document.querySelector('.live').innerText === 'live'", 300)
    lab.admin.post(cluster._path(lab.namespace), cluster._object("later", {"stages": {"nodes": rig.nodes, "names": ["stack"]}}, {}))
    ann.wait(f"{TEXT}.includes('later')", 120)
    assert ann.value("window.same") is True
    until(lambda: lab.condition("later", "Accepted") == "True", 600, lab.said)


def test_all_goes_but_the_data(lab: ConsoleLab) -> None:
    def there() -> list[str]:
        """But for what a database has beside it while it is open."""
        return sorted(path.name for path in lab.results.rglob("*") if not path.name.startswith("history.db-"))

    kept = there()
    assert "journal.jsonl.gz" in kept and "history.db" in kept
    assert lab.play("-e", "state=absent") == "changed=1"
    until(lambda: not lab.pods(), 300)
    assert there() == kept
    assert lab.admin.get(f"{lab.core}/persistentvolumeclaims/{NAME}")["status"]["phase"] == "Bound"
    lab.nothing_left()
