# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the cases of GPU sharing on one cluster, one after the other. Each is written to the journal when it is over.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import gzip
import pathlib
import time

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import access, cleanup, inventory
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError, connect
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.cleanup_guard import cleanup_guard
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.stages.nodes import StageOnCluster
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import file_name
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, TodoItem, Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import (
    baseline,
    conclusion,
    engine,
    preflight,
    running,
    settled,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cases import Case
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.kubernetes import installed
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.kubernetes.case_pods import Options, SharingCluster

# Rights in the namespace of the cases' pods. files/rbac/sharing.yaml has the same, sharing-system.yaml those in the system's namespace.
RIGHTS: tuple[access.Right, ...] = (
    *((verb, "", "pods", "") for verb in ("create", "get", "list", "patch", "deletecollection")),
    ("get", "", "pods", "log"),
    *((verb, "", "configmaps", "") for verb in ("create", "get", "list", "deletecollection")),
)
JOBS: tuple[access.Right, ...] = tuple((verb, "batch", "jobs", "") for verb in ("create", "get", "list", "deletecollection"))


class SharingOnCluster(StageOnCluster):
    """Runs every planned case on the cluster."""

    def measure(self) -> None:
        settings = settled.settings_of(self.settings)
        items = {item["check"]: item for item in self.planned.values()}
        todo = [case for case in settings.cases if case.check in items]
        client = connect(of_variables.connection(self.host, self.settings))
        access.require(client, [*RIGHTS, *(JOBS if settings.destructive else ())], access.NODES)
        for line in cleanup.janitor(client, self.acting.id, self.stage):
            Display().display(line)
        pods = of_variables.pods({**self.settings, f"{of_variables.PREFIX}image": settings.image})
        options = Options(settings.image, pods, settings.deadline_s, settings.guardian)
        cluster = SharingCluster(client, settings.system, self.acting.id, self.stage, options)
        self.installed = self._preflight(client, cluster, settings)
        settings = settled.settings_of(self.settings, self.installed["gpus"])
        self.baseline = baseline.load(settings.baseline, self.acting.dir.parent, self.acting.id)
        with cleanup_guard(cluster, self.controller, f"{self.host}: run {self.acting.id}"):
            cluster.open()
            for case in todo:
                self._run_case(case, items[case.check], settings, cluster)

    def _preflight(self, client: Client, cluster: SharingCluster, settings: settled.Settled) -> PlainData:
        """Return the table of the preflight for the report, and show it. Raise KubeError if it refuses the run; nothing was created yet."""
        facts = installed.facts(client, cluster, settings, inventory.selection_of(self.host, self.settings))
        table = preflight.rows(settings.system, facts)
        lines = preflight.text(table)
        for line in lines:
            Display().display(f"{self.host}: {line}")
        keeper(self.acting.dir / self.stage / file_name(self.host))("preflight.txt", "".join(f"{line}\n" for line in lines))
        if refused := preflight.refusal(table):
            raise KubeError("preflight", f"{self.host}: {refused}")
        images = preflight.images(facts)
        commit = str(self.settings.get(f"{settled.PREFIX}commit") or "") or preflight.commit(images)
        return {"preflight": [row.cells for row in table], "gpus": facts.products, "images": images, "commit": commit}

    def _run_case(self, case: Case, item: TodoItem, settings: settled.Settled, cluster: SharingCluster) -> None:
        """Run one case and write its result to the journal. An error of the cluster affects this case only, unless the cluster is lost."""
        began, started_at = time.monotonic(), observation.utc()
        folder = self.acting.dir / self.stage / file_name(self.host) / case.suite / case.id
        if item["attempt"] > 1:
            folder /= f"attempt-{item['attempt']}"
        outcome = conclusion.beforehand(case, settings.system, settings.cluster, settings.destructive, settings.nodes)
        context = {
            "cluster": settings.cluster, "scale": settings.parameters.scale, "system": settings.system.name, "image": settings.image,
            "artifacts": str(folder.relative_to(self.acting.dir)), **self.installed,
        }  # fmt: skip
        Display().display(f"{self.host}: {case.id}: {case.title}")
        if outcome is None:
            try:
                run = engine.CaseRun(
                    case, settings.system, settings.parameters, cluster, keeper(folder), settings.nodes, settings.prometheus
                )
                outcome = conclusion.conclude(case, run.run(), self._against(case, context, item["variant"], settings))
            except KubeError:
                raise
            except ReasonedError as error:
                if error.reason_code in ("cluster_unreachable", "credentials"):
                    raise KubeError(error.reason_code, error.reason) from None
                outcome = conclusion.Conclusion(conclusion.UNKNOWN, error.reason, error.reason_code)
        record = conclusion.observed(outcome, case, item["subject"], context, started_at, time.monotonic() - began, item["variant"])
        Display().display(f"{self.host}: {case.id}: {outcome.status}: {outcome.cause[:300]}")
        self.keep([self.completer.complete(record)])

    def _against(self, case: Case, context: PlainData, variant: str, settings: settled.Settled) -> conclusion.Against:
        """Return the function that compares the metrics of a case with the baseline."""
        entry, numbers = self.baseline.get(f"{self.host} {case.id}"), settings.parameters
        return lambda measured, simulated: baseline.expressions(
            case, measured, entry, baseline.comparison_key(context, variant, simulated), numbers.scale, numbers.numbers
        )


def foreseen(host: str, settings: Variables) -> list[str]:
    """Return the preflight of a run as lines of text, without creating anything."""
    try:
        sharing = settled.settings_of(settings)
        client = connect(of_variables.connection(host, settings))
        pods = of_variables.pods({**settings, f"{of_variables.PREFIX}image": sharing.image})
        options = Options(sharing.image, pods, sharing.deadline_s, sharing.guardian)
        cluster = SharingCluster(client, sharing.system, "", "gpu_sharing", options)
        table = preflight.rows(sharing.system, installed.facts(client, cluster, sharing, inventory.selection_of(host, settings)))
    except KubeError as error:
        return [f"{host}: {error.reason}"]
    refused = preflight.refusal(table)
    return [f"{host}: {line}" for line in preflight.text(table)] + ([f"{host}: REFUSED: {refused}"] if refused else [])


def keeper(folder: pathlib.Path) -> running.Store:
    begun: set[str] = set()

    def keep(name: str, text: str) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(running.PACKED):  # a member of its own, so that what a kill leaves can be read
            with open(path, "ab" if name in begun else "wb") as file:  # what is there before is of an attempt that was killed
                file.write(gzip.compress(text.encode()))
            begun.add(name)
        else:
            path.write_text(text, encoding="utf-8")

    return keep
