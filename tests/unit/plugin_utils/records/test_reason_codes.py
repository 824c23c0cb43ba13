# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reason codes that planes bring."""

from __future__ import annotations

import ast
import pathlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import reason_codes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry

PLANES = pathlib.Path(__file__).resolve().parents[4] / "plugins/plugin_utils/planes"


def test_the_controller_knows_the_codes_of_every_plane_with_their_advice() -> None:
    assert reason_codes.ADVICE.keys() == reasons.BROUGHT.keys() and {"quota", "pod_deleted"} < reasons.BROUGHT.keys()
    assert reason_codes.ALL["quota"] == "the namespace's quota is used up"
    shared = (reasons.FATAL, reasons.SKIP_RULES, reasons.SKIP_WARNS, reasons.ERRORS, reasons.MILD, reasons.VERDICTS)
    assert not reasons.BROUGHT.keys() & {code for codes in shared for code in codes}


def test_a_plane_cannot_give_a_code_another_meaning() -> None:
    with pytest.raises(ValueError, match="reason code 'ecc' exists: uncorrectable memory errors"):
        reasons.bring({"ecc": "the end of the crate"})
    assert "ecc" not in reasons.BROUGHT


def test_a_probe_that_says_a_code_of_a_plane_is_refused_in_the_plan(tmp_path: pathlib.Path) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text("observation.failed('disk', 'quota', 'none left')\n")
    with pytest.raises(RunError, match=r"found the reason code 'quota', expected one of reasons\.py"):
        registry._check_reason_codes(probe)


@pytest.mark.parametrize("path", sorted(PLANES.glob("*/reason_codes.py")), ids=lambda path: path.parent.name)
def test_the_codes_of_a_plane_are_read_without_the_plane(path: pathlib.Path) -> None:
    imported = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert [getattr(node, "module", None) for node in imported] == ["__future__"]
