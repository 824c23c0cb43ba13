#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes each role's README.md and meta/main.yml, which Galaxy asks for, from its argument specs: python tests/tools/role_pages.py"""

from __future__ import annotations

import pathlib
import re
import typing as t

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = """# {title}

<!-- Written by tests/tools/role_pages.py from meta/argument_specs.yml. -->

{description}

Variables with their types and defaults: `ansible-doc -t role gpufleet.acceptance.{name}`, or `defaults/main.yml`.
"""
METADATA = """---
# Written by tests/tools/role_pages.py from argument_specs.yml.
galaxy_info:
  author: {author}
  description: {title}
  license: GPL-3.0-or-later
  min_ansible_version: "{ansible}"
dependencies: []
"""


def pages(role: pathlib.Path) -> dict[pathlib.Path, str]:
    """Return the text of each file of a role that this tool writes."""
    spec = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]["main"]
    requires = yaml.safe_load((ROOT / "meta/runtime.yml").read_text(encoding="utf-8"))["requires_ansible"]
    description = spec["description"]
    paragraphs = [description] if isinstance(description, str) else description
    fields: dict[str, t.Any] = {
        "name": role.name,
        "title": spec["short_description"],
        "author": spec["author"],
        "description": "\n\n".join(markdown(text) for text in paragraphs),
        "ansible": re.sub(r"^>=|\.\d+$", "", requires),
    }
    return {role / "README.md": README.format(**fields), role / "meta/main.yml": METADATA.format(**fields)}


def markdown(text: str) -> str:
    """Return a description's text with Ansible's markup, such as O(name) and C(text), as code of Markdown."""
    return re.sub(r"\b[A-Z]\(([^()]*)\)", r"`\1`", text.strip())


def main() -> None:
    for role in sorted((ROOT / "roles").iterdir()):
        for path, text in pages(role).items():
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
