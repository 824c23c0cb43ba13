# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plane `kubernetes`: an inventory host is a cluster, its nodes are found through its API, and a stage is pods on them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry as accelerators
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import base
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes import operations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.devices import asks_for_devices
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.node_control import NodeControl
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlannedRun, Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import (
    ALONE,
    CLUSTER,
    GROUP,
    MANIFEST,
    ROUNDS,
    TOGETHER,
    Stage,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import Range

# Facts of a pod and not of its machine: limits, its view of processes and network, contents of the image, and what needs a login or a tool
# of the host. Without the host's files more facts are those of the image.
OF_A_POD = (
    "hostname", "ulimit_*", "sysctl_net.*", "nic_*", "gpu_processes", "clock_source", "clock_offset_s", "ofed", "container_*",
    "python", "package_*", "pip_freeze", "env_*", "conf_*", "proxy_*",
    *(fact for kind in accelerators.KINDS.values() for fact in kind.pod_facts),
)  # fmt: skip
OF_AN_IMAGE = (
    "os", "libibverbs", "free_disk_gib_*", *(fact for kind in accelerators.KINDS.values() for fact in kind.image_facts),
)  # fmt: skip


class Kubernetes(base.Plane):
    name = "kubernetes"
    connection_variables = frozenset(
        f"acceptance_kube_{name}" for name in ("kubeconfig", "context", "server", "token_file", "ca_file", "proxy", "no_proxy")
    )

    variables = ("acceptance_kube_", "acceptance_nodes", "acceptance_node_vars")
    ranges: t.Mapping[str, Range] = {"acceptance_kube_metrics_port": Range(0, 65535)}
    hidden = ("acceptance_kube_env",)
    partly_hidden = ("acceptance_kube_pod_patch",)  # fields of pods may be an environment
    nodes_behind = True
    lends_devices = True
    operations = operations.OPERATIONS
    console_role = "gpufleet.acceptance.console"

    def subjects(self, host: str, settings: Variables) -> base.Subjects:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import inventory

        names, notes, uids = inventory.subjects(host, settings)
        return base.Subjects([f"{host}/{name}" for name in names], notes, {f"{host}/{name}": uid for name, uid in uids.items()})

    def reachability_domain(self, host: str) -> str:
        return host

    def select(self, host: str, settings: Variables, entry: t.Mapping[str, t.Any]) -> list[str]:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import inventory

        return [f"{host}/{name}" for name in inventory.select(host, settings, entry)]

    def problem(self, host: str, settings: Variables, stages: t.Sequence[Stage]) -> str | None:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import client
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings as of_variables

        # A manifest and a stage for a whole cluster name their own images.
        needs_image = any(stage.topology not in (MANIFEST, CLUSTER) for stage in stages)
        image = {} if needs_image else {f"{of_variables.PREFIX}image": "their own"}
        try:
            of_variables.pods({**settings, **image})
            client.require_kubeconfig(of_variables.connection(host, settings))
        except client.KubeError as error:
            return error.reason
        return None

    def manifest_problem(self, manifest: t.Any) -> str | None:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import manifests

        return manifests.problem(manifest)

    def chosen(self, nodes: t.Sequence[str]) -> Variables:
        return {"acceptance_nodes": {"names": list(nodes), "expected": list(nodes)}}

    def chosen_by(self, variables: t.Mapping[str, t.Any]) -> list[str]:
        return list(variables["acceptance_nodes"]["names"]) if "acceptance_nodes" in variables else []

    def placed(self, namespace: str, image: str) -> Variables:
        values = {"acceptance_kube_namespace": namespace, "acceptance_kube_image": image}
        return {name: value for name, value in values.items() if value}

    def own_facts(self, settings: Variables) -> t.Sequence[str]:
        return OF_A_POD if settings.get("acceptance_kube_host_root") else (*OF_A_POD, *OF_AN_IMAGE)

    def why_not_detachable(self, host: str, settings: Variables, stages: t.Sequence[Stage]) -> str | None:
        for stage in stages:
            if stage.topology != ALONE:
                kind = "is a manifest" if stage.topology == MANIFEST else "runs between nodes"
                return f"stage {stage.name} {kind} and needs its controller; leave it out, by --skip-tags for example"
        launcher = settings["acceptance_kube_launcher"]
        if launcher != "pods":
            return f"{host}: found acceptance_kube_launcher {launcher!r}, expected 'pods'"
        if settings["acceptance_kube_keep"] != "never":
            return f"{host}: pods that acceptance_kube_keep keeps would hold their devices until collected"
        together = [stage.name for stage in stages if not asks_for_devices(stage, settings)]
        if together and len(stages) > 1:
            return (
                f"the pods of stage {together[0]} ask for no devices, so nothing would keep them from running beside those of the other "
                f"stages; detach one of them at a time, --tags {together[0]} for example"
            )
        return None

    def notes(self, host: str, settings: Variables, stages: t.Collection[str]) -> list[str]:
        none = sorted(set(settings.get("acceptance_kube_gpu_stages") or ()) - set(stages))
        return [f"{host}: acceptance_kube_gpu_stages: no stage of this run: {', '.join(none)}"] if none else []

    def preflight(self, host: str, settings: Variables, stages: t.Sequence[Stage]) -> list[str]:
        if any(stage.topology == ALONE for stage in stages):
            self._try_pod(host, settings)
        return [line for stage in stages if stage.topology == CLUSTER for line in stage.foreseen(host, settings)]

    @staticmethod
    def _try_pod(host: str, settings: Variables) -> None:
        """Let the API server check a pod of a run, which it does not create. Raise RunError if it refuses the pod."""
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup, client
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings as of_variables
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects

        try:
            api = client.connect(of_variables.connection(host, settings))
            pods = of_variables.pods(settings)
            launch = objects.Launch("20000101T000000Z-000000", "check", api.namespace, 60.0, host)
            launch.own({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gpufleet-check", "uid": launch.run_id}})
            pod = launch.pod("gpufleet-check", 0, pods, devices=1)
            api.post(cleanup.path("/api/v1", api.namespace, "pods"), pod, dryRun="All", **objects.STRICT)
        except client.KubeError as error:
            if error.reason_code != "cluster_unreachable":
                raise RunError(f"{error.reason}; a run would get no pod: tried without creating it") from error

    def node_control(self, host: str, variable: t.Callable[[str], t.Any]) -> NodeControl:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import client, control
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings as of_variables

        variables = {name: variable(name) for name in self.connection_variables}
        try:
            return control.KubeControl(client.connect(of_variables.connection(host, variables)))
        except client.KubeError as error:
            raise RunError(error.reason) from error

    def on(self, action: t.Any, planned: PlannedRun, task_vars: Variables) -> base.StageOnTarget:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.stages import (
            beginning,
            group,
            manifest,
            nodes,
            rounds,
        )

        how: dict[str, type[nodes.StageOnCluster]] = {
            ALONE: nodes.StageOnCluster,
            ROUNDS: rounds.RoundsOnCluster,
            TOGETHER: beginning.BeginningOnCluster,
            GROUP: group.GroupsOnCluster,
            MANIFEST: manifest.ManifestOnCluster,
        }
        stage = registry.of(task_vars["acceptance_stage"])
        on_cluster = stage.on_cluster() if stage.topology == CLUSTER else how[stage.topology]
        return on_cluster(action, planned, task_vars, self.name)


PLANE = Kubernetes()
