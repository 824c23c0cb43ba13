# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fuzz target: nccl-tests text and JSON."""

from __future__ import annotations

import copy
import json
import math
import pathlib
import random
import re
import typing as t

import healthy_nccl
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.nccl_tests import parse

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures"
SEEDS = [
    p.read_text()
    for pattern in ("nccl-v*.txt", "g4-*.txt", "mpi-np*.txt", "nccl-v*.json")
    for p in sorted((FIXTURES / "h200-x4").glob(pattern))
]
SEEDS += [p.read_text() for p in sorted((FIXTURES / "h200-x2").iterdir()) if p.suffix != ".rc"]
KEYS = set(parse(""))


NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def check(text: str, healthy: str) -> None:
    """Never an exception, always the same shape, and measured only with the sweep, both last lines and numbers of the text."""
    found = parse(text)
    assert set(found) == KEYS
    assert found["outcome"] in ("measured", "error")
    if found["outcome"] == "error":
        assert found["reason_code"] in reasons.ALL and found["reason"]
        return
    assert found["reason_code"] is None and found["complete"] and found["rows"]
    assert found["out_of_bounds"]["ok"] and found["peak_busbw"]["value"] >= 0
    text = text.replace("\x1b[31m", "")
    if not text.lstrip().startswith("{"):
        assert "Out of bounds" in text and "Avg bus bandwidth" in text and "Rank" in text
    printed = {float(word) for word in NUMBER.findall(text)}
    for row in found["rows"]:
        assert row["size"] in printed and row["count"] in printed
        for half in (row["out_of_place"], row["in_place"]):
            assert half is None or (half["busbw"] >= 0 and not half["wrong"] and {half["busbw"], half["algbw"]} <= printed)


# Lies ----------------------------------------------------------------------------------------------------------------

def _telling(text: str) -> bool:
    """With one rank, or with hardly more than 0.00 or 0.001 in the cells, nothing follows from anything."""
    rows = parse(text)["rows"]
    halves = [half for row in rows for half in (row["out_of_place"], row["in_place"]) if half]
    least = 1000 if "# NCCL Tests compiled" in text else 0.5
    return max(h["busbw"] for h in halves) >= 5 and all(row["size"] for row in rows) and all(h["time_us"] >= least for h in halves)


HEALTHY = healthy_nccl.output
TRUTHS = [text for text in SEEDS if parse(text)["outcome"] == "measured"]
TRUTHS += [text for number in range(600) if _telling(text := healthy_nccl.output(random.Random(f"truth {number}")))]
OF_THREADS = [text for text in TRUTHS if re.search(r"nThread (?!1 )", text) and "#wrong" not in text and text[:1] != "{"]
TRUTHS = [text for text in TRUTHS if text not in OF_THREADS]
_READ = {text: parse(text) for text in TRUTHS + OF_THREADS}
_ROW = re.compile(r"(.*?)(\s+\d+\s+\d+\s+[a-z]\w*\s.*)")
_HALF = ("time", "algbw", "busbw", "wrong")
_NAMES = {"time": ("time", "cputime"), "algbw": ("algbw",), "busbw": ("busbw",), "wrong": ("#wrong", "error", "res")}
_KEYS = {"time": "time", "algbw": "alg_bw", "busbw": "bus_bw", "wrong": "nwrong"}


class Row:
    """`cells`: size, count and type as they are written; `halves`: each {time, algbw, busbw, wrong} as written, None where there is no
    such cell. Numbers are set as numbers."""

    def __init__(self, cells: list[str], halves: list[dict[str, t.Any]], rest: t.Any) -> None:
        self.cells, self.halves, self.rest = cells, halves, rest

    def scale(self, factor: float, *names: str) -> None:
        for half in self.halves:
            for name in names:
                half[name] = float(half[name]) * factor


