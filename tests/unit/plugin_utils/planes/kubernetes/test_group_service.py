# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is said of the Service of a group whose pods do not come together."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings, states
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.groups import group, group_objects


class Slices:
    """An API that serves EndpointSlices, or refuses to."""

    name = namespace = "lab"

    def __init__(self, items: list[dict[str, t.Any]] | None) -> None:
        self.items = items

    def get(self, path: str, **query: t.Any) -> dict[str, t.Any]:
        assert path.endswith("/endpointslices") and query["labelSelector"] == "kubernetes.io/service-name=group"
        if self.items is None:
            raise KubeError("no_permission", "no", 403)
        return {"items": self.items}


def ends(*addresses: str) -> dict[str, t.Any]:
    return {"endpoints": [{"addresses": [address]} for address in addresses]}


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([ends("10.0.0.1"), ends("10.0.0.2")], "Service group has 2 endpoints"),
        ([ends("10.0.0.1")], "Service group has 1 endpoints, and none for w-2"),
        ([{"endpoints": None}], "Service group has no endpoints"),
        ([], "Service group has no endpoints, and no EndpointSlice"),
        (None, ""),
    ],
)
def test_a_service_with_wrong_endpoints_says_where_it_leads(items: list[dict[str, t.Any]] | None, words: str) -> None:
    shape = group_objects.Shape("job", "group", ["n1", "n2"], 2, devices=8, slots=8)
    wanted = settings.pods({"acceptance_kube_image": "a:1"})
    launched = group.GroupLaunch(
        t.cast(Client, Slices(items)), wanted, shape, "20260101T000000Z-0a1b2c", "own", 1.0, b"", {}, lambda _seats: {}
    )
    for number in (1, 2):
        address = f"10.0.0.{number}"
        launched.pods[str(number)] = group.GroupPod(
            "n", str(number), f"w-{number}", states.State(states.READY), address=address, worker=True
        )
    assert launched._service() == words


class Taking(Slices):
    """An API that takes objects and removes them."""

    def __init__(self) -> None:
        super().__init__([])
        self.did: list[str] = []

    def post(self, _path: str, body: dict[str, t.Any]) -> dict[str, t.Any]:
        self.did.append(f"make {body['data']['at']}")
        assert body["metadata"]["labels"]["component"] == "sign"
        return body

    def delete(self, _path: str, **query: t.Any) -> None:
        assert query["fieldSelector"].endswith("-sign") and "gpufleet.acceptance/launch=" in query["labelSelector"]
        self.did.append("remove")


def test_the_sign_of_the_controller_is_another_one_every_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Taking()
    shape = group_objects.Shape("job", "group", ["n1", "n2"], 2)
    wanted = settings.pods({"acceptance_kube_image": "a:1"})
    launched = group.GroupLaunch(t.cast(Client, api), wanted, shape, "20260101T000000Z-0a1b2c", "own", 1.0, b"", {}, lambda _seats: {})
    for second in range(0, 100, 5):
        monkeypatch.setattr(group.time, "time", lambda now=1e9 + second: now)
        launched._sign(1000.0 + second)
    assert api.did == ["make 1000000000", "remove", "make 1000000030", "remove", "make 1000000060", "remove", "make 1000000090"]
