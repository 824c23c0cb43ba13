# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `gemm`: matrix products on every GPU of every node.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage


class Gemm(Stage):
    name = "gemm"
    role = "gpufleet.acceptance.gemm"
    place = 30
    level = "standard"
    devices = True
    sees_all_gpus = True
    sees: t.Mapping[str, tuple[str, ...]] = {"compute": ()}
    requestable = ("types", "shapes", "modes", "seconds", "warmup_seconds")

    def command(self, settings: Variables, nodes: int) -> list[str]:
        checks = [
            {"dtype": dtype, "mode": mode, "shape": [int(side) for side in re.findall(r"\d+", str(shape))]}
            for dtype, shape, mode in itertools.product(*(settings[f"gemm_{axis}"] for axis in ("types", "shapes", "modes")))
        ]
        options = {"checks": checks, "seconds": settings["gemm_seconds"], "warmup_seconds": settings["gemm_warmup_seconds"]}
        return [settings["gemm_python"] or "python3", "-", shlex.quote(json.dumps(options))]

    def judged_contexts(self, settings: Variables) -> list[Variables]:
        return [{"check": dtype, "shape": shape} for dtype, shape in itertools.product(settings["gemm_types"], settings["gemm_shapes"])]


STAGE = Gemm()
