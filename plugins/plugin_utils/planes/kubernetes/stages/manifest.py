# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stage of a team's own on the nodes of one cluster: a manifest, judged by its exit status or by its output.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import access, manifests
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.cleanup_guard import cleanup_guard
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.manifest import LAUNCHER, ManifestProbe
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.stages.nodes import StageOnCluster
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeWork
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.manifest import Manifest


class ManifestOnCluster(StageOnCluster):
    """Runs the manifest on every planned node of the cluster."""

    def measure(self) -> None:
        manifest = t.cast(Manifest, self.description).manifest
        image = {f"{of_variables.PREFIX}image": manifests.image(manifest)}
        pods = of_variables.pods({**self.settings, **image})
        client = self._begin([*access.PROBE, *access.LAUNCHERS[LAUNCHER[manifest["kind"]]]], pods)
        node_requests = self._node_requests(client, pods)
        if not node_requests:
            return
        checks = {item.node: [(c["check"], c["variant"]) for c in item.request["params"]["checks"]] for item in node_requests}
        timeout = float(self.settings[f"{self.stage}_timeout"])
        probe = ManifestProbe(client, pods, self.acting.id, self.stage, timeout, manifest, checks, self._raw)
        with cleanup_guard(probe, self.controller, f"{self.host}: run {self.acting.id}"):
            for answers in probe.run(node_requests):
                self.record_all([self._result(answer, probe.settings) for answer in answers])

    def node_request(self, checks: t.Iterable[tuple[str, str]], pods: of_variables.PodSettings) -> NodeWork:
        """Return the checks of a node. The manifest's pod gets no request."""
        return {"probe": "", "params": {"checks": [{"check": check, "variant": variant} for check, variant in checks]}}