class Table:
    """An output that can be changed and written again."""

    def __init__(self, text: str) -> None:
        self.json = json.loads(text) if text.lstrip().startswith("{") else None
        self.cputime = "cputime" in text or '"cpu_time"' in text
        if self.json:
            self.rows = [self._of_json(row) for row in self.json["results"]]
            return
        self.lines = text.split("\n")
        self.at, self.rows = [], []
        head: list[str] = []
        for number, line in enumerate(self.lines):
            if "algbw" in line:
                head = line[line.index("#") :].lstrip("#").split()
            found = _ROW.fullmatch(line)
            if head and found:
                self.at.append(number)
                self.rows.append(self._of_line(found.group(1), found.group(2).split(), head))

    @staticmethod
    def _of_line(before: str, words: list[str], head: list[str]) -> Row:
        head = [w for w in head if w != "timestamp"]
        more = 1 if "redop" in head and re.fullmatch(r"-?[\d.]+", words[3]) else 0  # hypercube prints no operation
        starts = [i for i, word in enumerate(head) if word in ("time", "cputime")]
        halves, where = [], []
        for start, end in zip(starts, [*starts[1:], len(head)]):
            names = head[start:end]
            place = {name: start + names.index(w) - more for name, ws in _NAMES.items() for w in ws if w in names}
            where.append(place)
            halves.append({name: words[place[name]] for name in _HALF})
        return Row(words[:3], halves, (before, words, where))

    @staticmethod
    def _of_json(row: dict[str, t.Any]) -> Row:
        halves = []
        for name in ("out_of_place", "in_place"):
            half = row[name]
            halves.append({n: half.get(k, half.get("cpu_time")) if n == "time" else half[k] for n, k in _KEYS.items()})
        return Row([str(row["size"]), str(row["count"]), row["type"]], halves, row)

    def write(self) -> str:
        if self.json:
            self.json["results"] = [self._json_row(row) for row in self.rows]
            return json.dumps(self.json)
        lines = list(self.lines)
        for number in reversed(self.at):
            del lines[number]
        lines[self.at[0] : self.at[0]] = [self._line(row) for row in self.rows]
        return "\n".join(lines)

    @staticmethod
    def _line(row: Row) -> str:
        before, words, where = row.rest
        words = [*row.cells, *words[3:]]
        for half, place in zip(row.halves, where):
            for name, at in place.items():
                value = half[name]
                words[at] = value if isinstance(value, str) else f"{value:.2f}" if name != "time" else f"{value:.4g}"
                if isinstance(value, float) and name == "time" and value >= 1000:
                    words[at] = f"{value:.0f}"
        return before + "  " + "  ".join(words)

    @staticmethod
    def _json_row(row: Row) -> dict[str, t.Any]:
        whole = copy.deepcopy(row.rest)
        whole.update(size=int(row.cells[0]), count=int(row.cells[1]), type=row.cells[2])
        for name, half in zip(("out_of_place", "in_place"), row.halves):
            for n, k in _KEYS.items():
                value = half[n]
                value = None if value == "N/A" else float(value) if isinstance(value, str) else value
                whole[name]["cpu_time" if k == "time" and k not in whole[name] else k] = value
        return whole

    def halves(self) -> list[dict[str, t.Any]]:
        return [half for row in self.rows for half in row.halves]

    def mean(self) -> float:
        values = [float(half["busbw"]) for half in self.halves()]
        return sum(values) / len(values)

    def average(self, value: float | None = None) -> float:
        """The one of the last lines, or that set to `value`."""
        if self.json:
            key = next(k for k in self.json if k.startswith("average_bus"))
            name = next(k for k in self.json[key] if k.startswith("bandwi"))
            if value is not None:
                self.json[key][name] = round(value, 6)
            return float(self.json[key][name])
        at = next(i for i, line in enumerate(self.lines) if "Avg bus bandwidth" in line)
        head, _colon, tail = self.lines[at].rpartition(":")
        if value is not None:
            self.lines[at] = f"{head}: {value:.6g} "
        return float((f"{value:.6g}" if value is not None else tail).split()[0])

    def adrift(self) -> bool:
        """Return True if the rows are further from the average of the last lines than what is rounded away."""
        return abs(self.mean() - self.average()) > (3e-6 if self.json else 0.0055 + 1e-5 * self.average())


Lie = t.Callable[[str, random.Random], "str | None"]


