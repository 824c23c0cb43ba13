# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What messages call a playbook can be given to ansible-playbook where the collection lies."""

from __future__ import annotations

import pathlib
import re

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_a_playbook_is_a_path_in_a_checkout_and_a_full_name_if_installed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert collection.playbook("judge") == "playbooks/judge.yml"
    (tmp_path / "MANIFEST.json").write_text("{}")
    monkeypatch.setattr(collection, "ROOT", tmp_path)
    assert collection.playbook("judge") == "gpufleet.acceptance.judge"


def test_every_playbook_that_a_message_names_exists() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "plugins/plugin_utils").rglob("*.py")]
    named = {name for text in texts for name in re.findall(r"collection\.playbook\([\"'](\w+)[\"']\)", text)}
    assert {"judge", "resume", "history_import"} <= named
    assert [name for name in sorted(named) if not (ROOT / f"playbooks/{name}.yml").is_file()] == []
