# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import types

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import clocks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.ssh import plane
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from hypothesis import given
from hypothesis import strategies as st


def records(**skews: float | None):
    """{key: record} of three checks of each node."""
    checks = (("stack", "software"), ("host_health", "clock"), ("gemm", "bf16"))
    return {
        Key(stage, check, "", node): types.SimpleNamespace(
            subject=types.SimpleNamespace(kind="node", id=node), context={} if skew is None else {"clock_skew_s": skew}
        )
        for node, skew in skews.items()
        for stage, check in checks
    }


@pytest.mark.parametrize(
    ("skew", "verdict", "code"), [(3600, "FAIL", "clock_off"), (-61, "FAIL", "clock_off"), (1.2, "WARN", "clock_offset")]
)
def test_a_clock_that_is_off_is_told_once_on_the_check_of_the_clock(skew: float, verdict: str, code: str) -> None:
    ((key, opinion),) = clocks.opinions(records(a=skew, b=None, c=None))
    assert (key.subject, key.check, opinion.verdict, opinion.reason_code) == ("a", "clock", verdict, code)


def test_clocks_that_agree_are_not_told() -> None:
    assert list(clocks.opinions(records(a=None, b=0.4))) == []


def test_where_most_nodes_are_off_the_controller_is_in_doubt() -> None:
    opinions = dict(clocks.opinions(records(a=100, b=100, c=100, d=None)))
    assert {opinion.verdict for opinion in opinions.values()} == {"WARN"}
    assert all("the controller's own clock may be wrong" in opinion.reason for opinion in opinions.values())


@given(st.floats(0, 600), st.floats(0, 600), st.floats(0, 600), st.floats(-86400, 86400))
def test_no_way_and_no_work_make_a_right_clock_wrong(there: float, work: float, back: float, skew: float) -> None:
    """The skew that is told is never more than the real one, and of the same sign."""
    asked = 1.8e9
    began, ended, answered = asked + there, asked + there + work, asked + there + work + back
    told = plane._skew(asked, [began + skew, ended + skew], answered)
    assert abs(told) <= abs(skew) + 1e-3 and told * skew >= -1e-3
    assert abs(told) >= abs(skew) - there - back - 1e-3


@pytest.mark.parametrize("clock", [None, [], [1], ["a", "b"], [1, None], {"began": 1}])
def test_what_a_node_sends_in_place_of_times_tells_nothing(clock) -> None:
    assert plane._skew(1.0, clock, 2.0) == 0.0


def test_clocks_that_are_off_by_different_times_are_their_own() -> None:
    opinions = dict(clocks.opinions(records(a=100, b=3600, c=86400, d=None, e=None)))
    assert {opinion.verdict for opinion in opinions.values()} == {"FAIL"}
