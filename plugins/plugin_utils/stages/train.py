# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `train`: matrix products and a small training on every GPU of every node, with the same bits on all of them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import majority
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import training
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.causes import Blame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import sweep
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Expected, Isolation, Stage, too_short

# Context of a result that decides which bits it has, besides the work itself: results are compared only where all of it is the same.
SAME_BITS = ("gpu", "driver", "library", "host_cpu", "seed", "shape", "type", "steps")


class Train(Stage):
    name = "train"
    role = "gpufleet.acceptance.train"
    place = 40
    level = "quick"
    quick_conditions = frozenset({"compute", "train"})
    devices = True
    sees_all_gpus = True
    sees: t.Mapping[str, tuple[str, ...]] = {"compute": (), "thermal": ("burn_in",)}
    same_work: t.Mapping[str, tuple[str, str]] = {"compute": ("gemm", "type")}
    requestable = ("types", "shapes", "modes", "seconds", "warmup_seconds", "steps", "width", "batch", "seed", "minutes", "gpus")
    quick = {
        "types": ["bf16"], "shapes": ["4096x4096x4096"], "modes": ["together"], "seconds": 0.3, "warmup_seconds": 0.3, "steps": 30,
        "width": 1024, "batch": 2048, "minutes": 0, "silence_timeout": 30, "test_timeout": 75, "timeout": 90,
    }  # fmt: skip
    not_proven = "what comes with heat and time, as each GPU computes for a few seconds"

    def lacks(self, fault: str, measurement: Measurement) -> str | None:
        return too_short(fault, measurement.duration_s) or super().lacks(fault, measurement)

    def isolation(self, settings: Variables) -> Isolation:
        return {"devices": settings["train_gpus"]} if settings["train_gpus"] else {}

    def problem(self, settings: Variables) -> str | None:
        numbers = sweep.of_numbers(
            self.name, settings, steps=training.LEAST_STEPS, width=1, batch=1, minutes=0, gpus=0, seconds=0, warmup_seconds=0
        )
        if numbers:
            return numbers
        minimum_s = settings["train_test_timeout"] + 60 * settings["train_minutes"]
        if settings["train_timeout"] <= minimum_s:
            return (
                f"train_timeout: found {settings['train_timeout']:g}, expected more than {minimum_s:g}: "
                "train_test_timeout and the minutes of train_minutes"
            )
        return None

    def opinions(
        self, deciding: t.Mapping[Key, Measurement], records: list[Measurement], expected: Expected, tables: list[Table]
    ) -> t.Iterator[tuple[Key, Opinion] | Blame]:
        """Compare the fingerprints of all GPUs of the run that did the same work under the same driver and library, on all nodes."""
        alike: dict[tuple[t.Any, ...], dict[str, list[tuple[Key, str]]]] = collections.defaultdict(lambda: collections.defaultdict(list))
        for key, record in deciding.items():
            context = record.context
            if key.stage == self.name and record.outcome == "measured" and isinstance(context.get("fingerprint"), str):
                work = (key.check, record.simulated, *map(str, map(context.get, SAME_BITS)))
                alike[work][key.subject].append((key, context["fingerprint"]))
        for gpus in alike.values():
            ruling = majority.ruling({subject: [bits for _key, bits in results] for subject, results in gpus.items()})
            if ruling.unresolved:
                reason = f"GPUs of this run do not compute the same: {_shortened(ruling.unresolved)}"
                yield from ((key, Opinion("UNKNOWN", reason, "unresolved")) for results in gpus.values() for key, _bits in results)
                continue
            right = {bits for subject, results in gpus.items() if subject not in ruling.odd for _key, bits in results}
            for subject, why in ruling.odd.items():
                yield from ((key, Opinion("FAIL", why, "wrong_results")) for key, bits in gpus[subject] if bits not in right)


def _shortened(text: str, longest: int = 600) -> str:
    return text if len(text) <= longest else f"{text[:longest]} ..."


STAGE = Train()
