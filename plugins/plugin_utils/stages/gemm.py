# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `gemm`: matrix products on every GPU of every node.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage


class Gemm(Stage):
    name = "gemm"
    role = "gpufleet.acceptance.gemm"
    place = 30
    level = "standard"
    primary = ("tflops",)
    devices = True
    sees_all_gpus = True
    sees: t.Mapping[str, tuple[str, ...]] = {"compute": ()}
    requestable = ("types", "shapes", "modes", "seconds", "warmup_seconds")


STAGE = Gemm()
