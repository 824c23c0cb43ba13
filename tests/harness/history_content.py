# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A history of one run with nodes of any name, pairs and a regression, put there as a judgement would."""

from __future__ import annotations

import pathlib

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import importing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import Store, url_of
from harness import records
from harness import report_samples as samples


def content(names: list[str], pairs: list[tuple[str, str]], judged_at: str = "2026-11-21T07:00:00Z") -> importing.Content:
    """The first node has become worse, the second is rejected, and the first pair is slow."""
    verdicts = [samples.verdict(name, "gemm", "bf16", value=650.0, unit="TFLOPS", floor=600.0, metric="tflops") for name in names]
    for one in verdicts[1:2]:
        one.update(verdict="FAIL", value=300.0)
    for number, (a, b) in enumerate(pairs):
        one = samples.verdict(f"{a}|{b}", "rdma", "write_bw", "FAIL" if number == 0 else "PASS", value=390.0 - number, unit="Gb/s")
        one.update(metric="bandwidth", subject={"kind": "pair", "id": f"{a}|{b}", "members": [a, b]})
        verdicts.append(one)
    for one in verdicts:
        one["regressed"] = one["subject"]["id"] == names[0]
    found = [
        records.measurement(samples.measurement(v["subject"]["id"], v["stage"], v["check"], subject=v["subject"])) for v in verdicts
    ]
    judging = importing.Judging(
        "", "d" * 64, judged_at, True, "ACCEPTED", "fine", {"PASS": len(verdicts)}, {"planned": len(verdicts), "measured": len(verdicts)},
        [records.verdict(one) for one in verdicts],
    )  # fmt: skip
    return importing.Content(samples.plan(names, ["gemm", "rdma"]), "j" * 64, found, [judging])


def put(results: pathlib.Path, what: importing.Content) -> None:
    with Store(url_of(results), make=True) as store:
        importing.write(store, what)
