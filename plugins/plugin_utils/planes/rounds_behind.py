# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stage in which the nodes behind one inventory host walk timetables, on any plane on which a host stands for many nodes.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.behind import StageBehindHost
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import TIMETABLE, nothing_asked


class RoundsBehindHost(StageBehindHost):
    """Runs the timetable of every node behind its host. The client of a pair reports the result of the pair."""

    def begin(self, args: PlainData) -> bool:
        """Read the stage's work. Return False if it has the answer of all nodes, which is recorded then. `args`: the module's arguments."""
        # (reason code, reason) of each node without a timetable's result.
        self.refused: dict[str, tuple[str, str]] = {}
        # The tests in which each node is the client: {subject id: {(check, variant, subject id of the pair)}}.
        self.asks: dict[str, set[tuple[str, str, str]]] = {}
        if self.work.answer is not None:
            self.record_all([(subject, self.work.answer.copy()) for subject in sorted(self.unanswered)])
            return False
        self.timetables = self.work.per_node
        self.kinds: list[PlainData] = args.get("kinds") or []
        return True

    def nodes(self) -> dict[str, str]:
        """Return {subject id: name} of the planned nodes."""
        nodes = sorted(item["subject"]["id"] for item in self.planned.values() if item["subject"]["kind"] == "node")
        return {subject: subject.partition("/")[2] for subject in nodes}

    def walkers(self, refused: t.Mapping[str, tuple[str, str]]) -> list[str]:
        """Return the names of the nodes that have a timetable to walk. Record results at once for nodes without one, for nodes that are
        `refused`, {name: (reason code, reason)}, and for tests of which the plan knows that an end has no port."""
        walkers: list[str] = []
        answered: list[tuple[str, NodeAnswer]] = []
        absent: dict[str, list[PlainData]] = {}
        for subject, name in self.nodes().items():
            timetable = self.timetables.get(subject) or {"rounds": [], "absent": []}
            for pair in timetable["absent"]:
                absent.setdefault(pair["subject"]["id"], []).append(_missing(pair))
            if name in refused:
                answered.append((subject, node_messages.refused(*refused[name])))
                self.refused[subject] = refused[name]
            elif timetable["rounds"]:
                walkers.append(name)
            else:
                answered.append((subject, nothing_asked()))
        answered += [(pair, {"state": "done", "observations": observations}) for pair, observations in absent.items()]
        self.record_all(answered)
        return walkers

    # Answers ---------------------------------------------------------------------------------------------------------

    def pair_of(self, node: str, item: PlainData) -> PlainData | None:
        """Return the pair of an observation if the node is the client of that test, else None."""
        if node not in self.asks:
            tests = [x for planned in self.timetables[node]["rounds"] for x in planned["tests"] if x["role"] == "client"]
            self.asks[node] = {(self.kinds[x["kind"]]["check"], self.kinds[x["kind"]]["variant"], x["subject"]) for x in tests}
        pair = item.get("subject")
        if isinstance(pair, dict) and (str(item.get("check")), str(item.get("variant")), str(pair.get("id"))) in self.asks[node]:
            return {"kind": "pair", "id": pair["id"], "members": []}
        return None

    def note(self, node: str, result: NodeAnswer) -> None:
        """Note why a node has no result, for its pairs."""
        if result.get("state") == "refused":
            self.refused[node] = str(result.get("reason_code")), str(result.get("reason"))
        observations = result.get("observations")
        for item in observations if isinstance(observations, list) else ():
            if isinstance(item, dict) and item.get("check") == TIMETABLE and item.get("outcome") != "measured":
                self.refused[node] = str(item.get("reason_code")), str(item.get("reason"))

    def record_all(self, answers: list[tuple[str, NodeAnswer]]) -> None:
        super().record_all(answers)
        for _sender, result in answers:
            for item in result.get("observations") or []:
                subject = item.get("subject") if isinstance(item, dict) else None
                if isinstance(subject, dict):
                    self._have(str(subject.get("id")), (item.get("check"), item.get("variant", "")))

    def _have(self, pair: str, check: tuple[t.Any, t.Any]) -> None:
        """Mark a check of a pair as answered."""
        if pair in self.unanswered:
            self.checks_of[pair] = [planned for planned in self.checks_of[pair] if planned[:2] != check]
            if not self.checks_of[pair]:
                self.unanswered.discard(pair)

    def pairs_without_an_answer(self) -> None:
        """Record pairs without a result, with the reasons of their ends if there are any."""
        for pair in sorted(self.unanswered):
            ends = [end for end in pair.split("|") if end in self.refused]
            result: NodeAnswer = {"state": "done", "observations": []}
            if ends:
                reasons = "; ".join(f"{end}: {self.refused[end][1]}" for end in ends)
                result = node_messages.refused(self.refused[ends[0]][0], reasons)
            self._record(pair, result)


def _missing(pair: PlainData) -> PlainData:
    return observation.failed(
        pair["check"], pair["reason_code"], pair["reason"], "missing", variant=pair["variant"], subject=pair["subject"]
    )
