# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power supplies and fans of machines of one product: what was pulled out of one, and what none of them has."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import key_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.host_health import STAGE
from harness import records
from harness import report_samples as samples

Machine = t.Dict[str, t.Dict[str, bool]]


def machine(supplies: int = 2, of: int = 2, fans: int = 8, kind: str = "power supplies") -> Machine:
    return {kind: {f"PSU{n}": n <= supplies for n in range(1, of + 1)}, "fans": {f"FAN{n}": n <= fans for n in range(1, 9)}}


def judged(
    *machines: t.Any, product: str = "GPU-8X", check: str = "bmc", silent: dict[str, list[str]] | None = None
) -> list[tuple[str, str]]:
    """Return (machine, verdict) of each opinion on the machines. `silent` are parts of the first one without a reading."""
    deciding = {}
    for number, parts in enumerate(machines):
        own, parts = parts if isinstance(parts, tuple) else (product, parts)
        m = records.measurement(samples.measurement(f"n{number}", "host_health", check, context={"parts": parts, "product": own}))
        if number == 0 and silent:
            m = m.replaced(context={**m.context, "silent_parts": silent})
        deciding[key_of(m)] = m
    found = list(STAGE.opinions(deciding, list(deciding.values()), lambda *_who: expectations.shipped(), []))
    codes = {"FAIL": "bmc_fault", "UNKNOWN": "no_answer", "WARN": "bmc_event"}
    assert all(opinion.reason_code == codes[opinion.verdict] for _key, opinion in found)
    return [(key.subject, opinion.verdict) for key, opinion in found]


@pytest.mark.parametrize("check", ["bmc", "redfish"])
@pytest.mark.parametrize("count", [2, 3, 8, 64])
def test_a_supply_that_was_pulled_out_of_one_machine(check: str, count: int) -> None:
    machines: list[t.Any] = [machine() for _number in range(count - 1)]
    assert judged(machine(supplies=1), *machines, check=check) == [("n0", "FAIL")]
    assert judged(machine(fans=7), *machines, check=check) == [("n0", "FAIL")]
    listed = {kind: {name: True for name, is_there in names.items() if is_there} for kind, names in machine(supplies=1).items()}
    assert judged(listed, *machines, check=check) == [("n0", "FAIL")], "some controllers list no empty places"


def test_cards_and_disks_may_differ() -> None:
    cards = [{"other parts": {"GPU1 Pres": True, "GPU2 Pres": n > 0}} for n in range(8)]
    assert judged(*cards) == [("n0", "WARN")] and judged(cards[0]) == []


@pytest.mark.parametrize("count", [2, 8])
def test_a_place_that_is_empty_in_all_machines(count: int) -> None:
    assert judged(*(machine(supplies=1, fans=6) for _number in range(count))) == []


def test_a_machine_with_more_than_the_others() -> None:
    assert judged(machine(supplies=2), *(machine(supplies=1) for _number in range(7))) == [(f"n{n}", "WARN") for n in range(1, 8)]


def test_an_empty_place_of_a_machine_without_others_is_a_warning() -> None:
    assert judged(machine(supplies=1)) == [("n0", "WARN")] and judged(machine(fans=4)) == [] == judged(machine())
    assert judged(machine(supplies=0)) == []
    assert judged(machine(supplies=1), ("another", machine())) == [("n0", "WARN")]
    assert judged(machine(supplies=1), machine(), product="") == [("n0", "WARN")], "of unknown products nothing is compared"


@pytest.mark.parametrize("parts", [None, 3, [], {}, {"fans": None}, {"fans": {}}, {"fans": {"FAN1": "yes"}}, {"power supplies": [True]}])
def test_lists_of_parts_that_are_rubbish_do_not_raise(parts: t.Any) -> None:
    judged(parts, machine())


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize(("kind", "name", "broken"), [("fans", "FAN8", machine(fans=7)), ("power supplies", "PSU2", machine(supplies=1))])
@pytest.mark.parametrize("listed", [True, False])
def test_a_part_without_a_reading_is_not_known_to_be_there(count: int, kind: str, name: str, broken: Machine, listed: bool) -> None:
    others: list[t.Any] = [machine() for _number in range(count - 1)]
    own = broken if listed else {of: {part: True for part, is_there in parts.items() if is_there} for of, parts in broken.items()}
    assert judged(own, *others, silent={kind: [name]}) == [("n0", "UNKNOWN")]
    none = {of: parts for of, parts in own.items() if of != kind}
    assert judged(none, *others, silent={kind: list(machine()[kind])}) == [("n0", "UNKNOWN")]
    assert judged({**own, kind: {**own[kind], "PSU1": False, "FAN1": False}}, *others, silent={kind: [name]}) == [("n0", "FAIL")], (
        "another one is known to be gone"
    )
    assert judged(own, *(broken for _number in range(count - 1)), silent={kind: [name]}) == [], "nobody has one there"


@pytest.mark.parametrize("silent", [3, [], {"fans": 3}, {"fans": [None]}, {3: ["x"]}])
def test_lists_of_silent_parts_that_are_rubbish_are_ignored(silent: t.Any) -> None:
    assert judged(machine(), machine(), silent=silent) == []
