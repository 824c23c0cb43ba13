# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU-sharing matrix over two real control planes: the smoke test, and a case of each kind."""

from __future__ import annotations

import json
import pathlib
import subprocess
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import leases
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError, connect
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import system as description
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.kubernetes.case_pods import Options, SharingCluster
from harness import journals
from harness.fleet_runs import latest, run_folder
from harness.sharing import Clusters
from rigs.prometheus.prometheus import Prometheus
from rigs.sharing.sharing import Sharing

pytestmark = [pytest.mark.kubernetes(own=True)]
ROOT = pathlib.Path(__file__).resolve().parents[2]
# Beside the smoke test: a quota that changes, processes over rounds, a restart, and one that is for the other cluster alone.
CASES = ["FUNC-001", "FUNC-007", "COMBO-003", "MET-001", "FUNC-010", "LEAK-002", "FAIL-001", "PERF-005"]
RUN_LIMIT_S = 900
RULES = ROOT / "roles/gpu_sharing/files/rules/nvshare.yml"
NVIDIA, REPLICAS = "/apis/apps/v1/namespaces/kube-system/daemonsets/nvidia-device-plugin-daemonset", 4
PLAYBOOK = [str(ROOT / ".venv/bin/ansible-playbook"), "playbooks/gpu_sharing.yml"]


def ran(command: list[str], results: pathlib.Path) -> pathlib.Path:
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_LIMIT_S)
    folder = run_folder(results)
    assert folder is not None, done.stdout[-4000:] + done.stderr
    return folder


@pytest.fixture
def sliced(rig_sharing: Clusters) -> t.Iterator[Sharing]:
    """The first cluster with NVIDIA's device plugin offering each GPU four times. The GPUs are the stand-in's: pods run on
    them, and so does the plugin of the other system, which holds two parts of each node."""
    system = rig_sharing.c1
    before = system.cluster.api.request("GET", NVIDIA)
    container = {"name": "nvidia-device-plugin-ctr", "env": [
        {"name": "VIRTUAL_DEVICES", "value": str(REPLICAS)},
        {"name": "SETTINGS", "value": "PYTHONPATH=/var/run/nvshare/lib PYTHONDONTWRITEBYTECODE=1"},
        {"name": "MOUNTS", "value": "/var/run/nvshare:/var/run/nvshare"},
    ]}  # fmt: skip
    change = {"spec": {"template": {"spec": {"containers": [container]}}}}
    system.cluster.api.request("PATCH", NVIDIA, change, "application/strategic-merge-patch+json")
    offers(system, REPLICAS * system.model.gpus)
    yield system
    gone = [{**one, "$patch": "delete"} for one in container["env"]]
    change = {"spec": {"template": {"spec": {"containers": [{**container, "env": gone}]}}}}
    system.cluster.api.request("PATCH", NVIDIA, change, "application/strategic-merge-patch+json")
    offers(system, system.model.gpus)
    assert system.cluster.api.request("GET", NVIDIA)["spec"]["template"] == before["spec"]["template"]
    system.ready()


def offers(system: Sharing, wanted: int) -> None:
    nodes = system.cluster.nodes
    system.wait(f"{wanted} GPUs of each node", lambda: all(system.offered(node, "nvidia.com/gpu") == wanted for node in nodes))


def test_a_system_that_is_not_installed_as_expected_is_refused_before_anything_is_made(
    rig_sharing: Clusters, tmp_path: pathlib.Path
) -> None:
    changes = {
        "gpu_sharing_system_changes": {"devices_per_gpu": 7}, "gpu_sharing_drain_node": "kube-09", "gpu_sharing_destructive": True,
        "gpu_sharing_guardian": "nobody",
    }  # fmt: skip
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps(rig_sharing.inventory(**changes)))
    extra = {"acceptance_results_dir": str(tmp_path / "results"), "cases": ["MET-001", "FAIL-003"], "scale": 0.01}
    command = [*PLAYBOOK, "-i", str(inventory), "-e", json.dumps(extra)]
    foreseen = subprocess.run([*command, "--check"], cwd=ROOT, capture_output=True, text=True, timeout=RUN_LIMIT_S).stdout
    assert "REFUSED: parts of GPUs (nvshare.com/gpu): found kube-01 offers 20 with 2 GPUs" in foreseen, foreseen
    assert "gpu_sharing_drain_node: found kube-09, expected a node of the plan with shared GPUs" in foreseen
    assert f"gpu_sharing_guardian: found service account {rig_sharing.namespace}/nobody: its pod is refused" in foreseen
    (without,) = [line for line in foreseen.splitlines() if "REFUSED" in line and "lab-c1" in line]
    assert "serviceaccount \"nobody\" not found" in without and "make it as files/rbac/README.md says" in without, without
    for row in ("schedulers (nvshare-scheduler)", "NVSHARE_METRICS_ENABLE", "NVSHARE_DEFAULT_GPU_MEMORY_GB", "hostPID", "NVSHARE_DEBUG"):
        assert row in foreseen
    assert not list((tmp_path / "results").glob("*"))
    folder = ran(command, tmp_path / "results")
    found = latest(folder)
    assert [(v["verdict"], v["reason_code"]) for v in found] == [("UNKNOWN", "preflight")] * 4
    assert all("expected 7 of each GPU" in v["reason"] for v in found)
    table = (folder / "gpu_sharing" / "lab-c2" / "preflight.txt").read_text()
    assert "NVIDIA-A800" in table and "refuses the run" in table
    for system in rig_sharing.both.values():
        assert not ours(system, rig_sharing.namespace)


