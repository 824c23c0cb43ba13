# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fuzz target: hccl_test text. Lies are read by somebody who says what a healthy run needs to be believed, see healthy_hccl."""

from __future__ import annotations

import pathlib
import random
import re
import sys
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.hccl_test import parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import healthy_hccl


def output(sizes: list[int], prefix: str = "", check: str = "success", unit: float = 1e3) -> str:
    """As the program prints it (there are no recordings): a plausible sweep over `sizes`."""
    lines = [
        f"the minbytes is {sizes[0]}, maxbytes is {sizes[-1]}, iters is 20, warmup_iters is 5",
        "data_size(Bytes): | aveg_time(us): | alg_bandwidth(GB/s): | check_result:",
    ]
    for size in sizes:
        time = 60 + size / 25000
        lines.append(f"{size:<17} | {time:<14.2f} | {size / time / unit:<20.5f} | {check}")
    return "".join(f"{prefix}{line}\n" for line in lines)


DOUBLED = [8192 << n for n in range(14)]
SEEDS = [
    output(DOUBLED), output([n << 20 for n in range(1, 12)], check="NULL"), output(DOUBLED, "[1,0]<stdout>: "),
    output(DOUBLED, unit=2**30 / 1e6), output(DOUBLED).replace("524288 ", "local rank_id 3, check result failed, 524288 "),
]  # fmt: skip
KEYS = set(parse(""))


def check(text: str, healthy: str) -> None:
    """Never an exception, always the same shape, and measured only with rows that stand in the text, up to the largest size."""
    found = parse(text, op="all_reduce", ranks=8)
    assert set(found) == KEYS
    assert found["outcome"] in ("measured", "error")
    if found["outcome"] == "error":
        assert found["reason_code"] in reasons.ALL and found["reason"]
        return
    assert found["reason_code"] is None and found["complete"] and found["rows"] and "failed" not in text
    lines = [
        {float(w) for w in re.findall(r"\d+(?:\.\d+)?", line)} for line in text.replace("\x1b[31m", "").replace("\r", "\n").split("\n")
    ]
    for row in found["rows"]:
        half = row["out_of_place"]
        assert half["time_us"] > 0 and half["algbw"] >= 0 and not half["wrong"]
        assert any({float(row["size"]), half["time_us"], half["algbw"]} <= line for line in lines)
    sizes = [row["size"] for row in found["rows"]]
    assert sizes == sorted(set(sizes)) and found["peak_busbw"]["value"] >= 0


# Lies ----------------------------------------------------------------------------------------------------------------

_SOURCE = random.Random("healthy hccl_test")
RUNS = [healthy_hccl.run(_SOURCE) for _number in range(1000)]
ASKED = {run.text: run.asked for run in RUNS if parse(run.text, **run.asked)["outcome"] == "measured"}
TRUTHS = list(ASKED)
_ROW = re.compile(r"(?m)^.*\| success\n")
_CELLS = re.compile(r"(\d+)( +\| )([\d.]+)( +\| )([\d.]+)( +\| \w+)")
Lie = t.Callable[[str, random.Random], "str | None"]


def accepts(text: str, healthy: str) -> bool:
    found = parse(text, **ASKED[healthy])
    return found["outcome"] == "measured" and (text == healthy or found != parse(healthy, **ASKED[healthy]))


def judge(text: str, healthy: str) -> t.Any:
    """Return what a verdict uses: the best of the largest sizes."""
    found = parse(text, **ASKED[healthy])
    peaks = [(peak["value"], peak["unit"]) for peak in (found["peak_algbw"], found["peak_busbw"]) if peak]
    return (peaks, found["world_size"]) if found["outcome"] == "measured" else None


def HEALTHY(r: random.Random) -> str:
    run = healthy_hccl.run(r)
    ASKED[run.text] = run.asked
    return run.text


def _rows(change: t.Callable[[list[str], random.Random], list[str]], least: int = 1) -> Lie:
    """The rows of a table of at least so many are other ones."""

    def lie(text: str, r: random.Random) -> str | None:
        rows = _ROW.findall(text)
        if len(rows) < least:
            return None
        changed = change(list(rows), r)
        return text.replace("".join(rows), "".join(changed))

    return lie


def _of_one(change: t.Callable[[list[str], random.Random], list[str] | None], least: int = 1) -> Lie:
    """One row of a table has another size, time or bandwidth."""

    def lie(rows: list[str], r: random.Random) -> list[str]:
        at = r.randrange(len(rows))
        found = _CELLS.search(rows[at])
        assert found
        cells = change([found.group(1), found.group(3), found.group(5)], r)
        if cells is not None:
            words = [cells[0], found.group(2), cells[1], found.group(4), cells[2], found.group(6)]
            rows[at] = rows[at][: found.start()] + "".join(words) + rows[at][found.end() :]
        return rows

    return _rows(lie, least)


def _factor(r: random.Random) -> float:
    return r.choice([2, 4, 10, 0.5, 0.25, 0.1, r.uniform(1.05, 3), r.uniform(0.3, 0.95)])


def _scaled(*columns: int) -> t.Callable[[list[str], random.Random], list[str] | None]:
    def change(cells: list[str], r: random.Random) -> list[str] | None:
        by = _factor(r)
        for column in columns:
            if column and float(cells[2]) < 0.01:  # too few digits to tell it from another one
                return None
            digits = (0, 2, 5)[column]
            cells[column] = f"{float(cells[column]) * by:.{digits}f}"
        return cells

    return change


