# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.standing import Event, over, standing
from hypothesis import given
from hypothesis import strategies as st


def test_a_fault_ends_with_the_good_state_of_the_same_part_and_kind():
    lost = Event("PSU 1", "redundancy", True, "lost")
    other = Event("PSU 2", "redundancy", True, "lost")
    assert standing([lost, other, Event("PSU 1", "redundancy", False)]) == [other]
    assert standing([lost, Event("PSU 1", "presence", False)]) == [lost]


def test_a_later_state_replaces_an_earlier_one():
    lost, degraded = Event("PSU", "redundancy", True, "lost"), Event("PSU", "redundancy", True, "degraded")
    assert standing([lost, degraded]) == [degraded]


@given(st.lists(st.builds(Event, st.sampled_from("ab"), st.sampled_from("xy"), st.booleans(), st.none())))
def test_what_stands_is_the_last_event_of_each_part_and_kind(events):
    expected = {(event.part, event.kind): event.is_fault for event in events}
    assert {(event.part, event.kind) for event in standing(events)} == {which for which, is_fault in expected.items() if is_fault}


@given(st.lists(st.builds(Event, st.sampled_from("ab"), st.sampled_from("xy"), st.booleans(), st.integers(0, 3))))
def test_each_fault_stands_is_replaced_or_is_over(events):
    still = {(event.part, event.kind) for event in standing(events)}
    assert over(events) == [event for event in events if event.is_fault and (event.part, event.kind) not in still]


def test_a_fault_that_came_and_went():
    lost, back, again = Event("PSU", "input", True, "lost"), Event("PSU", "input", False), Event("PSU", "input", True, "again")
    assert over([lost, back]) == [lost] and over([lost, back, again]) == [] and over([lost, back, again, back]) == [lost, again]