def ours(system: Sharing, namespace: str) -> list[t.Any]:
    """Return the objects that a run has left in a cluster."""
    kinds = (("api/v1", "pods"), ("api/v1", "configmaps"), ("apis/batch/v1", "jobs"))
    items = [item for api, kind in kinds for item in system.cluster.api.items(f"/{api}/namespaces/{namespace}/{kind}")]
    left = [item for item in items if "gpufleet.acceptance/run-id" in (item["metadata"].get("labels") or {})]
    return left + system.cluster.api.items("/apis/coordination.k8s.io/v1/namespaces/nvshare-system/leases")


def test_time_slicing_is_held_to_what_it_can_do(sliced: Sharing, rig_sharing: Clusters, tmp_path: pathlib.Path) -> None:
    results = tmp_path / "results"
    own = {"gpu_sharing_system": "time_slicing", "gpu_sharing_system_changes": {"devices_per_gpu": REPLICAS}}
    more = {"gpu_sharing_destructive": True, "gpu_sharing_parameters": {"scale_set": [2, 4]}}
    inventory = rig_sharing.inventory(**own, **more)
    del inventory["all"]["hosts"]["lab-c2"]
    file = tmp_path / "inventory.json"
    file.write_text(json.dumps(inventory))
    passing = ["FUNC-001", "FUNC-003", "FUNC-004", "PERF-001", "PERF-008", "FAIL-002"]
    extra = {"acceptance_results_dir": str(results), "cases": [*passing, "FUNC-008", "MET-001", "LEAK-001"], "scale": 0.004}
    folder = ran([*PLAYBOOK, "-i", str(file), "-e", json.dumps(extra)], results)
    found = {v["check"].upper().replace("_", "-"): v for v in latest(folder)}
    # A busy machine starts pods so late that nothing can be said of a cliff.
    unproven = {case for case, v in found.items() if case == "PERF-008" and "the time in which no pod worked" in v["reason"]}
    expected = {case: "UNKNOWN" if case in unproven else "PASS" if case in passing else "SKIPPED" for case in found}
    wrong = {case: v["reason"] for case, v in found.items() if v["verdict"] != expected[case]}
    assert not wrong and len(found) == len(passing) + 3
    assert all("system time_slicing has no" in v["reason"] for case, v in found.items() if case not in passing)


def test_a_cordon_is_given_back_at_its_deadline_by_nobody_but_its_guardian(rig_sharing: Clusters) -> None:
    cluster = rig_sharing.c1.cluster
    variables = {"acceptance_kube_kubeconfig": str(cluster.kubeconfig), "acceptance_kube_namespace": rig_sharing.namespace}
    client = connect(of_variables.connection("lab", variables))
    pods = of_variables.pods({"acceptance_kube_image": cluster.image})
    node = cluster.nodes[-1]

    def marked() -> bool:
        found = cluster.api.request("GET", f"/api/v1/nodes/{node}")
        return bool(found["spec"].get("unschedulable")) or leases.CORDONED in found["metadata"]["labels"]

    def holder(account: str, run_id: str = "20260101T000000Z-0a1b2c") -> SharingCluster:
        options = Options(cluster.image, pods, 8, account)
        made = SharingCluster(client, description.load("nvshare"), run_id, "gpu_sharing", options)
        made.open()
        return made

    # Who may not give back is no guardian, and then there is nothing to give back.
    for account in ("default", "nobody"):
        refused = holder(account)
        with pytest.raises(ReasonedError, match=f"node {node} is not cordoned: if this run is killed, nothing would uncordon it"):
            refused.drain(node, 10)
        assert not marked()
        refused.clean()
    held = holder("gpufleet-acceptance-sharing-guardian")
    with pytest.raises(KubeError, match=r"run 20260101T000000Z-0a1b2c tests the system in namespace nvshare-system already"):
        holder("", "20260101T000000Z-3d4e5f")
    assert held.drain(node, 10) is None and marked()
    # The controller does nothing any more.
    rig_sharing.c1.wait("the end of the cordon", lambda: not marked())
    assert not held.clean() and not ours(rig_sharing.c1, rig_sharing.namespace)
    # One that is given back in time is not guarded any longer.
    held = holder("gpufleet-acceptance-sharing-guardian")
    held.drain(node, 10)
    assert held.uncordon(node) and not marked()
    assert not held.clean() and not ours(rig_sharing.c1, rig_sharing.namespace)


