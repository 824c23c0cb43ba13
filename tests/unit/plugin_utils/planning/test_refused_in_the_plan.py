# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors of an inventory that are known before anything is measured."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import foreseeable, prepare
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.interface import PlanError


def test_a_run_has_its_stages_and_its_level_once() -> None:
    settings = {"a": {"acceptance_stages": ["stack"]}, "b": {"acceptance_stages": ["stack", "gemm"]}}
    with pytest.raises(PlanError, match="acceptance_stages: a and b have different values, expected one for the whole run"):
        prepare._of_whole_run(settings, prepare.OF_WHOLE_RUN)
    with pytest.raises(PlanError, match="acceptance_level: a and c have"):
        prepare._of_whole_run({"a": {}, "b": {}, "c": {"acceptance_level": "full"}}, prepare.OF_WHOLE_RUN)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"kind": "dokcer", "image": "x"}, "acceptance_exec.kind: found 'dokcer', expected one of host, docker"),
        ({"kind": "docker"}, "acceptance_exec.image: found nothing, expected the image that docker starts"),
        ({"kind": "host", "imgae": "x"}, "acceptance_exec.imgae: found an unknown key, expected any of kind, image, args"),
    ],
)
def test_where_tools_live_is_read_in_the_plan(where: dict[str, str], words: str) -> None:
    assert words in str(foreseeable._of_containers({"a": {}, "b": {"acceptance_exec": where}}))
