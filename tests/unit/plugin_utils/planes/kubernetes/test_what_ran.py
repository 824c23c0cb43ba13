# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The image that ran stands in every measurement, and one that may be another tomorrow is a WARN."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.stages.nodes import with_floating, with_image
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from harness.records import make_plan

RUN = "20260101T000000Z-0a1b2c"
SUBJECT = {"kind": "node", "id": "lab/n1", "members": []}


def judged(image: str) -> verdict.Judgement:
    """A run of one check that was done in a pod of `image`."""
    ran = {"image": image, "image_id": "r/tester@sha256:0a", "pod": "p"}
    said = with_floating(with_image({"observations": [observation.measured("facts", context={"facts": {}})]}, ran, ()))
    records = [
        {
            **{name: seen[name] for name in observation.FIELDS if name not in ("part", "members", "subject")},
            **{"schema": "measurement/v1", "run_id": RUN, "stage": "stack", "subject": SUBJECT, "plane": "kubernetes", "target": "lab"},
            **{"attempt": 1, "raw": None, "raw_sha256": None},
        }
        for seen in said["observations"]
    ]
    item = {"stage": "stack", "check": "facts", "variant": "", "subject": SUBJECT, "target": "lab"}
    plan = make_plan({"run_id": RUN, "items": [item]})
    return verdict.judge(plan, records, lambda _node, _target: Expectations([]), stages=registry.shipped().values())


def verdicts(found: verdict.Judgement) -> dict[str, str]:
    return {one["name"]: one["verdict"] for one in found.nodes}


@pytest.mark.parametrize("image", ["tester", "r:5000/tester", "r:5000/tester:latest"])
def test_an_image_that_may_be_another_tomorrow_is_a_warning_and_no_refusal(image: str) -> None:
    found = judged(image)
    assert found.accepted and verdicts(found) == {"lab/n1": "WARN"} and found.planned[0]["verdict"] == "PASS"
    (warning,) = found.extras
    assert (warning["verdict"], warning["reason_code"]) == ("WARN", "floating_image")
    assert image in warning["reason"] and "sha256:0a" in warning["reason"]


@pytest.mark.parametrize("image", ["tester:1", "r:5000/tester@sha256:0a"])
def test_an_image_with_a_fixed_tag_or_digest_is_no_warning(image: str) -> None:
    found = judged(image)
    assert found.accepted and not found.extras and verdicts(found) == {"lab/n1": "PASS"}


def test_image_and_digest_are_known_where_nothing_was_said() -> None:
    said = with_image({"state": "refused"}, {"image": "a:1", "image_id": "sha256:1", "pod": "p"}, ["privileged"])
    assert said["ran"] == {"image": "a:1", "image_id": "sha256:1", "allowed": ["privileged"]}


def test_what_is_no_observation_is_left_for_others_to_refuse() -> None:
    bad = {"observations": [None, {"context": "text"}]}
    assert with_image(bad, {"image": "a"}, ())["observations"] == [None, {"context": "text"}]
