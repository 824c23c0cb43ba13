# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What nodes send reaches no format as markup, and no format is broken by it."""

from __future__ import annotations

import base64
import html.parser
import json
import re
import typing as t
import zlib
from xml.etree import ElementTree

import hypothesis
import hypothesis.strategies as st
import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import charts, formats, model, page, terminal
from harness import report_samples as samples

UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u200b\u2066\ufffe\uffff\ud800-\udfff]")
LABEL = r'[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"gpufleet_acceptance_[a-z_]+\{{{LABEL}(?:,{LABEL})*\}} [0-9.e+-]+")


@pytest.fixture(scope="module")
def hostile() -> dict[str, t.Any]:
    return model.build(*samples.hostile())


def test_no_format_holds_what_cannot_be_seen(hostile: dict[str, t.Any]) -> None:
    for make in (formats.markdown, formats.junit, formats.prometheus, formats.as_json):
        assert not UNSEEN.search(make(hostile)), make
    for line, _colour in terminal.coloured(hostile, 100):
        assert not UNSEEN.search(line)
        assert "\n" not in line


class _Elements(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script":
            self.scripts.append(data)


def test_the_page_has_no_element_or_attribute_that_a_node_sent(hostile: dict[str, t.Any]) -> None:
    text = page.render(hostile)
    library = str(page.packed_library())
    assert zlib.decompress(base64.b64decode(library)).decode() == page.in_parts(page.LIBRARY.read_text())
    before, _, after = text.partition(library)
    assert after, "the library stands in the page once"
    assert library not in after
    elements = _Elements()
    elements.feed(before + after)
    names = {tag for tag, _ in elements.tags}
    assert not names & {"img", "svg", "iframe", "object", "form", "b:script"}
    for tag, attributes in elements.tags:
        for name, value in attributes:
            assert not name.startswith("on"), (tag, name)
            if name in ("href", "src"):
                assert value is not None
                assert value.startswith("#") or value == "data:,", (tag, value)
    assert sum(tag == "script" for tag, _ in elements.tags) == 6 + before.count('class="figure"')
    assert not UNSEEN.search(before + after)


def test_the_library_is_listed_in_parts_with_its_licences_or_not_at_all() -> None:
    library = page.LIBRARY.read_text()
    parts = page.in_parts(library)
    for licences in re.findall(r"/\*[*!]\n?.*?\n\*/\n", library, re.DOTALL):
        assert licences in parts
    assert len(library) - 1000 < len(parts) < len(library)
    for other in (library.replace("var Plotly=", "const Plotly="), library.replace(page.MAKER, "(e,r)=>e"), library + library):
        with pytest.raises(ValueError, match="plotly-cartesian"):
            page.in_parts(other)


def test_figures_are_what_plotly_takes_and_hold_no_markup(hostile: dict[str, t.Any]) -> None:
    plotly = pytest.importorskip("plotly.graph_objects")
    small, large = (model.build(*samples.fleet(n, 1)) for n in (12, 1000))
    for made in (hostile, small, large):
        for group in made["stages"][-1]["checks"]:
            figure = charts.of_check(group)
            assert figure is not None
            plotly.Figure(figure)
            texts = [x for trace in figure["data"] for x in trace.get("text", [])]
            assert all(set(re.findall("<[^>]*>?", x)) <= {"<br>"} for x in texts)
            assert "<" not in str(page.figure(figure))


def test_a_chart_shows_every_node_and_its_own_floor() -> None:
    rows = [
        {"subject": f"n{i}", "node": f"n{i}", "kind": "node", "verdict": v, "value": x, "unit": "GB/s", "floor": f, "layer": "shipped",
         "simulated": False}
        for i, (v, x, f) in enumerate([("PASS", 480.0, 455.0), ("FAIL", 300.0, 456.0), ("UNKNOWN", None, None)])
    ]  # fmt: skip
    figure = charts.of_check({"rows": rows})
    assert figure is not None
    shown = {trace["name"]: (trace["x"], trace["y"]) for trace in figure["data"]}
    assert shown["PASS"] == (["n0"], [480.0])
    assert shown["FAIL"] == (["n1"], [300.0])
    assert shown["UNKNOWN"][0] == ["n2"]
    assert shown["UNKNOWN"][1][0] < 300
    assert shown["floor"] == (["n0", "n1"], [455.0, 456.0])
    assert charts.of_check({"rows": rows[2:]}) is None


def test_junit_is_xml_and_counts_what_it_holds(hostile: dict[str, t.Any]) -> None:
    root = ElementTree.fromstring(formats.junit(hostile))
    for suite in root:
        cases = list(suite)
        assert int(suite.attrib["tests"]) == len(cases)
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.attrib[name]) == sum(case.find(tag) is not None for case in cases)
    words = [r["verdict"] for s in hostile["stages"] for g in s["checks"] for r in g["rows"]]
    assert len(root.findall(".//failure")) == words.count("FAIL") + 1


