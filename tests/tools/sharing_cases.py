#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the table of the cases of GPU sharing in docs/gpu_sharing.md from their files: python tests/tools/sharing_cases.py"""

from __future__ import annotations

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import cases  # noqa: E402

PAGE = ROOT / "docs" / "gpu_sharing.md"
TITLE, NEXT = "## What each case asserts\n", "\n## "
HEAD = "| case | | clusters | asserts |\n|---|---|---|---|\n"
NEEDED = "where the system has "


def text(page: str) -> str:
    """The page with the table as the cases are now."""
    before, _title, after = page.partition(TITLE)
    _old, following, rest = after.partition(NEXT)
    return f"{before}{TITLE}\n{section()}{following}{rest}"


def section() -> str:
    shipped = cases.shipped(cases.STRICT)
    always = dict.fromkeys(one.expression for case in shipped for one in case.assertions if one.always)
    but = " and ".join(case.id for case in shipped if not any(one.always for one in case.assertions))
    rows = "".join(f"{row(case)}\n" for case in shipped)
    return (
        f"The assertions of the {len(shipped)} cases in profile `strict`, with the gate of each. `tests/tools/sharing_cases.py` writes\n"
        f"this table from the files of the cases. All cases but {but} also assert {' and '.join(f'`{that}`' for that in always)}.\n\n"
        f"{HEAD}{rows}\n"
        "The suite `robustness` runs only if it or its cases are named (`-e suite=robustness`). Each case is for a defect of a real\n"
        "version that none of the others sees. No gate depends on these cases, but a FAIL of one is a FAIL of its run.\n\n"
        f"{HEAD}{''.join(f'{row(case)}{chr(10)}' for case in cases.beyond(cases.STRICT))}"
    )


def row(case: cases.Case) -> str:
    asserted = []
    for one in case.assertions:
        if one.always:
            continue
        needs = f" ({NEEDED}{', '.join(one.needs)})" if one.needs else ""
        asserted.append(f"{'/'.join(one.gates)} `{one.expression}`{needs}".strip())
    skips = [f"skipped by `{rule}` where `{when}`" for rule, when in case.skips]
    more = [word for word, holds in (("soak", case.soak), ("destructive", case.destructive)) if holds]
    title = case.title + (f" ({', '.join(more)})" if more else "")
    return f"| {case.id} | {title} | {', '.join(case.clusters)} | {'<br>'.join([*asserted, *skips])} |"


if __name__ == "__main__":
    PAGE.write_text(text(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