def _factor(source: random.Random) -> float:
    return source.choice([source.uniform(0.2, 0.95), source.uniform(1.05, 4.0), 0.5, 2.0, 8.0, 1.073741824])


def _some(rows: list[t.Any], source: random.Random) -> list[t.Any]:
    return source.sample(rows, source.randint(1, max(1, len(rows) - 1)))


def _differs(table: Table, text: str) -> bool:
    """Return True if bandwidths changed by more than their last digit."""
    pairs = zip(table.halves(), Table(text).halves())
    return any(abs(float(a[n]) - float(b[n])) > 0.011 + 1e-3 * float(b[n]) for a, b in pairs for n in ("algbw", "busbw"))


def _another(table: Table, text: str, source: random.Random) -> list[Row] | None:
    """Rows of another run of the same test: a recorded one where there is one, else one that was faster or slower at every size."""
    mine = _READ[text]
    shape = [row.cells for row in table.rows]
    others = [other for other in TRUTHS if other != text and _alike(_READ[other], mine, other, text)]
    if others and source.random() < 0.5:
        rows = Table(source.choice(others)).rows
        if [row.cells for row in rows] == shape and [len(r.halves) for r in rows] == [len(r.halves) for r in table.rows]:
            return rows
    rows = copy.deepcopy(table.rows)
    for row in rows:
        for half in row.halves:
            factor = source.choice([source.uniform(0.5, 0.98), source.uniform(1.02, 1.5)])
            half.update(time=float(half["time"]) / factor, algbw=float(half["algbw"]) * factor, busbw=float(half["busbw"]) * factor)
    return rows


def _alike(a: dict[str, t.Any], b: dict[str, t.Any], text: str, other: str) -> bool:
    same = a["op"] == b["op"] and len(a["ranks"]) == len(b["ranks"]) and len(a["rows"]) == len(b["rows"])
    return same and text[:1] == other[:1] and _header(text) == _header(other)


def _alone(text: str) -> bool:
    """One rank has no bus bandwidth."""
    return not any(half["busbw"] for row in _READ[text]["rows"] for half in (row["out_of_place"], row["in_place"]) if half)


def _header(text: str) -> list[str]:
    return next((line.lstrip("#").split() for line in text.split("\n") if "algbw" in line and "#" in line), [])


def _unchecked(text: str, source: random.Random, which: str) -> str | None:
    table = Table(text)
    halves = [half for half in table.halves() if half["wrong"] not in (None, "N/A")]
    if which in ("half", "unnamed"):
        column = source.choice([0, -1])
        halves = [row.halves[column] for row in table.rows if row.halves[column]["wrong"] not in (None, "N/A")]
    elif which == "some" and halves:
        halves = _some(halves, source)
    for half in halves:
        half["wrong"] = "N/A"
    if not halves or (which == "unnamed") != _as_unchecked(table, text):
        return None
    return table.write()


def _as_unchecked(table: Table, text: str) -> bool:
    """Return True if it looks now like a test that is never checked in place, in an output that does not say which test it is."""
    ranks, op = len(_READ[text]["ranks"]), _READ[text]["op"]
    alike = op in ("all_gather", None) or ranks == 1 or (ranks == 2 and op == "all_reduce")
    unnamed = not table.json and "_perf" not in text
    only_there = all(row.halves[0]["wrong"] != "N/A" and row.halves[-1]["wrong"] == "N/A" for row in table.rows)
    return unnamed and alike and only_there and "#wrong" in text


def _not_validated(text: str, source: random.Random) -> str | None:
    table = Table(text)
    if table.json and "validation" in table.json["config"]:
        table.json["config"]["validation"] = 0
        return table.write()
    return re.sub(r"(validation:? )[1-9]\d*", r"\g<1>0", text) if "validation" in text else None


def _not_whole(text: str, source: random.Random) -> str | None:
    table = Table(text)
    halves = [half for half in table.halves() if half["wrong"] not in (None, "N/A") and "e" not in str(half["wrong"])]
    if not halves:
        return None
    for half in _some(halves, source):
        half["wrong"] = source.choice([0.5, "0.5", "0.25", "1e-3", "0.99", "-0.5", "-1"]) if not table.json else 0.5
    return table.write()


