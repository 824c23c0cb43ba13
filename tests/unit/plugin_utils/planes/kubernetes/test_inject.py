# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user's image lacks comes from another image or a volume, at the same place, and changes nothing else of the pod."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import inject
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "expected either an image or a volume"),
        ({"image": "a", "volume": {"hostPath": {"path": "/x"}}}, "expected either an image or a volume"),
        ({"volume": "/x"}, "expected either an image or a volume"),
        ({"image": "a", "folder": "/x"}, "found key 'folder'"),
        *(({"image": "a", "path": path}, f"found path {path!r}") for path in ("/", "opt/x", "/opt/../etc", "/gpufleet/x", "//x", "/opt/")),
    ],
)
def test_a_wrong_acceptance_kube_inject_is_refused(given: dict[str, t.Any], said: str) -> None:
    with pytest.raises(KubeError, match="acceptance_kube_inject") as error:
        inject.folder(given)
    assert said in error.value.reason


def spec() -> dict[str, t.Any]:
    return {
        "containers": [{"name": "main", "env": [], "volumeMounts": [], "imagePullPolicy": "Never"}],
        "volumes": [],
        "initContainers": [{"name": "of-the-user"}],
    }


def test_an_image_is_copied_first_with_what_the_pod_may_use() -> None:
    made = spec()
    inject.add(made, {"image": "tools:1"}, {"limits": {"cpu": "1"}})
    first, second = made["initContainers"]
    assert (first["image"], first["imagePullPolicy"], first["resources"]) == ("tools:1", "Never", {"limits": {"cpu": "1"}})
    assert first["command"] == ["cp", "-RP", "/opt/gpufleet/.", inject.COPY] and second["name"] == "of-the-user"
    assert first["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    (container,) = made["containers"]
    assert container["env"] == [{"name": inject.VARIABLE, "value": inject.FOLDER}]
    assert container["volumeMounts"] == [{"name": inject.CONTAINER, "mountPath": inject.FOLDER, "readOnly": True}]
    assert made["volumes"] == [{"name": inject.CONTAINER, "emptyDir": {}}]


def test_a_volume_is_mounted_and_nothing_runs_before() -> None:
    made, volume = spec(), {"hostPath": {"path": "/srv/tools"}}
    inject.add(made, {"volume": volume, "path": "/srv/tools"}, {})
    assert made["volumes"] == [{"name": inject.CONTAINER, **volume}] and len(made["initContainers"]) == 1
    assert made["containers"][0]["volumeMounts"][0]["mountPath"] == "/srv/tools"
