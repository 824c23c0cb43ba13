# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which pods stay for a look, and by what they are known meanwhile."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import marks, settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import probe

RUN = "20260101T000000Z-0a1b2c"
GOOD, BAD = observation.measured("a"), observation.failed("a", "tool_failed", "no")


@pytest.mark.parametrize(
    ("said", "whole"),
    [
        ({"observations": [GOOD]}, True),
        ({"observations": [GOOD, BAD]}, False),
        ({"observations": []}, False),
        ({"state": "refused"}, False),
        ({"observations": ["text"]}, False),
    ],
)
def test_what_was_not_measured_has_failed(said: dict[str, t.Any], whole: bool) -> None:
    assert probe.measured(said) == whole


class Namespace:
    """As much of a client as is needed to say whose pods they are."""

    name = namespace = "lab"


def made(**variables: t.Any) -> probe.NodeProbe:
    given = {f"acceptance_kube_{name}": value for name, value in {"image": "a:1", **variables}.items()}
    return probe.NodeProbe(t.cast(Client, Namespace()), settings.pods(given), RUN, "gemm", 100.0, b"")


def test_pods_that_may_be_kept_stay_and_have_a_deadline() -> None:
    kept, usual = made(keep="on_failure", keep_seconds=50), made()
    assert kept.stay and not usual.stay and kept.launch.deadline_s == usual.launch.deadline_s + 50
    metadata = kept.launch.metadata("n", "probe", kept.settings)
    assert metadata["annotations"][marks.CONTROLLER] == marks.KEPT and not marks.abandoned({"metadata": metadata})


@pytest.mark.parametrize(("wrong", "words"), [({"keep": "yes"}, "found 'yes'"), ({"keep": "on_failure", "launcher": "job"}, "found 'job'")])
def test_a_wrong_value_of_keep_is_refused(wrong: dict[str, t.Any], words: str) -> None:
    with pytest.raises(KubeError, match=words):
        made(**wrong)