def _some_wrong(text: str, source: random.Random) -> str | None:
    table = Table(text)
    halves = [half for half in table.halves() if half["wrong"] not in (None, "N/A") and "e" not in str(half["wrong"])]
    if not halves:
        return None
    source.choice(halves)["wrong"] = source.choice(["1", "7", "1e+06", "123456"])
    return table.write()


def _scaled(text: str, source: random.Random, rows: str, average: bool, names: t.Sequence[str] = ("algbw", "busbw")) -> str | None:
    table = Table(text)
    if table.cputime and (average or "time" in names):
        return None
    factor = _factor(source)
    if rows == "half":
        for row in _some(table.rows, source):
            row.halves = [dict(half) for half in row.halves]
            half = source.choice(row.halves)
            half.update({name: float(half[name]) * factor for name in names})
    else:
        for row in table.rows if rows == "all" else _some(table.rows, source):
            row.scale(factor, *names)
    if "time" not in names and not _differs(table, text):
        return None
    if "time" in names and not any(float(half["algbw"]) >= 0.5 for half in table.halves()):
        return None
    if average:
        table.average(table.mean())
    return table.write()


def _time_alone(text: str, source: random.Random) -> str | None:
    table = Table(text)
    rows = [row for row in table.rows if min(float(h["algbw"]) for h in row.halves) >= 0.5]
    if table.cputime or not rows:
        return None
    source.choice(rows).scale(_factor(source), "time")
    return table.write()


def _columns_swapped(text: str, source: random.Random) -> str | None:
    table = Table(text)
    one, other = source.choice([("algbw", "busbw"), ("time", "algbw"), ("time", "busbw")])
    if one == "time" and (table.cputime or (other == "algbw" and _alone(text))):
        return None  # no bandwidth follows from this time, or none but this one, which times it is the same product
    for half in table.halves():
        half[one], half[other] = half[other], half[one]
    table.average(table.mean())
    return table.write() if _differs(table, text) else None


def _digit(text: str, source: random.Random) -> str | None:
    """One digit of one bandwidth."""
    table = Table(text)
    half = source.choice(table.halves())
    name = source.choice(["algbw", "busbw"])
    word = str(half[name])
    at = source.choice([i for i, c in enumerate(word) if c.isdigit()])
    half[name] = word[:at] + source.choice("0123456789") + word[at + 1 :]
    return table.write() if _differs(table, text) else None


def _footer_first(text: str, source: random.Random) -> str | None:
    lines = text.split("\n")
    last = [i for i, line in enumerate(lines) if "Out of bounds" in line or "Avg bus bandwidth" in line]
    if len(last) != 2 or text.startswith("{"):
        return None
    moved = [lines[i] for i in last]
    if source.random() < 0.3:
        last, moved = last[1:], moved[1:]  # the average alone
    table = Table(text)
    places = [0, next(i for i, line in enumerate(lines) if "algbw" in line), table.at[0], table.at[-1], source.choice(table.at)]
    lines = [line for i, line in enumerate(lines) if i not in last]
    at = source.choice(places)
    return "\n".join(lines[:at] + moved + lines[at:])


def _spliced(text: str, source: random.Random, which: str) -> str | None:
    """`one` row, `some`, the `first` or `last`, or `all` of another run; the last lines are this one's, or the other's (`footer`)."""
    table = Table(text)
    other = _another(table, text, source)
    if not other:
        return None
    count = len(table.rows)
    at = source.randrange(1, count) if count > 1 else 0
    taken = {
        "one": {source.randrange(count)}, "some": set(_some(list(range(count)), source)), "first": set(range(at)),
        "last": set(range(at, count)), "all": set(range(count)),
    }[which]  # fmt: skip
    table.rows = [other[i] if i in taken else row for i, row in enumerate(table.rows)]
    return table.write() if table.adrift() else None


