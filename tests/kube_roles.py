# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rights of files/rbac, as the user of a test gets them."""

from __future__ import annotations

import pathlib
import typing as t

import yaml

RBAC = pathlib.Path(__file__).resolve().parents[1] / "files" / "rbac"


def roles(*names: str) -> list[dict[str, t.Any]]:
    """The named Roles and the ClusterRole that goes with every one."""
    return [yaml.safe_load((RBAC / f"{name}.yaml").read_text()) for name in (*names, "nodes")]
