# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drills that plant faults at random places tell a judge that sees them from one that does not."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import judgement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import Finding
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import storage as stage
from drills import cabling, storage

SEED = 11


def only(monkeypatch: pytest.MonkeyPatch, drill: t.Any, *plants: t.Any) -> None:
    """Let a drill plant these faults alone, once each, and judge few healthy fleets."""
    faults = [fault for fault in drill.FAULTS if fault[-1] in plants]
    assert len(faults) == len(plants)
    for name, value in (("FAULTS", faults), ("TIMES", 1), ("HEALTHY", 2)):
        monkeypatch.setattr(drill, name, value)


def test_faults_of_cables_are_found_and_healthy_fabrics_accepted(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, cabling, cabling.missing, cabling.slow_end, cabling.hot, cabling.silent_port)
    assert cabling.accepted(tmp_path / "drill", SEED) == (4, [], [])


def test_the_drill_of_cables_notices_a_judge_that_sees_nothing_and_one_that_blames_another(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, cabling, cabling.missing)
    monkeypatch.setattr(judgement, "findings", lambda *_asked: [])
    _planted, accepts, rejects = cabling.accepted(tmp_path / "blind", SEED)
    assert len(accepts) == 1 and f"(seed {SEED}, trial 0): found nothing" in accepts[0] and rejects == []
    monkeypatch.setattr(judgement, "findings", lambda *_asked: [Finding("FAIL", "link_slow", "words")])
    _planted, accepts, rejects = cabling.accepted(tmp_path / "wrong", SEED)
    assert len(accepts) == 1 and any("healthy" in line for line in rejects)


def test_faults_of_file_systems_are_found_and_healthy_ones_accepted(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, storage, storage.full, storage.slow_disk, storage.wrong_data, storage.stalled)
    assert storage.accepted(tmp_path, SEED) == (4, [], [])


def test_the_drill_of_file_systems_notices_a_judge_that_does_not_compare_mounts(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, storage, storage.other_options)
    monkeypatch.setattr(stage, "_mounts", lambda *_asked: iter(()))
    _planted, accepts, rejects = storage.accepted(tmp_path, SEED)
    assert len(accepts) == 1 and "other mount options than elsewhere" in accepts[0] and rejects == []
