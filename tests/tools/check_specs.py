#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each role's argument specs and defaults must name the same variables, with the same default values."""

from __future__ import annotations

import pathlib
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Computed from the others, or deliberately without a value.
COMPUTED = ("_checks",)


def problems(role: pathlib.Path) -> list[str]:
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text(encoding="utf-8")) or {}
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))
    options = specs["argument_specs"]["main"]["options"]
    found = []
    for name in sorted(set(defaults) | set(options)):
        if name.endswith(COMPUTED):
            continue
        if name not in options:
            found.append(f"{role.name}: {name} has a default and no argument spec")
        elif name not in defaults:
            found.append(f"{role.name}: {name} has an argument spec and no default")
        elif isinstance(defaults[name], str) and "{{" in defaults[name]:
            continue  # what -e calls by a shorter name
        elif defaults[name] != options[name].get("default"):
            found.append(f"{role.name}: {name}: default {defaults[name]!r}, argument spec {options[name].get('default')!r}")
    return found


def main() -> int:
    found = [line for role in sorted((ROOT / "roles").iterdir()) for line in problems(role)]
    print("\n".join(found) or "argument specs and defaults agree")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
