# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One stage of a run on the nodes behind one inventory host, on any plane on which a host stands for many nodes.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import live
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.answers import interpret, with_observations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.base import StageOnTarget
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import file_name
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import Check
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import facts_of, has_facts, node_file, readable


class StageBehindHost(StageOnTarget):
    """Runs a stage on every planned node behind its host. Each result is written to the journal as it arrives."""

    # Reason codes with which all nodes behind the host are lost. The host is not contacted again in this run.
    lost_codes: t.Collection[str] = ()

    def run(self) -> PlainData:
        if not self.planned:
            return {"skipped": True, "changed": False, "skip_reason": "not in the plan of this run"}
        if self.phase == "start":
            return {"skipped": True, "changed": False, "skip_reason": "its collection begins it"}
        self.checks_of: dict[str, list[Check]] = {}
        for check in self.planned:
            self.checks_of.setdefault(check[2], []).append(check)
        self.unanswered = set(self.checks_of)
        self.outcome_counts: dict[str, int] = {}
        # {subject: the identity of the node by what stands before it}.
        self.api_identities: dict[str, PlainData] = {}
        lost = self.acting.mailbox.lost(self.host)
        try:
            if lost:
                self.give_up({"lost": lost})
            else:
                with self.progress.pulsing(), live.answering(self.acting.mailbox, self.stage, self.last_output):
                    self.measure()
        except ReasonedError as error:
            if error.reason_code in self.lost_codes:
                self.acting.mailbox.lose(self.host, error.reason_code, error.reason)
                self.give_up({"lost": (error.reason_code, error.reason)})
            self.give_up(node_messages.refused(error.reason_code, error.reason))
        except ValueError as error:
            self.give_up({"failed": True, "msg": f"wrong arguments: {error}"})
        words = "; ".join(f"{reason} ({count})" for reason, count in sorted(self.outcome_counts.items(), key=lambda item: -item[1])[:10])
        return {"changed": False, "msg": f"{len(self.checks_of)} nodes: {words}"}

    def run_options(self) -> PlainData:
        """Return the option `run` for a probe that measures all at once, whatever the phase of the stage is."""
        return {**super().run_options(), "phase": "all"}

    def measure(self) -> None:
        """Measure the subjects in `unanswered`, and record each. Raise ReasonedError if no node can be measured."""
        raise NotImplementedError

    def last_output(self, subject: str) -> str | None:
        """Return what the tool on a node has printed last, None if this stage has no such node here. Raise ReasonedError if that cannot
        be had."""
        return None

    # Answers -----------------------------------------------------------------------------------------------------

    def _record(self, subject: str, result: NodeAnswer) -> None:
        self.record_all([(subject, result)])

    def record_all(self, answers: list[tuple[str, NodeAnswer]]) -> None:
        """Write results to the journal in one append. Every planned check of a subject gets a measurement."""
        measurements: list[PlainData] = []
        for subject, result in answers:
            identified = with_identity(result, self.api_identities.get(subject, {}))
            own_measurements = interpret(identified, self.completer, subject, self.checks_of.get(subject, []))
            measurements += own_measurements
            words = next((m["reason"] for m in own_measurements if m["reason"]), "measured")
            self.outcome_counts[words] = self.outcome_counts.get(words, 0) + 1
            self.unanswered.discard(subject)
        if measurements:
            self.keep(measurements)
            self.progress.add(measurements)

    def give_up(self, result: NodeAnswer) -> None:
        self.record_all([(subject, result) for subject in sorted(self.unanswered)])

    def keep_facts(self, measurements: list[PlainData]) -> None:
        """Write the facts of nodes without a sync for each of thousands of files. The journal has the same data and is synced."""
        for m in measurements:
            if has_facts(m):
                path = self.acting.dir / "nodes" / node_file(m["subject"]["id"])
                new = path.with_suffix(".new")
                new.write_text(readable(facts_of(m)), encoding="utf-8")
                new.rename(path)

    def _log_of(self, subject: str, who: str) -> pathlib.Path:
        """Return the file for what `who`, which measures a subject, prints besides its result."""
        folder = self.acting.dir / "raw" / file_name(subject)
        folder.mkdir(parents=True, exist_ok=True)
        attempt = max((item["attempt"] for item in self.planned.values() if item["subject"]["id"] == subject), default=1)
        return folder / f"{self.stage}-{who}-{attempt}.log"


def with_identity(result: NodeAnswer, api_identity: PlainData) -> NodeAnswer:
    """Return a node's result with the identity of the node, as the API or the like has it, added to the node's own in each observation."""

    def identity(context: PlainData) -> PlainData:
        own_identity = context.get("identity")
        return {"identity": {**(own_identity if isinstance(own_identity, dict) else {}), **api_identity}}

    return with_context(result, identity) if api_identity else result


def with_context(result: NodeAnswer, added: t.Callable[[PlainData], PlainData]) -> NodeAnswer:
    """Return a node's result with what `added` returns for the context of each observation added to that context."""

    def change(item: PlainData) -> PlainData:
        context = item.get("context", {})
        return {**item, "context": {**context, **added(context)}} if isinstance(context, dict) else item

    return with_observations(result, change)