def _within_rounding(text: str, source: random.Random) -> str | None:
    table = Table(text)
    other = _another(table, text, source)
    at = source.randrange(len(table.rows))
    if not other:
        return None
    table.rows[at] = other[at]
    return None if table.adrift() else table.write()


def _average(text: str, source: random.Random) -> str | None:
    table = Table(text)
    table.average(table.average() * _factor(source))
    return table.write() if table.adrift() else None


def _footer_of_another(text: str, source: random.Random) -> str | None:
    table = Table(text)
    other = source.choice(TRUTHS)
    if (other[:1] == "{") != bool(table.json):
        return None
    table.average(Table(other).average())
    return table.write() if table.adrift() else None


def _second_footer(text: str, source: random.Random) -> str | None:
    other = [line for line in source.choice(TRUTHS).split("\n") if "Out of bounds" in line or "Avg bus bandwidth" in line]
    if text.startswith("{") or len(other) != 2:
        return None
    at = next(i for i, line in enumerate(text.split("\n")) if "Out of bounds" in line)
    lines = text.split("\n")
    at = source.choice([at, len(lines)])
    return "\n".join(lines[:at] + other + lines[at:])


def _repeated_table(text: str, source: random.Random) -> str | None:
    table = Table(text)
    cycle = len(table.rows) if table.json else len(_sizes(text)) * len({row.cells[2] for row in table.rows})
    times = [str(half["time"]) for row in table.rows[:cycle] for half in row.halves]
    if sum(max(0.0, math.log10(max(float(time), 1e-9) * 10 ** len(time.partition(".")[2]) / 100)) for time in times) < 7:
        return None
    table.rows = table.rows * source.randint(2, 4)
    return table.write()


def _repeated_row(text: str, source: random.Random) -> str | None:
    """A row once more, beside itself or in the place of another."""
    table = Table(text)
    row = source.randrange(len(table.rows))
    at = source.randrange(len(table.rows))
    if source.random() < 0.5 and len(table.rows) > 1:
        table.rows.insert(at, table.rows[row])
    elif table.rows[at].cells != table.rows[row].cells:
        table.rows[at] = table.rows[row]
    else:
        return None
    return table.write()


def _rows_gone(text: str, source: random.Random) -> str | None:
    table = Table(text)
    count = len(table.rows)
    if count < 2:
        return None
    gone = {source.randrange(len(table.rows))} if source.random() < 0.5 else set(range(source.randrange(2), len(table.rows), 2))
    table.rows = [row for i, row in enumerate(table.rows) if i not in gone]
    if not table.rows:
        return None
    if source.random() < 0.5 and len(_sizes(text)) == count:
        table.average(table.mean())
    return table.write()


def _shorter_sweep(text: str, source: random.Random) -> str | None:
    """The largest rows gone, and the header says so."""
    table = Table(text)
    sizes = sorted({int(row.cells[0]) for row in table.rows})
    if table.json or len(sizes) < 2:
        return None
    largest = source.choice(sizes[:-1])
    table.rows = [row for row in table.rows if int(row.cells[0]) <= largest]
    told = re.sub(r"(maxBytes:? )\d+", rf"\g<1>{largest}", table.write())
    return told if table.adrift() else None


def _reordered(text: str, source: random.Random) -> str | None:
    def order() -> dict[str, list[str]]:
        return {kind: [row.cells[0] for row in table.rows if row.cells[2] == kind] for kind in {row.cells[2] for row in table.rows}}

    table = Table(text)
    sizes = order()
    if source.random() < 0.5:
        source.shuffle(table.rows)
    else:
        table.rows.reverse()
    return table.write() if order() != sizes else None


def _size(text: str, source: random.Random) -> str | None:
    """Size or count of a row, or both."""
    table = Table(text)
    row = source.choice(table.rows)
    factor = source.choice([0.5, 2, 4, 16, 1.5])
    which = source.choice([(0,), (1,), (0, 1)])
    cells = list(row.cells)
    for at in which:
        row.cells[at] = str(int(int(cells[at]) * factor))
    return table.write() if row.cells != cells else None


