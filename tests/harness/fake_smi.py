# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small real nvidia-smi: a shell script that prints recordings, changed by files beside it."""

from __future__ import annotations

import pathlib
import typing as t

SCRIPT = """#!/bin/sh
here=${0%/*}
echo "$@" >>"$here/calls"
case "$*" in
"-q -x") cat "$here/q.xml"; [ -r "$here/next.xml" ] && cp "$here/next.xml" "$here/q.xml"; exit $(cat "$here/rc") ;;
"nvlink -s") cat "$here/nvlink-s.txt" ;;
"nvlink -e") cat "$here/nvlink-e.txt"; [ -r "$here/next-e.txt" ] && cp "$here/next-e.txt" "$here/nvlink-e.txt" ;;
*-lms*) echo $$ >"$here/sampler"; while :; do cat "$here/samples"; : >"$here/sampled"; [ -r "$here/dies" ] && exit 3; sleep 0.1; done ;;
esac
exit 0
"""
UUID = "GPU-00000000-0000-4000-8000-00000000000{}"


class FakeSmi:
    """`path` is the program; the files beside it are what it prints. `next.xml` is printed from the second time on."""

    def __init__(self, folder: pathlib.Path, recorded: pathlib.Path) -> None:
        self.folder = folder
        self.path = str(folder / "nvidia-smi")
        (folder / "nvidia-smi").write_text(SCRIPT)
        (folder / "nvidia-smi").chmod(0o755)
        self.write("q.xml", (recorded / "nvidia-smi-q.xml").read_text())
        for name in ("nvlink-s", "nvlink-e"):
            self.write(f"{name}.txt", (recorded / f"nvidia-smi-{name}.txt").read_text())
        self.write("rc", "0")
        self.write("samples", "".join(self.sample(i) for i in range(4)))

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def calls(self) -> list[str]:
        return self.read("calls").splitlines()

    @staticmethod
    def sample(
        index: int, clock: t.Any = 1980, power: t.Any = 690.5, reasons: str = "0x0000000000000004", busy: t.Any = 99, gen: t.Any = 5,
        width: t.Any = 16,
    ) -> str:  # fmt: skip
        return f"{UUID.format(index)}, {clock}, {power}, {50 + index}, {reasons}, {busy}, {gen}, {width}\n"
