# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fuzz target: perftest text and JSON. Lies are read by somebody who does not say what was asked for, as the filter is called."""

from __future__ import annotations

import pathlib
import random
import re
import sys
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.perftest import parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import healthy_perftest

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "perftest-rxe"
SEEDS = [
    p.read_text() for name in ("ib_*_n*.txt", "ib_*_D3.*", "ib_*_a_n20.*", "ib_*_bidir.*", "err_*.txt") for p in sorted(FIXTURES.glob(name))
]
KEYS = set(parse(""))


def values(row: dict[str, object]) -> list[float]:
    found: list[float] = []
    for name, value in row.items():
        if isinstance(value, dict):
            found += values({k: v for k, v in value.items() if k != "unit"})
        elif value is not None and name != "side":
            found.append(float(str(value)))
    return found


def check(text: str, healthy: str) -> None:
    """Never an exception, always the same shape, and measured only with numbers that stand in the text beside each other."""
    found = parse(text)
    assert set(found) == KEYS
    assert found["outcome"] in ("measured", "error")
    if found["outcome"] == "error":
        assert found["reason_code"] in reasons.ALL and found["reason"]
        return
    assert found["reason_code"] is None and found["rows"] and found["test"] and found["tool"]
    is_json = text.lstrip().startswith("{")
    assert is_json or text.rindex("-" * 20) > text.rindex("#bytes")
    lines = [
        {float(w) for w in line.split() if w.replace(".", "", 1).isdecimal()} for line in text.split("\n") if line.strip()[:1].isdigit()
    ]
    for row in found["rows"]:
        assert row["bytes"] > 0 and row["iterations"] > 0
        if found["test"]["kind"] == "bw":
            assert row["bw_average"]["value"] > 0 and row["bw_average"]["unit"] in ("Gb/s", "MiB/s")
            assert row["bw_peak"] is None or row["bw_peak"]["value"] > 0
        else:
            assert row["t_avg"] > 0
        if is_json:
            bare = {float(w) for w in text.replace(",", " ").replace(":", " ").split() if w.replace(".", "", 1).isdecimal()}
            assert set(values(row)) <= bare
        else:
            assert any(set(values(row)) <= line for line in lines)


# Lies ----------------------------------------------------------------------------------------------------------------

_SOURCE = random.Random("healthy perftest")
RUNS = [healthy_perftest.run(_SOURCE, ("bw", "lat")[number % 2]) for number in range(1500)]
# Many of those of which there is more to lie about.
RUNS = [run for number, run in enumerate(RUNS) if number % 5 == 0 or "Local results" in run.text or "8388608 " in run.text]
ASKED = {text: run.asked for run in RUNS for text in (run.text, run.json) if text}
TRUTHS = [text for text in ASKED if parse(text)["outcome"] == "measured"]
_ROW = re.compile(r"(?m)^ \d+ .*\n")
_VALUE = re.compile(r'(?m)^"([A-Za-z_0-9.]+)": ([\d.]+)(?=,?$)')
_HEADER = re.compile(r"(?m)^ #bytes.*$")
TITLES = ["Send", "RDMA_Write", "RDMA_Read", "Atomic CMP_AND_SWAP"]
Lie = t.Callable[[str, random.Random], "str | None"]


def accepts(text: str, healthy: str) -> bool:
    found = parse(text)
    return found["outcome"] == "measured" and (text == healthy or found != parse(healthy))


def judge(text: str, healthy: str) -> t.Any:
    """Return what a verdict uses, read with the options of the test: of each size the average bandwidth, or the median latency."""
    found = parse(text, **ASKED[healthy])
    if found["outcome"] != "measured":
        return None
    named = "bw_average" if found["test"]["kind"] == "bw" else "t_typical"
    rows = [(row["bytes"], row.get("side"), row["t_avg"] if named in row and row[named] is None else row[named]) for row in found["rows"]]
    return found["tool"], rows


def HEALTHY(r: random.Random) -> str:
    run = healthy_perftest.run(r)
    # A JSON names no unit; very small numbers do not prove it.
    text = run.json if run.json and r.random() < 0.3 and (run.kind == "lat" or _shows_rate(run.json)) else run.text
    ASKED[text] = run.asked
    return text


def _is_json(text: str) -> bool:
    return text.startswith("{")


def _is_latency(text: str) -> bool:
    return "Latency" in text


def _rows(text: str) -> list[str]:
    return _ROW.findall(text.partition("#bytes")[2]) if not _is_json(text) else []


