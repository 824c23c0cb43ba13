# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import client, settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.groups import group_module


class Lab:
    """A cluster of two nodes with eight GPUs each."""

    name = "lab"

    def pages(self, _path: str, **_query: t.Any) -> t.Iterator[dict[str, t.Any]]:
        status = {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}
        yield {"items": [{"metadata": {"name": name}, "spec": {}, "status": status} for name in ("n1", "n2")]}


def options(**given: t.Any) -> dict[str, t.Any]:
    found = ArgumentSpecValidator(group_module.OPTIONS).validate({"command": ["hostname"], **given})
    assert not found.error_messages
    return t.cast("dict[str, t.Any]", found.validated_parameters)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"timeout": 0}, "timeout: found 0.0, expected at least 1$"),
        ({"join_timeout": -1}, "join_timeout: found -1"),
        ({"node_count": -1}, "node_count: found -1"),
        ({"gpus_per_node": -1}, "gpus_per_node: found -1, expected at least 0$"),
        ({"ranks_per_node": 0}, "ranks_per_node: found 0"),
        ({"ssh_port": 99999}, "ssh_port: found 99999, expected at least 1 and at most 65535"),
        ({"command": []}, "expected a program"),
    ],
)
def test_numbers_that_cannot_be_are_refused_before_anything_is_asked(wrong: dict[str, t.Any], words: str) -> None:
    made = group_module.GroupAction.__new__(group_module.GroupAction)
    with pytest.raises(client.KubeError, match=words) as caught:
        made.act(t.cast(client.Client, None), options(**wrong), {"acceptance_kube_image": "a:1"})
    assert caught.value.reason_code == "bad_spec"


def test_more_gpus_than_a_node_has_are_not_waited_for() -> None:
    pods = settings.pods({"acceptance_kube_image": "a:1"})
    lab = t.cast(client.Client, Lab())
    assert group_module._placement(lab, pods, options(gpus_per_node=8)) == (["n1", "n2"], 2, 8)
    with pytest.raises(client.KubeError, match=r"node n1 has 8 nvidia\.com/gpu, gpus_per_node asks for 9"):
        group_module._placement(lab, pods, options(gpus_per_node=9))
