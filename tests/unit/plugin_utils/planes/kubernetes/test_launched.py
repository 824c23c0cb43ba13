# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A launcher on which nobody acts gives way to the next one, whoever asks for a group."""

from __future__ import annotations

import os
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.groups import group


class Made:
    """A group whose launcher has no operator, or which answers."""

    def __init__(self, kind: str, code: str) -> None:
        self.kind, self.code = kind, code
        self.remaining = [f"pods/{kind}"]
        self.cleaned = 0

    def run(self) -> group.GroupResult:
        said = {"state": "refused", "reason_code": self.code, "reason": f"nobody takes up {self.kind}"} if self.code else {"state": "done"}
        return group.GroupResult(said, {"launcher": self.kind}, {})

    def clean(self) -> list[str]:
        self.cleaned += 1
        return []


@pytest.mark.parametrize(
    ("codes", "taken", "told"),
    [
        ({"mpijob": "no_launcher", "volcano": "no_launcher", "job": ""}, "job", ["not mpijob: ", "not volcano: "]),
        ({"mpijob": "no_launcher", "job": "no_launcher"}, "job", ["not mpijob: "]),
        ({"mpijob": "image_pull", "job": ""}, "mpijob", []),
    ],
)
def test_the_first_launcher_on_which_an_operator_acts_is_taken(codes: dict[str, str], taken: str, told: list[str]) -> None:
    made: list[Made] = []

    def make(kind: str) -> t.Any:
        made.append(Made(kind, codes[kind]))
        return made[-1]

    why: list[str] = []
    answer, left = group.launched(list(codes), make, os.getppid(), "lab", why.append)
    assert answer.launch_facts["launcher"] == taken and left == [f"pods/{taken}"]
    assert [line[: len(words)] for line, words in zip(why, told, strict=True)] == told
    assert all(one.cleaned == 1 for one in made), "each is removed before the next is made"