def _type(text: str, source: random.Random) -> str | None:
    """Elements of another width."""
    table = Table(text)
    widths = {"int8": 1, "half": 2, "float": 4, "int32": 4, "double": 8, "int64": 8}
    if int(table.rows[-1].cells[0]) == 0:
        return None
    rows = table.rows if source.random() < 0.5 else table.rows[-1:]
    if any(row.cells[2] not in widths for row in rows):
        return None
    was = {widths[row.cells[2]] for row in rows}
    other = source.choice([name for name, width in widths.items() if width not in was] or [""])
    for row in rows:
        row.cells = [*row.cells[:2], other]
    return table.write() if other else None


def _header_changed(text: str, source: random.Random) -> str | None:
    name = source.choice(["minBytes", "maxBytes", "step"])
    if text.startswith("{"):
        name = {"minBytes": '"minimum_bytes"', "maxBytes": '"maximum_bytes"', "step": '"step_\\w+"'}[name]
    found = re.search(rf"({name}:? ?)(\d+)", text)
    if not found or ("step" in name and len({row.cells[0] for row in Table(text).rows}) < 2):
        return None
    number = int(found.group(2))
    changed = source.choice([number * 4, number * 16, number + 1 if "tep" in name else number * 2])
    told = text[: found.start(2)] + str(changed) + text[found.end(2) :]
    return told if _sizes(told) != _sizes(text) else None


def _sizes(text: str) -> list[int]:
    """Return the sizes of the sweep in the header."""
    found = re.search(r"minBytes:? (\d+) maxBytes:? (\d+) step: (\d+)\((\w+)", text)
    if not found:
        config = json.loads(text)["config"]
        unit = "factor" if "step_factor" in config else "bytes"
        words = config["minimum_bytes"], config["maximum_bytes"], config[f"step_{unit}"], unit
    else:
        words = (*map(int, found.groups()[:3]), found.group(4))
    size, largest, step, unit = words
    reduced = re.search(r"Reducing maxBytes to (\d+)", text)
    sizes = []
    while size <= (int(reduced.group(1)) if reduced else largest) and len(sizes) < 1000:
        sizes.append(size)
        size = size * step if unit == "factor" else size + step
    return sizes


def _ranks(text: str, source: random.Random) -> str | None:
    """One rank gone or twice, or those of a run with more."""
    lines = text.split("\n")
    at = [i for i, line in enumerate(lines) if re.search(r"#\s+Rank\s+\d", line)]
    if len(at) < 2:
        return None
    kind = source.randrange(3)
    halves = [h for r in _READ[text]["rows"] for h in (r["out_of_place"], r["in_place"]) if h]
    if kind != 1 and all(h["busbw"] < 5 or abs(h["busbw"] - h["algbw"]) < 0.02 for h in halves):
        return None  # told by nothing where the factor is one for any number of ranks, or drowns in the digits
    if kind == 0:
        del lines[source.choice(at)]
    elif kind == 1:
        lines[at[0]] = lines[at[1]]
    else:
        more = [re.sub(r"(Rank\s+)\d+", rf"\g<1>{len(at) + i}", lines[j]) for i, j in enumerate(at)]
        lines[at[-1] + 1 : at[-1] + 1] = more
    return "\n".join(lines)


def _two(text: str, source: random.Random) -> str | None:
    """Two outputs, line by line in one another, or one after the other; the second with its header or only with its rows."""
    other = source.choice(TRUTHS)
    if text.startswith("{") or other.startswith("{"):
        return None
    mine, theirs = text.split("\n"), other.split("\n")
    if source.random() < 0.5:
        theirs = theirs[Table(other).at[0] :]
    kind = source.randrange(3)
    if kind == 0:
        return "\n".join(mine + theirs)
    if kind == 1:
        at = source.choice(Table(text).at)
        return "\n".join(mine[:at] + theirs + mine[at:])
    lines: list[str] = []
    while mine or theirs:
        take = mine if mine and (not theirs or source.random() < 0.5) else theirs
        lines.append(take.pop(0))
    return "\n".join(lines)