def test_a_prometheus_that_reads_the_schedulers_says_whether_alerts_would_be_raised(rig_sharing: Clusters, tmp_path: pathlib.Path) -> None:
    cluster = rig_sharing.c1.cluster
    pki = cluster.pki
    (tmp_path / "prometheus").mkdir()
    jobs = [
        {
            "job_name": name, "scheme": "https", "metrics_path": f"{rig_sharing.c1.pods}/{name}:9402/proxy/metrics",
            # As a usual scrape of pods: labels of the target go before those of its series, which are renamed.
            "static_configs": [{
                "targets": [cluster.server.partition("//")[2]], "labels": {"namespace": "nvshare-system", "pod": name},
            }],
            "tls_config": {"ca_file": f"{pki}/ca.crt", "cert_file": f"{pki}/admin.crt", "key_file": f"{pki}/admin.key"},
        }
        for name in rig_sharing.c1.schedulers()
    ]  # fmt: skip

    def judged(number: int, wait_s: int) -> tuple[str, dict[str, t.Any]]:
        """MET-008 as it was judged: its verdict, and what became of each assertion."""
        given = rig_sharing.inventory(gpu_sharing_prometheus=prometheus.url, gpu_sharing_parameters={"alert_timeout_s": wait_s})
        del given["all"]["hosts"]["lab-c2"]
        inventory, results = tmp_path / f"inventory-{number}.json", tmp_path / f"results-{number}"
        inventory.write_text(json.dumps(given))
        extra = {"acceptance_results_dir": str(results), "cases": ["MET-008"], "scale": 0.01}
        folder = ran([*PLAYBOOK, "-i", str(inventory), "-e", json.dumps(extra)], results)
        (verdict,), (line,) = latest(folder), journals.of(folder)
        return verdict["verdict"], {one["that"]: one["holds"] for one in line["context"]["case"]["expressions"]}

    with Prometheus(tmp_path / "prometheus", {}, [RULES], more=jobs) as prometheus:
        prometheus.until("gpu_sharing:memory_used:ratio")
        verdict, held = judged(1, 30)
        assert verdict == "PASS" and held["done(full_alert)"] is held["done(throttle_alert)"] is True, held
        # The rules say so themselves; the alert for a full GPU has to hold for minutes.
        prometheus.until('ALERTS{alertname="GpuSharingThrottled", alertstate="firing", exported_pod=~"xpm-met-008-slow-.*"}')
        assert prometheus.query('max_over_time(gpu_sharing:memory_used:ratio[5m]) > 0.9')
        # A minute later the average still holds for the pod that is gone, and is no proof for one that has its name.
        with rig_sharing.defect("throttled_never", ["c1"]):
            verdict, held = judged(2, 12)
        assert verdict == "FAIL" and (held["done(full_alert)"], held["done(throttle_alert)"]) == (True, False), held


def test_cases_of_each_kind_pass_on_both_clusters_and_leave_nothing(rig_sharing: Clusters, tmp_path: pathlib.Path) -> None:
    results = tmp_path / "results"
    inventory = tmp_path / "inventory.json"
    given = rig_sharing.inventory(gpu_sharing_destructive=True)
    # As long as those of the slower GPUs, beside which other pods start in time too.
    given["all"]["hosts"]["lab-c2"]["gpu_sharing_parameters"]["beside_scale"] = 0.12
    inventory.write_text(json.dumps(given))
    extra = {"acceptance_results_dir": str(results), "cases": CASES, "scale": 0.004}
    command = [*PLAYBOOK, "-i", str(inventory), "-e", json.dumps(extra)]
    folder = ran(command, results)
    found = {(v["subject"]["id"], v["check"].upper().replace("_", "-")): v for v in latest(folder)}
    expected = {(f"gpu_sharing/lab-{c}", case): "PASS" for c in ("c1", "c2") for case in CASES}
    expected["gpu_sharing/lab-c2", "PERF-005"] = "SKIPPED"
    wrong = {key: v["reason"] for key, v in found.items() if v["verdict"] != expected.get(key)}
    assert not wrong and set(found) == set(expected)
    assert all(v["simulated"] for v in found.values() if v["verdict"] == "PASS")
    # It is written as a report and as an archive; P2 is not proven by what was shortened.
    gates, cases, installed = json.loads((folder / "report.json").read_text())["sections"]
    assert [row[:2] for row in gates["rows"]] == [["P0", "not proven"], ["P1", "not proven"], ["P2", "not proven"]]
    assert len(cases["rows"]) == 2 * len(CASES)
    assert {row[0] for row in installed["rows"]} == {"lab-c1", "lab-c2"} and {row[4] for row in installed["rows"]} == {"ok", "noted"}
    summary = (folder / "gpu_sharing" / "case-summary.tsv").read_text().splitlines()
    assert len(summary) == 1 + 2 * len(CASES)
    kept = folder / "gpu_sharing" / "lab-c1" / "combination" / "COMBO-003"
    wanted = {"metrics_baseline.txt", "metrics_mid.txt", "metrics.txt", "scheduler.log", "scheduler_proc.txt", "pods", "result.json"}
    assert wanted <= {path.name for path in kept.iterdir()}
    for system in rig_sharing.both.values():
        assert not ours(system, rig_sharing.namespace)
