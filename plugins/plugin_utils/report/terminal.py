# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PLACEHOLDER."""

from __future__ import annotations

import typing as t


def table(model: dict[str, t.Any], colour: bool) -> list[str]:
    lines = [f"{v['verdict']:10} {v['subject']['id']:40} {v['stage']:10} {v['check']:12} {v['reason']}" for v in model["verdicts"] if v["verdict"] not in ("PASS", "SKIPPED")]
    return [*lines, str(model["counts"]), *model["notes"], ("ACCEPTED: " if model["accepted"] else "NOT ACCEPTED: ") + model["why"]]


def coloured(model: dict[str, t.Any]) -> list[tuple[str, str | None]]:
    return [(line, None) for line in table(model, False)]
