#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Lint of expectations against physics: the shipped tables with each overlay, or the files named on the command line.

Prints the findings; exit status 1 where one is an error, 0 otherwise.
"""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / ".collections"))

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, physics


def main(names: list[str]) -> int:
    """Lint each of `names` alone, or everything that is shipped."""
    findings: set[physics.Finding] = set()
    count = 0
    try:
        if names:
            for name in names:
                content, ignored = expectations.read(name)
                print(*ignored, sep="\n", end="\n" if ignored else "")
                entries = [expectations.parse(item, f"{name}[{n}]", rank=1) for n, item in enumerate(content)]
                findings.update(expectations.lint_own(entries, expectations.shipped().entries))
                count += len(entries)
        else:
            overlays = sorted(p.stem for p in (expectations.FILES / "overlays").glob("*.yml"))
            for chosen in [(), *((name,) for name in overlays)]:
                entries = list(expectations.shipped(chosen).entries)
                findings.update(physics.lint(entries))
                count = max(count, len(entries))
    except expectations.ExpectationError as error:
        print(f"error: {error}")
        return 1
    for finding in sorted(findings, key=str):
        print(finding)
    errors = sum(finding.level == "error" for finding in findings)
    print(f"{count} expectations, {errors} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
