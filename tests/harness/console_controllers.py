# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controllers of a cluster's console as processes of this machine, which can be killed with all that they have begun, as where a pod is."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

import yaml
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions, cluster
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError
from harness.fleet_runs import ROOT
from harness.kube_runs import TOOLS, KubeRuns
from harness.namespace import roles
from rigs.kubernetes.kubernetes import Kubernetes

FILES = ROOT / "files/console"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MARK = "GPUFLEET_CONSOLE_TEST"
LEAD = """
import json, sys
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import worker
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Connection
given = json.loads(sys.argv[1])
worker.lead(*given["places"], Connection(**given["connection"]), selector=given["selector"], most=3)
"""


class Console(KubeRuns):
    """A namespace, the resource, and controllers that may what files/console/rbac.yaml says."""

    def __init__(self, rig: Kubernetes, folder: pathlib.Path, **variables: t.Any) -> None:
        super().__init__(rig, folder, "probe")
        self.permit([*roles("probe"), *(yaml.safe_load((FILES / f"{name}.yaml").read_text()) for name in ("rbac", "reviews"))])
        crd = yaml.safe_load((FILES / "crd.yaml").read_text())
        self.crd = f"{CRDS}/{crd['metadata']['name']}"
        self.admin.post(CRDS, crd, fieldValidation="Strict")
        self.wait(self.served)
        self.path = cluster._path(self.namespace)
        lab = {
            "acceptance_plane": "kubernetes", "acceptance_kube_kubeconfig": self.kubeconfig, "acceptance_kube_image": rig.image,
            "acceptance_kube_start_timeout": 120, "acceptance_gpu_count": 8, "acceptance_simulated": True, **TOOLS, **variables,
        }  # fmt: skip
        (folder / "inventory.json").write_text(json.dumps({"all": {"hosts": {"lab": lab}}}))
        self.token = f"{os.getpid()}.{time.monotonic_ns()}"
        self.controllers: list[subprocess.Popen[bytes]] = []

    def served(self) -> bool:
        conditions = self.admin.get(self.crd).get("status", {}).get("conditions") or []
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    def wait(self, true: t.Callable[[], t.Any], seconds: float = 500) -> None:
        end = time.monotonic() + seconds
        while not true():
            if time.monotonic() > end:
                log = self.folder / "controller.log"
                raise AssertionError((log.read_text()[-4000:] if log.exists() else "") + json.dumps(self.statuses(), indent=1)[-6000:])
            time.sleep(0.3)

    def start(self) -> subprocess.Popen[bytes]:
        given = {
            "places": [str(self.folder / "console"), str(self.folder / "inventory.json"), str(self.folder / "results")],
            "connection": {"name": "lab", "kubeconfig": self.kubeconfig, "namespace": self.namespace},
            "selector": "!type",  # not those that exist in the API only
        }
        path = os.pathsep.join([str(ROOT / ".collections"), os.environ.get("PYTHONPATH", "")])
        with open(self.folder / "controller.log", "ab") as log:
            found = subprocess.Popen(
                [sys.executable, "-c", LEAD, json.dumps(given)], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, MARK: self.token, "PYTHONPATH": path},
            )  # fmt: skip
        self.controllers.append(found)
        return found

    def kill_all(self) -> None:
        """kill -9 to all controllers and all that they have begun, as where a pod is killed."""
        for one in self.controllers:
            one.kill()
            one.wait()
        self.controllers.clear()
        for pid, _started in process.with_environment(MARK, self.token):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        self.kill_all()
        for item in self.admin.get(self.path)["items"]:
            if not item["metadata"].get("finalizers"):
                continue
            with contextlib.suppress(KubeError):
                self.admin.patch(f"{self.path}/{item['metadata']['name']}", {"metadata": {"finalizers": []}})
        self.admin.delete(self.crd)
        self.wait(self.gone)

    def gone(self) -> bool:
        try:
            self.admin.get(self.crd)
        except KubeError as error:
            return error.status == 404
        return False

    def make(self, name: str, spec: dict[str, t.Any], **query: t.Any) -> dict[str, t.Any]:
        return self.admin.post(self.path, cluster._object(name, spec, {}), **query)

    def statuses(self) -> dict[str, dict[str, t.Any]]:
        return {item["metadata"]["name"]: item.get("status") or {} for item in self.admin.get(self.path)["items"]}

    def runs(self) -> set[str]:
        results = self.folder / "results"
        return {path.name for path in results.iterdir() if path.is_dir()} if results.exists() else set()

    def wrong(self, wanted: t.Mapping[str, str]) -> list[str]:
        """What is not as it should be, where of each of these actions, which have all ended, exactly one run was to be judged exactly once,
        with this verdict. Others that have not begun may be there."""
        results, runs = self.folder / "results", self.runs()
        found = {name: of for name, of in self.statuses().items() if of.get("runID")}
        said = [f"{name}: nothing was measured" for name in wanted.keys() - found.keys()]
        said += [f"{name}: measured and not wanted" for name in found.keys() - wanted.keys()]
        said += [f"run {run}: nobody's" for run in runs - {of["runID"] for of in found.values()}]
        if len({of["runID"] for of in found.values()}) < len(found):
            said.append("two actions have the same run")
        for name in sorted(wanted.keys() & found.keys()):
            of = found[name]
            accepted = "True" if wanted[name] == actions.ACCEPTED else "False"
            expected = {"Admitted": "True", "Running": "False", "Finished": "True", "Accepted": accepted}
            stated = {one["type"]: one["status"] for one in of["conditions"]}
            if of["verdict"] != wanted[name] or stated != expected:
                said.append(f"{name}: {of['verdict']}, {stated}, expected {wanted[name]}: {of.get('message')}")
            if of["runID"] not in runs or (results / of["runID"] / "judged").exists():
                said.append(f"{name}: run {of['runID']} is not there, or was judged twice")
            if not of["completionTime"] >= of["startTime"] or not of["counts"]:
                said.append(f"{name}: {of}")
        return said
