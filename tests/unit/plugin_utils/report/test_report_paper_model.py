# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is printed of a report, before a browser lays it out."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats, model, page, paper
from harness import report_samples as samples


def built(*run: t.Any) -> t.Any:
    return model.build(*run)


def test_each_finding_has_a_number_which_its_node_names() -> None:
    made = built(*samples.fleet(40, 10))
    printed = paper.of(made)
    assert [finding["number"] for finding in printed["findings"]] == list(range(1, len(made["causes"]) + 1))
    numbers = {finding["cause"]["subject"]: finding["number"] for finding in printed["findings"]}
    assert numbers
    assert {row["node"]["name"]: row["findings"] for row in printed["nodes"] if row["findings"]} == {
        name: [number] for name, number in numbers.items()
    }


def test_a_large_fleet_is_printed_in_ranges_and_its_findings_in_lines() -> None:
    made = built(*samples.fleet(2000, 20))
    printed = paper.of(made)
    assert len(printed["findings"]) == paper.FULL and len(printed["lines"]) == paper.FINDINGS - paper.FULL
    assert printed["hidden"] == len(made["causes"]) - paper.FINDINGS > 0
    assert len(printed["nodes"]) == paper.NODES and set(printed["ranges"]) >= {"PASS"}
    assert all(row["node"]["verdict"] not in paper.GOOD for row in printed["nodes"])


def test_the_foot_of_a_page_is_nothing_but_the_run_and_its_fingerprint() -> None:
    made = {**built(*samples.fleet(3, 1)), "run_id": 'x"; } body { display: none }', "fingerprint": "ab</style>12"}
    assert paper.mark(t.cast(t.Any, made)) == "Run xbodydisplaynone  ·  abstyle12"


def test_checks_that_were_not_measured_are_one_click_away() -> None:
    made = built(*samples.fleet(500, 20))
    text = page.render(made)
    not_measured = made["coverage"]["not_measured"]
    assert len(not_measured) == made["coverage"]["planned"] - made["coverage"]["measured"] > 0
    assert '<a href="#not-measured">' in text and 'id="not-measured"' in text and text.count(not_measured[0]) == 3  # and twice on paper


def test_a_number_that_is_only_shown_is_no_judged_pass() -> None:
    names, check = ["a", "b", "c"], {"value": 50.0, "unit": "GB/s", "metric": "bandwidth"}
    verdicts = [samples.verdict(name, "gpu_memory", "bidirectional_all", **check) for name in names]
    verdicts += [samples.verdict(name, "gpu_memory", "d2h_all", **check) for name in names]
    plan = samples.plan(names, [])
    plan.stages.append({"name": "gpu_memory", "role": "gpufleet.acceptance.gpu_memory"})
    made = built(plan, samples.judgement(verdicts))
    (stage,) = made["stages"]
    assert {group["check"]: group["shown_only"] for group in stage["checks"]} == {"bidirectional_all": 3, "d2h_all": 0}
    text = page.render(made)
    assert text.count("3 PASS of numbers that are shown and not judged") == 1
    assert "PASS without a judgement of the number, which is only shown: bidirectional_all." in text
    # Nothing that is only shown has the colour of a judged PASS: in its rows, its counts, its chart and the rows of a node.
    of_check = text.partition("<h3>bidirectional_all")[2].partition("<h3>d2h_all")[0]
    assert of_check.count('<span class="b shown">○ PASS, not judged</span>') == 4 and 'class="b PASS"' not in of_check
    assert '"name":"PASS, not judged","meta":"soft"' in of_check and '"meta":"PASS"' not in of_check
    index = json.loads(text.partition('id="nodes-index">')[2].partition("</script>")[0])
    assert [index["checks"][place][1] for place in index["shown"]] == ["bidirectional_all"]
    markdown = formats.markdown(made)
    assert markdown.count("| PASS, not judged |") == 3 and markdown.count("| PASS |") >= 3


def test_a_signature_under_a_run_that_is_not_accepted_accepts_nothing() -> None:
    made = built(*samples.fleet(40, 10))
    assert not made["accepted"]
    assert "NOT ACCEPTED.</b> A signature confirms that the findings were received; it accepts nothing." in page.render(made)
    assert "it accepts nothing" not in page.render({**made, "accepted": True, "word": "ACCEPTED"})


def test_no_check_of_a_finding_says_what_its_first_line_says() -> None:
    made = built(*samples.fleet(40, 10))
    reasons = ("n1: 25 GB/s is low", "n1/gpu/GPU-1: 25 GB/s is low", "27 GB/s is low")
    said = "n1 GPU 1: gpu_memory d2h: 25 GB/s is low; also d2h_all"
    about = {"subject": "n1/gpu/GPU-1", "name": "n1 GPU 1", "said": said, "findings": [{"reason": reason} for reason in reasons]}
    (finding,) = paper.of(t.cast(t.Any, {**made, "causes": [{**made["causes"][0], **about}]}))["findings"]
    assert [check["reason"] for check in finding["checks"]] == ["27 GB/s is low"]
