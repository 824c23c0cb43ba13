# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `train`: matrix products and a small training on every GPU of every node, with the same bits on all of them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import training
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import sweep
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Record, Stage


class Train(Stage):
    name = "train"
    role = "gpufleet.acceptance.train"
    primary = ("tflops",)
    # They are about what is right; how fast it is counts among siblings and neighbours, and where somebody expects a number.
    conditions = frozenset({"compute", "train", "burn_in"})
    devices = True
    quick = {
        "types": ["bf16"], "shapes": ["4096x4096x4096"], "modes": ["together"], "seconds": 0.3, "warmup_seconds": 0.3, "steps": 30,
        "width": 1024, "batch": 2048, "minutes": 0, "silence_timeout": 30, "test_timeout": 75, "timeout": 90,
    }  # fmt: skip
    not_proven = "what comes with heat and time, as each GPU computes for a few seconds"

    def pods(self, settings: Record) -> Record:
        return {"devices": settings["train_gpus"]} if settings["train_gpus"] else {}

    def problem(self, settings: Record) -> str | None:
        numbers = sweep.of_numbers(
            self.name, settings, steps=training.LEAST_STEPS, width=1, batch=1, minutes=0, gpus=0, seconds=0, warmup_seconds=0
        )
        if numbers:
            return numbers
        least = settings["train_test_timeout"] + 60 * settings["train_minutes"]
        if settings["train_timeout"] <= least:
            return (
                f"train_timeout: found {settings['train_timeout']:g}, expected more than {least:g}: "
                "train_test_timeout and the minutes of train_minutes"
            )
        return None


STAGE = Train()