def _head_and_tail(text: str, source: random.Random) -> str | None:
    """The first lines of one output, the rest of another: a log that was cut and appended to."""
    other = source.choice(TRUTHS)
    if text.startswith("{") or other.startswith("{") or other == text:
        return None
    mine, theirs = Table(text), Table(other)
    at = source.choice(mine.at[1:] or mine.at)
    tail = theirs.lines[source.choice(theirs.at) :]
    rows = mine.rows[: mine.at.index(at)] + Table("\n".join(theirs.lines[: theirs.at[0]] + tail)).rows
    values = [float(half["busbw"]) for row in rows for half in row.halves]
    if abs(sum(values) / len(values) - theirs.average()) <= 0.0055 + 1e-5 * theirs.average():
        return None
    return "\n".join(mine.lines[:at] + tail)


def _renamed(text: str, source: random.Random) -> str | None:
    """Another test, whose bandwidths follow otherwise from the number of ranks, or whose columns differ."""
    ops = ["all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter", "alltoall", "sendrecv", "gather"]
    found = re.search(r"(\w+?)_perf", text)
    if not found or _alone(text) or ("Collective test starting" not in text and not text.startswith("{")):
        return None
    alike = [{"all_gather", "alltoall", "alltoallv"}, {"gather", "scatter"}, {"all_reduce", "sendrecv"}]
    if any(found.group(1) in names for names in alike[2:]) and len(_READ[text]["ranks"]) > 2:
        alike = alike[:2]
    same = set().union({found.group(1)}, *(names for names in alike if found.group(1) in names))
    other = source.choice([op for op in ops if op not in same])
    return re.sub(r"(\w+?)_perf", f"{other}_perf", text)


def _bounds(text: str, source: random.Random) -> str | None:
    if text.startswith("{"):
        table = Table(text)
        assert table.json
        table.json["out_of_bounds"]["count"] = 3
        return table.write()
    return re.sub(r"(Out of bounds values\s*: )0 OK", source.choice([r"\g<1>3 FAILED", r"\g<1>3 OK", r"\g<1>0 FAILED"]), text)


def _forged(text: str, source: random.Random) -> str | None:
    """Time, bandwidths and average, all of them, and all in keeping."""
    table = Table(text)
    rows = table.rows
    factor = source.uniform(1.1, 3.0)
    for row in rows:
        for half in row.halves:
            half.update(time=float(half["time"]) / factor, algbw=float(half["algbw"]) * factor, busbw=float(half["busbw"]) * factor)
    table.average(table.mean())
    return table.write()


def _of_threads(text: str, source: random.Random) -> str | None:
    return _spliced(source.choice(OF_THREADS), source, "all")


def _cputime(text: str, source: random.Random) -> str | None:
    table = Table(text)
    if not table.cputime:
        return None
    factor = _factor(source)
    for row in table.rows:
        row.scale(factor, *source.choice([("time",), ("algbw", "busbw")]))
    table.average(table.mean())
    return table.write()


def _machines(text: str, source: random.Random) -> str | None:
    return re.sub(r"NVIDIA H200", "NVIDIA A100-SXM4-80GB", text)


def _halves_swapped(text: str, source: random.Random) -> str | None:
    table = Table(text)
    if any(half["wrong"] in (None, "N/A") for half in table.halves()) or len(table.rows[0].halves) < 2:
        return None
    for row in table.rows:
        row.halves.reverse()
    return table.write()


def _same_width(text: str, source: random.Random) -> str | None:
    return re.sub(r"\bfloat\b", "int32", text) if re.search(r"\bfloat\b", text) else None


def _repeated_short(text: str, source: random.Random) -> str | None:
    table = Table(text)
    sizes = [int(row.cells[0]) for row in table.rows]
    if table.json or len(sizes) < 2 or len({row.cells[2] for row in table.rows}) > 1 or sizes[-1] < 4096:
        return None
    table.rows = table.rows[-1:] * 2
    table.average(table.mean())
    return re.sub(r"(minBytes:? )\d+", rf"\g<1>{sizes[-1]}", table.write())


def _part(function: t.Callable[..., str | None], *arguments: t.Any) -> Lie:
    return lambda text, source: function(text, source, *arguments)