def _values(text: str) -> list[str]:
    """The numbers of one row, in a table or a JSON."""
    if _is_json(text):
        return [value for name, value in _VALUE.findall(text.partition('"results"')[2]) if name != "CPU_util"]
    return _rows(text)[0].split()


def _with_row(text: str, old: str, new: str) -> str:
    """The text with another first row that reads `old`."""
    head, mark, table = text.partition("#bytes")
    return head + mark + table.replace(old, new, 1)


def _replaced(text: str, r: random.Random, change: t.Callable[[list[str]], list[str] | None]) -> str | None:
    """The text with the numbers of one of its rows changed by `change`."""
    if _is_json(text):
        head, mark, results = text.partition('"results"')
        found = [m for m in _VALUE.finditer(results) if m.group(1) != "CPU_util"]
        values = change([m.group(2) for m in found])
        if values is None:
            return None
        for m, value in reversed(list(zip(found, values))):
            results = results[: m.start(2)] + value + results[m.end(2) :]
        return head + mark + results
    row = r.choice(_rows(text))
    words = change(row.split()) if "#sl" not in text else None  # its columns stand elsewhere
    return None if words is None else _with_row(text, row, f" {'      '.join(words)}\n")


def _scaled(word: str, by: float) -> str:
    digits = len(word.partition(".")[2])
    return f"{float(word) * by:.{digits}f}"


def _factor(r: random.Random) -> float:
    return r.choice([2, 10, 0.5, 0.1, r.uniform(1.1, 3), r.uniform(0.3, 0.9)])


def _number_of(column: int, only: t.Callable[[str], bool] = lambda _text: True, least: float = 1) -> Lie:
    """One number of a row is another one, by a factor of `least` or more."""

    def lie(text: str, r: random.Random) -> str | None:
        def change(words: list[str]) -> list[str] | None:
            by = _factor(r)
            if column >= len(words) or not float(words[column]) or max(by, 1 / by) < least:
                return None
            return [*words[:column], _scaled(words[column], by), *words[column + 1 :]]

        return _replaced(text, r, change) if only(text) else None

    return lie


def _is_bandwidth(text: str) -> bool:
    return not _is_latency(text)


def _shows_rate(text: str) -> bool:
    """Return True if the rates of a bandwidth have two digits; else the device is so slow that they tell little."""
    if _is_latency(text):
        return False
    return all(float(row.split()[4 + ("#sl" in text)]) >= 1e-5 for row in _rows(text)) if _rows(text) else float(_values(text)[4]) >= 1e-5


def _hides_rate(text: str) -> bool:
    return _is_bandwidth(text) and not _shows_rate(text)


def _by_iterations(text: str) -> bool:
    return _is_latency(text) and "t_m" in text


def _by_duration(text: str) -> bool:
    return _is_latency(text) and not _by_iterations(text)


def _fast(text: str) -> bool:
    return _by_duration(text) and float(_values(text)[2]) < 25


def _alike(text: str) -> bool:
    """Time and rate, whose product is given, are so near to each other that the test lasts as long with both."""
    if not _by_duration(text):
        return False
    time, rate = (float(value) for value in _values(text)[2:4])
    return max(time, rate) <= 1.6 * min(time, rate)


def _slow(text: str) -> bool:
    return _by_duration(text) and not _fast(text) and not _alike(text)


def _sweeps(text: str) -> bool:
    return not _is_json(text) and len({row.split()[0] for row in _rows(text)}) > 1


def _one_row(text: str) -> bool:
    return len(_rows(text)) == 1


def _swapped(only: t.Callable[[str], bool], numbers: t.Sequence[int] = ()) -> Lie:
    """Two numbers of a row change places; those of `numbers` where they are named."""

    def lie(text: str, r: random.Random) -> str | None:
        def change(words: list[str]) -> list[str] | None:
            a, b = sorted(numbers) if numbers else sorted(r.sample(range(2, len(words)), 2))
            if ("." in words[a]) is not ("." in words[b]) or (not numbers and ((a, b) == (4, 5) or (_is_latency(text) and 6 in (a, b)))):
                return None
            if not numbers and abs(float(words[a]) - float(words[b])) <= 0.05 * float(words[a]):
                return None  # all but the same
            words[a], words[b] = words[b], words[a]
            return words

        return _replaced(text, r, change) if only(text) else None

    return lie