@pytest.mark.parametrize("size", [1, formats.ROWS_TOGETHER, 2 * formats.ROWS_TOGETHER + 1])
def test_json_in_parts_is_json_at_once(size: int) -> None:
    made = model.build(*samples.fleet(size, 2))
    text = formats.as_json(made)
    assert json.loads(text) == json.loads(json.dumps(made))
    rows = [json.dumps(row, sort_keys=True) for check in made["stages"][0]["checks"] for row in check["rows"]]
    assert all(", ".join(rows[first : first + size]) in text for first in (0, size))


def _as_elements_say_it(text: str) -> str:
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(ElementTree.fromstring(text), encoding="unicode")}\n'


def test_junit_is_what_elementtree_would_write(hostile: dict[str, t.Any]) -> None:
    text = formats.junit(hostile)
    assert text == _as_elements_say_it(text)


@hypothesis.given(st.text() | st.sampled_from(samples.HOSTILE), st.sampled_from(tuple(samples.PARTS)))
def test_junit_says_any_text_and_holds_no_markup_of_it(sent: str, word: str) -> None:
    one = samples.verdict(sent, "stack", sent, word, variant=sent, reason=sent)
    text = formats.junit(model.build(samples.plan([sent], ["stack"]), samples.judgement([one], why=sent)))
    assert text == _as_elements_say_it(text)
    shown = re.sub(r"[\t\n]", " ", formats.plain(sent))
    case = ElementTree.fromstring(text)[0][0]
    assert case.attrib == {"name": re.sub(r"[\t\n]", " ", formats.plain(f"{sent} {sent}".strip())), "classname": shown, "time": "0.000"}
    told = [(inner.tag, inner.text, inner.get("message")) for inner in case]
    message = f"{word}: {shown}"
    assert told == {
        "FAIL": [("failure", None, message)],
        "UNKNOWN": [("error", None, message)],
        "WARN": [("system-out", message, None)],
        "PASS": [],
    }.get(word, [("skipped", None, message)])


def test_whatever_cannot_be_seen_is_shown_as_its_code() -> None:
    for code in range(0x110000):
        shown = formats.plain(chr(code))
        assert shown == (f"\\x{code:02x}" if formats._UNSEEN.match(chr(code)) else chr(code))


def test_prometheus_text_has_one_sample_for_a_line_and_each_family_once(hostile: dict[str, t.Any]) -> None:
    lines = formats.prometheus(hostile).splitlines()
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    current = ""
    seen = set()
    for line in lines:
        if line.startswith("# TYPE"):
            current = line.split()[2]
        elif not line.startswith("# HELP"):
            assert SAMPLE.fullmatch(line), line
            assert line.startswith(current + "{")
            assert line.rpartition(" ")[0] not in seen
            seen.add(line.rpartition(" ")[0])


