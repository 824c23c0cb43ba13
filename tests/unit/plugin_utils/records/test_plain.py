# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever YAML, Jinja and Ansible give as a value is plain data behind `plain`, or is refused with its variable and its place in it."""

from __future__ import annotations

import collections
import datetime
import inspect
import json
import math
import typing as t

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.plain import LARGEST, SMALLEST, PlainError, plain
from hypothesis import given
from hypothesis import strategies as st

try:
    from ansible._internal._datatag._tags import Origin
    from ansible.module_utils._internal._datatag import AnsibleTagHelper
except ImportError:  # ansible-core 2.18 reads values without tags

    def tagged(value: t.Any) -> t.Any:
        return value
else:

    def tagged(value: t.Any) -> t.Any:
        """Return a value as ansible-core 2.19 and later read it from a file."""
        return AnsibleTagHelper.try_tag(value, Origin(description="a test"))


class Encrypted:
    """An encrypted string as ansible-core before 2.19 has it: no str, and decrypted by str()."""

    __ENCRYPTED__ = True

    def __init__(self, plaintext: str | None) -> None:
        self.plaintext = plaintext

    def __str__(self) -> str:
        if self.plaintext is None:
            raise AnsibleError("no vault secrets")
        return self.plaintext


good = st.one_of(
    st.none(), st.booleans(), st.integers(SMALLEST, LARGEST), st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])), st.dates(), st.times(), st.datetimes(),
    st.datetimes(timezones=st.timezones()), st.text(st.characters(exclude_categories=["Cs"])).map(Encrypted),
)  # fmt: skip
bad = st.one_of(
    st.just(math.nan), st.sampled_from([math.inf, -math.inf]), st.binary(), st.integers(LARGEST + 1), st.integers(max_value=SMALLEST - 1),
    st.timedeltas(), st.complex_numbers(), st.just("\ud800"), st.builds(object), st.just(range(3)), st.just(Encrypted(None)),
    st.just(iter(())), st.just(len), st.dictionaries(st.sampled_from([None, True, 1.5, (1, 2), b"x"]), st.integers(),
                                                                    min_size=1),
    st.just({1: "a", "1": "b"}),
)  # fmt: skip
keys = st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.integers(0, 9), st.dates())


def nested(leaves: st.SearchStrategy[t.Any]) -> st.SearchStrategy[t.Any]:
    def containers(inner: st.SearchStrategy[t.Any]) -> st.SearchStrategy[t.Any]:
        mappings = st.dictionaries(keys, inner, max_size=3).filter(lambda made: len({str(key) for key in made}) == len(made))
        return st.one_of(
            st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple), mappings, mappings.map(collections.OrderedDict),
            st.sets(st.one_of(st.text("ab"), st.integers(0, 5)), max_size=3),
        ).map(tagged)  # fmt: skip

    return st.recursive(leaves.map(tagged), containers, max_leaves=10)


@given(nested(good))
def test_a_good_value_is_data_that_json_gives_back(value: t.Any) -> None:
    made = plain(value, "gpu-01: stack_golden")
    assert json.loads(json.dumps(made, sort_keys=True, allow_nan=False)) == made
    assert plain(made, "again") == made
    for inner in _all(made):
        assert type(inner) in (type(None), bool, int, float, str, list, dict)


def _all(value: t.Any) -> t.Iterator[t.Any]:
    yield value
    if isinstance(value, dict):
        for key, inner in value.items():
            assert type(key) is str
            yield from _all(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _all(inner)


@given(bad, st.lists(st.sampled_from(["key", 0, 1]), max_size=4))
def test_a_value_that_is_no_data_is_refused_with_its_place(value: t.Any, path: list[t.Any]) -> None:
    place = ""
    for step in reversed(path):
        value = {step: value} if isinstance(step, str) else [*[None] * step, value]
    for step in path:
        place += f".{step}" if isinstance(step, str) else f"[{step}]"
    with pytest.raises(PlainError) as refusal:
        plain(tagged(value), "gpu-01: stack_golden")
    assert str(refusal.value).startswith(f"gpu-01: stack_golden{place}: found ")
    assert " object at 0x" not in str(refusal.value) and "_Ansible" not in str(refusal.value)


def test_dates_and_times_become_texts_of_iso_8601() -> None:
    utc = datetime.UTC
    for value, text in (
        (datetime.date(2027, 1, 31), "2027-01-31"),
        (datetime.datetime(2027, 1, 31, 10, 0), "2027-01-31T10:00:00"),
        (datetime.datetime(2027, 1, 31, 10, 0, tzinfo=utc), "2027-01-31T10:00:00+00:00"),
        (datetime.time(10, 30), "10:30:00"),
    ):
        assert plain(tagged(value), "x") == text and type(plain(tagged(value), "x")) is str


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[t.Any] = []
    value.append({"a": value})
    with pytest.raises(PlainError, match="expected one that does not hold itself"):
        plain(value, "x")


def test_a_container_that_cannot_be_read_is_refused() -> None:
    class Lazy(dict[str, t.Any]):
        def items(self) -> t.Any:
            raise AnsibleError("'nowhere' is undefined")

    with pytest.raises(PlainError, match=r"^x\.a: 'nowhere' is undefined"):
        plain({"a": Lazy()}, "x")


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("2027-01-31", "2027-01-31"),
        ("2027-01-31 10:00:00", "2027-01-31T10:00:00"),
        ("!!set {b, a}", ["a", "b"]),
        ("!!omap [a: 1, b: 2]", [["a", 1], ["b", 2]]),
        ("!!pairs [a: 1, a: 2]", [["a", 1], ["a", 2]]),
        ("!unsafe '{{ x }}'", "{{ x }}"),
        ("0x10", 16),
        ("{1: a}", {"1": "a"}),
        ("~", None),
        (".nan", None),
        ("-.inf", None),
        ("!!binary aGVsbG8=", None),
        ("{on: 1}", None),
        ("{~: 1}", None),
        ("{1.10: 1}", None),
        (f"0x{'f' * 5000}", None),
        ("&a [*a]", None),
    ],
)
def test_values_that_yaml_reads_become_plain_data_or_are_refused_by_place(
    text: str, made: t.Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ansible looks through the stack where it warns of a tag. Python fails there if the collections were once imported by Ansible's loader.
    monkeypatch.setattr(inspect, "_filesbymodname", {}, raising=False)
    value = DataLoader().load(f"v: {text}")["v"]
    if made is None and value is not None:
        with pytest.raises(PlainError, match=r"^v[.:\[]"):
            plain(value, "v")
    else:
        assert plain(value, "v") == made