def _size(only: t.Callable[[str], bool]) -> Lie:
    def lie(text: str, r: random.Random) -> str | None:
        def change(words: list[str]) -> list[str]:
            size = int(words[0])
            return [str(max(1, r.choice([size * 2, size // 2, size * 1024, size // 1024, size * 10, 65536, 8388608, 2]))), *words[1:]]

        return _replaced(text, r, change) if only(text) else None

    return lie


def _repeated(text: str, r: random.Random) -> str | None:
    if _is_json(text):
        found = r.choice(list(_VALUE.finditer(text)))
        return text[: found.start()] + f"{found.group(0)},\n" + text[found.start() :]
    row = r.choice(_rows(text))
    return _with_row(text, row, row * r.randint(2, 3))


def _row_of_another(alone: bool) -> Lie:
    """A row of another run stands in place of the only row of this one, or beside one or in place of one of several."""

    def lie(text: str, r: random.Random) -> str | None:
        other = r.choice(TRUTHS)
        if _is_json(text) or _is_json(other) or text == other:
            return None
        row, strange = r.choice(_rows(text)), r.choice(_rows(other))
        a, b = row.split(), strange.split()
        if alone:
            return _with_row(text, row, strange) if _one_row(text) and a[0] != b[0] else None
        if r.random() < 0.5 or _one_row(text):
            return _with_row(text, row, strange + row if r.random() < 0.5 else row + strange)
        return None if (a[:2], len(a)) == (b[:2], len(b)) else _with_row(text, row, strange)

    return lie


def _row_of_a_twin(text: str, r: random.Random) -> str | None:
    """Another run of the very same test: size, iterations and format are the same, and its numbers fit each other."""
    if _is_json(text) or _is_latency(text):
        return None
    row = r.choice(_rows(text))
    words = row.split()
    if len(words) != 5 or "Local results" in text or float(words[3]) < 1 or float(words[4]) < 0.01:
        return None
    by = r.uniform(1.2, 3)
    return _with_row(text, row, f" {'      '.join([*words[:2], *(_scaled(word, by) for word in words[2:5]), *words[5:]])}\n")


def _table_of_another(text: str, r: random.Random) -> str | None:
    """The heading of one run over the table of another, which is of another test, of other QPs, or of another size that it cannot have."""
    other = r.choice(TRUTHS)
    if _is_json(text) or _is_json(other) or _is_latency(text) is _is_latency(other):
        return None
    return text.partition("#bytes")[0] + "#bytes" + other.partition("#bytes")[2]


def _two_outputs(text: str, r: random.Random) -> str | None:
    other = r.choice(TRUTHS)
    return text + other if r.random() < 0.5 else _table_after(text, other)


def _table_after(text: str, other: str) -> str | None:
    """The table of another run, without its heading."""
    if _is_json(text) or _is_json(other) or text == other:
        return None
    return text + " #bytes" + other.partition("#bytes")[2]


def _title_of_another(text: str, r: random.Random) -> str | None:
    title = re.search(r"(Send|RDMA_Write|RDMA_Read|Atomic[ _](?:CMP_AND_SWAP|FETCH_AND_ADD))(?:_imm)?", text)
    assert title
    wanted = r.choice([name for name in TITLES if not title.group(0).startswith(name.split()[0])])
    return text[: title.start()] + (wanted.replace(" ", "_") if _is_json(text) else wanted) + text[title.end() :]


def _only_title(text: str, r: random.Random) -> str | None:
    """Operations that differ in nothing but their title: Send_imm and RDMA_Write_imm, and those of a JSON without addresses."""
    return _title_of_another(text, r) if _is_json(text) or "_imm" in text or "RawEth" in text else None


def _other_title(text: str, r: random.Random) -> str | None:
    return None if _is_json(text) or "_imm" in text or "RawEth" in text else _title_of_another(text, r)


def _direction(seen: bool) -> Lie:
    """The title says one direction in place of two, or two in place of one."""

    def lie(text: str, _r: random.Random) -> str | None:
        tells = "Send" in text or "Waiting for client" in text
        if _is_latency(text) or (tells and not _is_json(text) and "RawEth" not in text) is not seen:
            return None
        mark = "_" if _is_json(text) else " "
        if "Bidirectional" in text:
            return text.replace(f"Bidirectional{mark}", "", 1)
        return re.sub(rf"{mark}((?:Post[ _]List[ _])?BW{mark}Test)", rf"{mark}Bidirectional{mark}\1", text, count=1)

    return lie


def _unit(text: str, r: random.Random) -> str | None:
    if _is_json(text) or _is_latency(text):
        return None
    return text.replace("Gb/sec", r.choice(["MB/sec", "MiB/sec"])) if "Gb/sec" in text else re.sub("Mi?B/sec", "Gb/sec", text)


def _sweep(change: t.Callable[[list[str], random.Random], list[str]]) -> Lie:
    """The rows of -a are missing, repeated or in another order."""

    def lie(text: str, r: random.Random) -> str | None:
        if not _sweeps(text):
            return None
        rows = _rows(text)
        return text.replace("".join(rows), "".join(change(rows, r)))

    return lie


def _dropped(rows: list[str], r: random.Random) -> list[str]:
    at = r.randrange(len(rows))
    return rows[:at] + rows[at + r.randint(1, 3) :] if len(rows) > 4 else rows[:at] + rows[at + 1 :]


def _reordered(rows: list[str], r: random.Random) -> list[str]:
    return rows[::-1] if r.random() < 0.1 else r.sample(rows, len(rows))


def _twice(rows: list[str], r: random.Random) -> list[str]:
    at = r.randrange(len(rows))
    return rows[: at + 1] + rows[at:]


def _sides(text: str, r: random.Random) -> str | None:
    """A table of --report-both is gone, or one of its numbers is another one."""
    if "Local results" not in text or _is_json(text):
        return None
    at, end = text.index("\n Local"), text.index("\n Remote")
    if r.random() < 0.4:
        return r.choice([text[:at] + text[end:], text[:end], text[:end] + text[end:].replace("Remote", "Local")])
    part = r.choice([text[:at], text[at:end], text[end:]])
    row = _ROW.findall(part)[-1]
    words = row.split()
    by = _factor(r)
    changed = [words[0], words[1], *(_scaled(word, by) for word in words[2:5]), *words[5:]]
    return text.replace(part, part.replace(row, f" {'      '.join(changed)}\n"))


def _qps(text: str, r: random.Random) -> str | None:
    """The heading names another number of QPs. A JSON and raw Ethernet have no line for each of them."""
    if _is_json(text) or "RawEth" in text:
        return None
    return re.sub(r"Number of qps   : (\d+)", lambda m: f"Number of qps   : {int(m.group(1)) * r.choice([2, 3, 8])}", text)


def _end(text: str, r: random.Random) -> str | None:
    """The output ends before its table does."""
    if _is_json(text):
        return text[: r.randrange(text.index("MsgSize"), text.rindex("}"))]
    return text[: r.randrange(text.index("#bytes"), text.index("-" * 87, text.index("#bytes")))]


def _end_after_sum(text: str, r: random.Random) -> str | None:
    return text[: text.index("\n Local")] if "Local results" in text else None


def _out_of_order(text: str, r: random.Random) -> str | None:
    """A quantile of a latency lies below a smaller one, or the mean outside of all."""

    def change(words: list[str]) -> list[str]:
        order = [2, 4, 7, 8, 3]
        at = r.randrange(4)
        low, high = order[at], order[at + 1]
        if r.random() < 0.2:
            low, high = r.choice([(5, 2), (3, 5)])
            words[low] = _scaled(words[high], 0.7 if low == 5 else r.uniform(0.5, 0.9))
        elif r.random() < 0.5:
            words[low] = f"{float(words[high]) * r.uniform(1.02, 5) + 0.02:.2f}"
        else:
            words[high] = f"{max(float(words[low]) * r.uniform(0.1, 0.98) - 0.02, 0):.2f}"
        return words

    return _replaced(text, r, change) if _by_iterations(text) else None


def _far(column: int) -> Lie:
    """A number of a latency of a hundred samples or more is four times what it was, or a quarter, or further off."""

    def lie(text: str, r: random.Random) -> str | None:
        def change(words: list[str]) -> list[str]:
            words[column] = _scaled(words[column], r.choice([4, 10, 0.25, 0.1, r.uniform(4, 20)]))
            return words if int(words[1]) > 100 else None

        return _replaced(text, r, change) if _by_iterations(text) else None

    return lie


def _few(text: str) -> bool:
    """Return True if there are too few samples for the highest percentile to be another than t_max."""
    return _by_iterations(text) and all(int(row.split()[1]) <= 1002 for row in _rows(text) or [" ".join(_values(text))])


def _failed(text: str, r: random.Random) -> str | None:
    said = " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n"
    return None if _is_json(text) else r.choice([said + text, text + said, text.replace(" #bytes", said + " #bytes", 1)])


LIES: dict[str, Lie] = {
    "a row or a name repeated": _repeated,
    "a row of another run beside its own": _row_of_another(False),
    "a row of another run in place of the only one": _row_of_another(True),
    "a row of a twin": _row_of_a_twin,
    "the table of another test": _table_of_another,
    "two outputs": _two_outputs,
    "the title of another operation": _other_title,
    "the title of another operation where nothing else tells": _only_title,
    "the title of another direction": _direction(True),
    "the title of another direction where nothing else tells": _direction(False),
    "another unit": _unit,
    "another number of QPs": _qps,
    "the size of a bandwidth": _size(_shows_rate),
    "the size of a latency": _size(lambda text: _is_latency(text) and not _sweeps(text)),
    "a size in a sweep of latencies": _size(lambda text: _is_latency(text) and _sweeps(text)),
    "the iterations of a bandwidth": _number_of(1, lambda text: _shows_rate(text) and not _sweeps(text) and "Bidirec" not in text, 2),
    "the iterations of a bandwidth in both directions": _number_of(
        1, lambda text: _is_bandwidth(text) and not _sweeps(text) and "Bidirec" in text and "Local results" not in text
    ),
    "the iterations of a latency": _number_of(1, lambda text: _by_iterations(text) and not _sweeps(text)),
    "the iterations of a latency by duration": _number_of(1, _by_duration, 2),
    "the iterations of a row of a sweep": _number_of(1, _sweeps),
    "the average": _number_of(3, _shows_rate),
    "the rate": _number_of(4, _shows_rate),
    "size, average or rate of a device below ten messages a second": lambda text, r: r.choice(
        [_size(_hides_rate), _number_of(3, _hides_rate), _number_of(4, _hides_rate)]
    )(text, r),
    "columns of a bandwidth swapped": _swapped(_shows_rate),
    "columns of a latency swapped": _swapped(_by_iterations),
    "median and mean swapped": _swapped(_by_iterations, (4, 5)),
    "deviation and a latency swapped": lambda text, r: _swapped(_by_iterations, (6, r.choice([2, 3, 4, 5, 7, 8])))(text, r),
    "time and rate of a latency by duration swapped": _swapped(_fast),
    "time and rate of a latency by duration of 25 us or more swapped": _swapped(_slow),
    "time and rate of a latency by duration of about 700 us swapped": _swapped(_alike),
    "quantiles out of order": _out_of_order,
    "a median far off": _far(4),
    "a mean far off": _far(5),
    "t_max or 99.9 % of few samples": lambda text, r: _number_of(r.choice([3, 8]), _few)(text, r),
    "t_min, t_max, a percentile or the deviation as the others admit": lambda text, r: _number_of(
        r.choice([2, 3, 6, 7, 8]), _by_iterations
    )(text, r),
    "t_avg of a latency by duration": _number_of(2, _by_duration),
    "tps of a latency by duration": _number_of(3, _by_duration),
    "a row of a sweep gone": _sweep(_dropped),
    "a row of a sweep twice": _sweep(_twice),
    "a sweep in another order": _sweep(_reordered),
    "a sweep cut to one row": _sweep(lambda rows, r: [r.choice(rows)]),
    "a table of one side": _sides,
    "cut": _end,
    "the tables of both sides cut off after their sum": _end_after_sum,
    "a line that says it failed": _failed,
}
_NOTHING_TELLS = "nothing else in the text depends on it; `expect_` arguments and the probe, which knows what it asked for, see it"
UNSEEN: dict[str, str] = {
    "a row of another run in place of the only one": _NOTHING_TELLS,
    "a row of a twin": "its numbers fit each other: it is the text of another run of the same test",
    "the title of another operation where nothing else tells": _NOTHING_TELLS,
    "the title of another direction where nothing else tells": _NOTHING_TELLS,
    "the size of a latency": _NOTHING_TELLS,
    "the iterations of a bandwidth": _NOTHING_TELLS,
    "the iterations of a bandwidth in both directions": "a run by duration prints the rate of both and the iterations of one",
    "the iterations of a latency": _NOTHING_TELLS,
    "the iterations of a latency by duration": _NOTHING_TELLS,
    "size, average or rate of a device below ten messages a second": "the rate is printed with less than two digits",
    "median and mean swapped": "both are a middle of the same samples, and differ by little",
    "deviation and a latency swapped": "on a device so noisy that its deviation is no smaller than its latencies",
    "time and rate of a latency by duration of 25 us or more swapped": "either could be the other; expect_duration tells",
    "time and rate of a latency by duration of about 700 us swapped": "they differ by less than a test of a second may end late",
    "t_min, t_max, a percentile or the deviation as the others admit": "the samples are not printed; none of them is judged",
    "a sweep cut to one row": "it is what a test of one size prints; expect_bytes tells",
    "the tables of both sides cut off after their sum": "it is what a test without --report-both prints",
}
