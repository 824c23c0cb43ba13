#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the programs of the rigs before the tests that need them: inside a test, the build would run into the test's time limit.

    programs.py [--quick]    with --quick only those of the tests of `make test` (tests/integration/quick.py)
"""

from __future__ import annotations

import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from integration import quick
from rigs import common
from rigs.kubernetes import build
from rigs.otel import otel

if __name__ == "__main__":
    if os.geteuid():
        sys.exit(0)  # tests that need a rig will be skipped, as packages.py says
    is_quick = sys.argv[1:] == ["--quick"]
    takes = "9 minutes on two quiet cores" if is_quick else "13 minutes on two quiet cores and the OpenTelemetry collector 4"
    began = time.monotonic()
    print(
        f"the programs of the rigs, kept in {common.CACHE}: where none is built yet, Kubernetes takes {takes};"
        " three times as long beside other work",
        file=sys.stderr, flush=True,
    )  # fmt: skip
    try:
        if is_quick:
            build.programs(quick.OPERATORS, kwok=False)
        else:
            build.programs()
            otel.program()
    except common.RigError as error:
        sys.exit(f"{error}")
    print(f"the programs of the rigs are there ({time.monotonic() - began:.0f} s)", file=sys.stderr)