def _other_unit(cells: list[str], r: random.Random) -> list[str] | None:
    bandwidth = float(cells[2]) * r.choice([2**30 / 1e9, 1e9 / 2**30])
    return [cells[0], cells[1], f"{bandwidth:.5f}"] if float(cells[2]) > 0.01 else None


def _swapped(cells: list[str], r: random.Random) -> list[str]:
    return [cells[0], cells[2], cells[1]]


def _gone(rows: list[str], r: random.Random) -> list[str]:
    at = r.randrange(len(rows))
    return rows[:at] + rows[at + r.randint(1, 3) :] if r.random() < 0.7 else rows[: max(at, 1)]


def _twice(rows: list[str], r: random.Random) -> list[str]:
    at = r.randrange(len(rows))
    return rows[: at + 1] + rows[at:]


def _beside(rows: list[str], r: random.Random) -> list[str]:
    """Rows of another run, between, after or in place of those of this one, where their sizes are not the very same."""
    others = _ROW.findall(r.choice(TRUTHS))
    strange = [row for row in others if not any(row.split("|")[0].split()[-1] == own.split("|")[0].split()[-1] for own in rows)]
    at = r.randrange(len(rows) + 1)
    return rows[:at] + (strange or rows[:1]) + rows[at + r.choice([0, 0, 1, len(strange)]) :]


def _in_place(rows: list[str], r: random.Random) -> list[str]:
    """Some rows have the numbers of a run that was half as fast, or twice."""
    by, at = r.choice([0.5, 0.7, 1.5, 2]), r.randrange(len(rows))
    found = []
    for row in rows[at:]:
        cells = _CELLS.search(row)
        assert cells
        time = float(f"{float(cells.group(3)) * by:.2f}")
        bandwidth = float(cells.group(5)) * float(cells.group(3)) / time
        new = f"{cells.group(1)}{cells.group(2)}{time:.2f}{cells.group(4)}{bandwidth:.5f}{cells.group(6)}"
        found.append(row[: cells.start()] + new + row[cells.end() :])
    return rows[:at] + found


def _null(text: str, r: random.Random) -> str:
    rows = _ROW.findall(text)
    some = rows if r.random() < 0.5 else r.sample(rows, r.randint(1, len(rows)))
    for row in some:
        text = text.replace(row, row.replace("success", "NULL"))
    return text


def _line(*lines: str) -> Lie:
    def lie(text: str, r: random.Random) -> str:
        found = text.splitlines(True)
        found.insert(r.randrange(len(found) + 1), r.choice(lines) + "\n")
        return "".join(found)

    return lie


def _two(text: str, r: random.Random) -> str:
    other = r.choice(TRUTHS)
    return text + (other if r.random() < 0.5 else other[other.index("data_size") :])


def _header(text: str, r: random.Random) -> str | None:
    """The largest or smallest size is another one, the rows are the same."""
    name = r.choice(["minbytes", "maxbytes"])
    by = r.choice([2, 4, 0.5, 0.25]) if name == "maxbytes" else r.choice([2, 4, 0.5])
    changed = re.sub(rf"({name} is )(\d+)", lambda m: f"{m.group(1)}{max(1, int(int(m.group(2)) * by))}", text)
    return None if len(_ROW.findall(text)) < 2 else changed


def _shorter(text: str, r: random.Random) -> str | None:
    """The last rows are gone, and the header says so."""
    rows = _ROW.findall(text)
    if len(rows) < 4:
        return None
    last = int(rows[-2].split("|")[0].split()[-1])
    return re.sub(r"maxbytes is \d+", f"maxbytes is {last}", text.replace(rows[-1], ""))


def _cut(text: str, r: random.Random) -> str | None:
    rows = _ROW.findall(text)
    return text[: r.randrange(text.index("the minbytes"), text.index(rows[-1]) + len(rows[-1]) - 8)]


LIES: dict[str, Lie] = {
    "NULL in some rows or all": _null,
    "every other row gone": _rows(lambda rows, r: rows[:: r.choice([2, 2, 3])], 3),
    "every other row gone but the last": _rows(lambda rows, r: rows[:-1:2] + rows[-1:], 4),
    "rows gone": _rows(_gone, 4),
    "a row twice": _rows(_twice),
    "rows in another order": _rows(lambda rows, r: r.sample(rows, len(rows)), 2),
    "rows of another run, of other sizes": _rows(_beside),
    "rows of another run, of the same sizes": _rows(_in_place),
    "a row in another unit": _of_one(_other_unit, 3),
    "a size": _of_one(_scaled(0)),
    "a time": _of_one(_scaled(1)),
    "a bandwidth": _of_one(_scaled(2)),
    "time and bandwidth swapped": _of_one(_swapped),
    "the sizes of another header": _header,
    "a header and rows of a shorter sweep": _shorter,
    "two outputs": _two,
    "cut": _cut,
    "a wrong result of another rank": _line(
        "local rank_id 3, check result failed", "check buf[0] error, exp:8.0, act:0.0", "total err is 20"
    ),
    "a line that says it failed": _line(
        "hccl interface return err ./a.cc:539, retcode: 4 ", "hccl_op_base execute failed, Detailed logs are elsewhere"
    ),
    "a failed row": _rows(lambda rows, r: [rows[0].replace("success", "failed"), *rows[1:]]),
    "a line that says that nothing is verified": _line("Warning: The calculation result overflows, No verification is performed."),
}
UNSEEN = {
    "rows of another run, of the same sizes": "a row holds size, time and their ratio; nothing ties it to the other rows or to its run",
    "a header and rows of a shorter sweep": "it is what a shorter sweep prints",
}
