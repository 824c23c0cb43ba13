# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `nccl_fabric`: nccl-tests over groups of nodes.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.observation import variant
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nccl_checks
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import ddp
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import ddp as workload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.causes import Blame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlainData, Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import base, grouping, stack, sweep

LOCALISE = "localise"


def convicted(stage: str, deciding: t.Mapping[Key, Measurement]) -> t.Iterator[Blame]:
    """Yield a blame for each subject that the search behind a slow group convicts. A search that left something open explains no group."""
    own_records = {key: record for key, record in deciding.items() if key.stage == stage}
    searched: dict[tuple[str, str], list[Key]] = {}
    groups: dict[tuple[str, str], list[Key]] = {}
    for key, record in own_records.items():
        if key.check == LOCALISE:
            searched.setdefault((record.target, key.variant), []).append(key)
        elif record.subject.kind == "group":
            words = " ".join(sorted([*key.variant.split(), f"op={key.check}"]))
            groups.setdefault((record.target, words), []).append(key)
    for search, conviction in searched.items():
        sure = [key for key in conviction if own_records[key].outcome == "measured"]
        explained = frozenset(groups.get(search, ())) if len(sure) == len(conviction) else frozenset()
        for key in sure:
            kind = own_records[key].subject.kind
            findings = own_records[key].context.get("findings")
            texts = [str(finding.get("text")) for finding in findings if isinstance(finding, dict)] if isinstance(findings, list) else []
            sentence = "; ".join(texts).removeprefix(f"{kind} {key.subject}: ") or "convicted"
            yield Blame(key.subject, kind, f"bad between nodes: {sentence}", own=(key,), explains=explained)


class NcclFabric(grouping.Grouped):
    name = "nccl_fabric"
    role = "gpufleet.acceptance.nccl_fabric"
    place = 70
    level = "full"
    saves_checkpoints = True
    # A finding of its search is one too.
    conditions = grouping.Grouped.conditions | {LOCALISE}
    floor = ("busbw", "GB/s")
    # The types that the tool knows; any if it is empty.
    types: t.Collection[str] = nccl_checks.WIDTHS
    sees_all_gpus = True
    sees: t.Mapping[str, tuple[str, ...]] = {"nic": (), "fabric": ()}
    leaf_rank = 2
    requestable = (*sweep.REQUESTABLE, "layout", "localise", "repeats")
    command_axes = sweep.AXES
    requested_before: tuple[str, ...] = (stack.STAGE.name,)
    library = "NCCL"

    def problem(self, settings: Variables) -> str | None:
        numbers = sweep.problem(self.name, settings, self.types, factor=2, iterations=0, warmup=0, repeats=1, parallel=1)
        return numbers or self._of_torch(settings) or super().problem(settings)

    def _of_torch(self, settings: Variables) -> str | None:
        """Return the error for settings that PyTorch, in place of nccl-tests, cannot measure."""
        if settings.get(f"{self.name}_tool") != "torch":
            return None
        for variable, words, measurable in (("ops", ddp.OPS, workload.FACTORS), ("types", ddp.TYPES, workload.WIDTHS)):
            for value in settings[f"{self.name}_{variable}"]:
                if words.get(value, value) not in measurable:
                    able = ", ".join(
                        sorted(
                            {
                                next((nccl_name for nccl_name, torch_name in words.items() if torch_name == name), name)
                                for name in measurable
                            }
                        )
                    )
                    return f"{self.name}_{variable}: found {value!r}, expected what PyTorch measures: {able}"
        return None

    def checks(self, variables: Variables) -> list[tuple[str, str]]:
        ops, sizes, types = (variables[f"{self.name}_{axis}"] for axis in ("ops", "sizes", "types"))
        axes = itertools.product(ops, self.shares(variables), sizes, types)
        return [(op, variant(**share, sizes=size, type=type_)) for op, share, size, type_ in axes]

    def command(self, settings: Variables, nodes: int) -> list[str]:
        op, gpus, type_ = sweep.first(self.name, settings)
        words = [f"{op}_perf", *sweep.sizes(self.name, settings), "-g", "1", *sweep.counts(self.name, settings)]
        return [*sweep.mpirun(gpus, nodes), *words, *(["-d", type_] if type_ != "float" else [])]

    def for_head(self, members: list[str], settings: t.Mapping[str, Variables]) -> PlainData:
        """The leaf switches of the members, for the search."""
        leaf = f"{self.name}_leaf"
        return {"topology": {node: settings[node][leaf] for node in members if settings[node].get(leaf)}}

    def opinions(
        self, deciding: t.Mapping[Key, Measurement], records: list[Measurement], expected: base.Expected, tables: list[Table]
    ) -> t.Iterator[tuple[Key, Opinion] | Blame]:
        return convicted(self.name, deciding)


STAGE = NcclFabric()