LIES: dict[str, Lie] = {
    "#wrong N/A in some rows": _part(_unchecked, "some"),
    "#wrong N/A in one half": _part(_unchecked, "half"),
    "#wrong N/A everywhere": _part(_unchecked, "all"),
    "validation 0 in the header": _not_validated,
    "#wrong not a whole number": _not_whole,
    "#wrong not 0": _some_wrong,
    "out of bounds not 0 OK": _bounds,
    "bandwidths of all rows scaled": _part(_scaled, "all", False),
    "bandwidths of all rows and average scaled": _part(_scaled, "all", True),
    "bandwidths of some rows scaled": _part(_scaled, "some", False),
    "bandwidths of some rows and average scaled": _part(_scaled, "some", True),
    "bandwidths of one half and average scaled": _part(_scaled, "half", True),
    "busbw and average scaled": _part(_scaled, "all", True, ("busbw",)),
    "algbw scaled": _part(_scaled, "some", False, ("algbw",)),
    "times of all rows scaled": _part(_scaled, "all", False, ("time",)),
    "time of a row": _time_alone,
    "columns exchanged": _columns_swapped,
    "a digit of a bandwidth": _digit,
    "footer before the table": _footer_first,
    "a second footer": _second_footer,
    "footer of another run": _footer_of_another,
    "average changed": _average,
    "a row of another run": _part(_spliced, "one"),
    "some rows of another run": _part(_spliced, "some"),
    "first rows of another run": _part(_spliced, "first"),
    "last rows of another run": _part(_spliced, "last"),
    "all rows of another run": _part(_spliced, "all"),
    "first lines of one, the rest of another": _head_and_tail,
    "two outputs in one another": _two,
    "table repeated": _repeated_table,
    "row repeated": _repeated_row,
    "rows gone": _rows_gone,
    "largest rows gone, header too": _shorter_sweep,
    "rows in another order": _reordered,
    "size or count of a row": _size,
    "type of another width": _type,
    "sweep of the header": _header_changed,
    "list of ranks": _ranks,
    "another test's name": _renamed,
    "unseen: N/A in place without a name": _part(_unchecked, "unnamed"),
    "unseen: forged in keeping": _forged,
    "unseen: within rounding": _within_rounding,
    "unseen: threads of old versions": _of_threads,
    "unseen: cputime": _cputime,
    "unseen: other machines": _machines,
    "unseen: halves exchanged": _halves_swapped,
    "unseen: type of the same width": _same_width,
    "unseen: one row repeated": _repeated_short,
}
UNSEEN = {
    "unseen: N/A in place without a name": "until 2.16.6 so prints sendrecv (two ranks) or alltoall, and that is what it is read as",
    "unseen: forged in keeping": "all cells and the average follow from one another: only the digests of the run folder know",
    "unseen: within rounding": "a row of another run that moves the average by less than its last digit",
    "unseen: threads of old versions": "until 2.11 the average is over threads whose own times are not printed",
    "unseen: cputime": "with -C the time column is that of the CPU, of which no bandwidth follows",
    "unseen: other machines": "as many ranks elsewhere: the text names its GPUs, and who judges it holds them against the expectation",
    "unseen: halves exchanged": "the verdict takes the better half, and the average both: the same numbers",
    "unseen: type of the same width": "of int32 and float nothing differs but the word",
    "unseen: one row repeated": "two cycles of a short table with few digits may measure the same by chance; the value judged is the same",
}


def accepts(text: str, healthy: str) -> bool:
    """A lie of which the reader sees nothing reads as the healthy text does: that is no excuse."""
    return bool(parse(text)["outcome"] == "measured")


def judge(text: str, healthy: str) -> t.Any:
    """Return what a verdict uses: the best bandwidth, each row by its size, and the number of ranks."""
    found = parse(text)
    if found["outcome"] != "measured":
        return None
    rows = [(row["size"], *(half and half["busbw"] for half in (row["out_of_place"], row["in_place"]))) for row in found["rows"]]
    return found["peak_busbw"], rows, len(found["ranks"])
