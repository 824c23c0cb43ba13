# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each role has the files that Galaxy asks for, written from its argument specs."""

from __future__ import annotations

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))

import role_pages  # noqa: E402


@pytest.mark.parametrize("role", sorted((ROOT / "roles").iterdir()), ids=lambda role: role.name)
def test_pages_are_those_of_the_argument_specs(role: pathlib.Path) -> None:
    for path, text in role_pages.pages(role).items():
        assert path.is_file() and path.read_text(encoding="utf-8") == text, f"{path}: run python tests/tools/role_pages.py"