def test_markdown_tables_keep_their_columns(hostile: dict[str, t.Any]) -> None:
    columns = 0
    for line in formats.markdown(hostile).splitlines():
        bars = len(re.findall(r"(?<!\\)(?:\\\\)*\|", line))
        if not line.startswith("|"):
            assert not bars, line
            columns = 0
        else:
            assert columns in (0, bars), line
            columns = bars


@hypothesis.given(st.text())
def test_a_markdown_cell_is_one_line_without_markup(text: str) -> None:
    cell = formats.cell(text)
    assert "\n" not in cell
    # What is left after taking the escapes away holds no character that means something.
    assert not re.search(r"[`*_\[\]<>#|!~&]", re.sub(r"\\.", "", cell))
    assert not re.search(r"(?i)\bhttps?:", cell)


@hypothesis.given(st.text(), st.integers(1, 80))
def test_terminal_text_is_cut_and_padded_to_its_columns(text: str, width: int) -> None:
    text = " ".join(formats.plain(text).split())
    assert terminal.columns(terminal.fit(text, width + 3)) <= width + 3
    assert terminal.columns(terminal.pad(text, width + 3)) == width + 3


@hypothesis.given(st.text(), st.integers(60, 90))
def test_terminal_text_goes_on_in_the_next_line_and_none_is_lost(text: str, width: int) -> None:
    text = " ".join(formats.plain(text).split())
    lines = [line for line, _colour in terminal.wrapped(f"FAIL    {text}", width, None, 8)]
    assert all(terminal.columns(line) <= width or len(line.split()) == 1 for line in lines), "only a word that is longer than a line is"
    assert "".join("".join(lines).split()) == "".join(f"FAIL{text}".split())


@pytest.mark.parametrize("make", [formats.markdown, page.render, lambda made: "\n".join(line for line, _ in terminal.coloured(made, 100))])
def test_the_end_of_a_long_reason_is_shown(make: t.Callable[[dict[str, t.Any]], str]) -> None:
    """Where the advice stands."""
    reason = f"a: {'it could not be measured ' * 30} and set acceptance\u00b7become=false"
    verdicts = [samples.verdict("a", "stack", "facts", "UNKNOWN", reason=reason)]
    text = make(model.build(samples.plan(["a"], ["stack"]), samples.judgement(verdicts, notes=[reason])))
    assert text.count("become=false") + text.count("become\\=false") >= 2


@hypothesis.given(st.recursive(st.text() | st.floats(allow_nan=False, allow_infinity=False), lambda inner: st.lists(inner, max_size=3)))
def test_a_figure_in_a_script_comes_back_as_it_was(value: t.Any) -> None:
    text = str(page.figure({"value": value}))
    assert "<" not in text
    assert json.loads(text) == {"value": value}


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (0, "0"), (0.0, "0"), (7, "7"), (478.0, "478.0"), (0.84412, "0.8441"), (17179869184.0, "17179869184"), (2048, "2048")],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert formats.number(value) == text


def test_the_terminal_lists_a_small_fleet_whole_and_of_a_large_one_what_is_wrong() -> None:
    small = [line for line, _ in terminal.coloured(model.build(*samples.fleet(14, 2)), 120)]
    assert sum(line.startswith("node0") for line in small) == 14
    made = model.build(*samples.fleet(2000, 5))
    large = terminal.coloured(made, 120)
    listed = [line.split() for line, _ in large if line.startswith("node[")]
    assert sorted(row[-1] for row in listed) == ["FAIL", "UNKNOWN", "WARN"]
    assert any(re.fullmatch(r"and \d+ nodes with PASS", line) for line, _ in large)
    assert large[-1][1] == "red"
    assert max(terminal.columns(line) for line, _ in large) <= 120
    colours = {line.split()[-1]: colour for line, colour in large if line.startswith("node[")}
    assert colours["FAIL"] == "red"
