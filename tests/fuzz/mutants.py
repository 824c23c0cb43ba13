#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Count mutants of healthy outputs that are read as another measurement: `mutants.py [--target NAME] [--mutants N] [--seed S]`.

run.py tells lies that somebody thought of. A mutant is a blind change: a digit, a line, two columns, rows of two runs. A target takes
part if it has

    judge(text, healthy)   the numbers that a verdict uses, read as somebody reads `healthy`; None if the reader refuses the text

Each mutant is `refused`; `harmless`, as its judged numbers are those of the healthy text; or `wrong`, as they are others. One JSON line
for each target, with these counts for each mutation. The same seed gives the same mutants.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import random
import re
import sys
import typing as t

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from run import HERE, load

SAME = 2e-3  # between two numbers that no verdict tells apart: its bands are 5 % wide
Mutation = t.Callable[[str, random.Random, "list[str]"], "str | None"]
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_ROW = re.compile(r"^\D{0,40}?\d+[\s|]+.*\d.*$")


def _data(lines: list[str]) -> list[int]:
    """Return the places of lines that begin with a number (behind a launcher's prefix) and hold more."""
    return [at for at, line in enumerate(lines) if _ROW.match(line) and len(_NUMBER.findall(line)) > 2]


def _size(line: str) -> str:
    found = re.search(r"(?:^|[\s:])(\d+)[\s|]", line)
    return found.group(1) if found else ""


def digit(text: str, r: random.Random, _others: list[str]) -> str | None:
    places = [at for at, c in enumerate(text) if c.isdigit()]
    if not places:
        return None
    at = r.choice(places)
    return text[:at] + r.choice("0123456789".replace(text[at], "")) + text[at + 1 :]


def digit_of_a_row(text: str, r: random.Random, _others: list[str]) -> str | None:
    lines = text.split("\n")
    rows = _data(lines)
    if not rows:
        return None
    at = r.choice(rows)
    changed = digit(lines[at], r, [])
    return None if changed is None else "\n".join([*lines[:at], changed, *lines[at + 1 :]])


def line_gone(text: str, r: random.Random, _others: list[str]) -> str:
    lines = text.split("\n")
    del lines[r.randrange(len(lines))]
    return "\n".join(lines)


def line_twice(text: str, r: random.Random, _others: list[str]) -> str:
    lines = text.split("\n")
    lines.insert(r.randrange(len(lines) + 1), r.choice(lines))
    return "\n".join(lines)


def lines_swapped(text: str, r: random.Random, _others: list[str]) -> str:
    lines = text.split("\n")
    a, b = r.randrange(len(lines)), r.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return "\n".join(lines)


def columns_swapped(text: str, r: random.Random, _others: list[str]) -> str | None:
    lines = text.split("\n")
    rows = _data(lines)
    if not rows:
        return None
    at = r.choice(rows)
    found = list(_NUMBER.finditer(lines[at]))
    a, b = sorted(r.sample(found, 2), key=lambda match: match.start())
    line = lines[at]
    lines[at] = line[: a.start()] + b.group() + line[a.end() : b.start()] + a.group() + line[b.end() :]
    return "\n".join(lines)


def rows_mixed(text: str, r: random.Random, others: list[str]) -> str | None:
    """Rows of another run stand in place of those of the same sizes."""
    lines = text.split("\n")
    rows = _data(lines)
    shape = {at: (_size(lines[at]), len(lines[at].split())) for at in rows}
    for _try in range(12):
        theirs = r.choice(others).split("\n")
        same = {(_size(theirs[at]), len(theirs[at].split())): theirs[at] for at in _data(theirs)}
        fit = [at for at in rows if shape[at] in same]
        if len(fit) > 1:
            for at in r.sample(fit, r.randint(1, len(fit) - 1)):
                lines[at] = same[shape[at]]
            return "\n".join(lines)
    return None


def cut(text: str, r: random.Random, _others: list[str]) -> str:
    return text[: r.randrange(len(text))]


def beginning_gone(text: str, r: random.Random, _others: list[str]) -> str:
    return text[r.randrange(len(text)) :]


MUTATIONS: dict[str, Mutation] = {
    "a digit": digit, "a digit of a row": digit_of_a_row, "a line gone": line_gone, "a line twice": line_twice,
    "two lines swapped": lines_swapped, "two columns of a row swapped": columns_swapped,
    "rows of two runs mixed at equal sizes": rows_mixed, "cut": cut, "the beginning gone": beginning_gone,
}  # fmt: skip


def compare(read: t.Any, true: t.Any) -> str:
    """Return what became of a mutant, by its judged numbers and the true ones."""
    return "refused" if read is None else "harmless" if _same(read, true) else "wrong"


def _same(read: t.Any, true: t.Any) -> bool:
    if isinstance(read, dict) and isinstance(true, dict):
        return read.keys() == true.keys() and all(_same(read[key], true[key]) for key in true)
    if isinstance(read, (list, tuple)) and isinstance(true, (list, tuple)):
        return len(read) == len(true) and all(map(_same, read, true))
    if isinstance(read, float) and isinstance(true, float):
        return math.isclose(read, true, rel_tol=SAME)
    return bool(read == true)


def count(name: str, mutants: int, seed: int) -> dict[str, t.Any]:
    target = load(name)
    truths = getattr(target, "TRUTHS", target.SEEDS)
    counts: dict[str, dict[str, int]] = {}
    for kind, mutate in MUTATIONS.items():
        source = random.Random(f"{name}:{kind}:{seed}")
        of = counts[kind] = {"refused": 0, "harmless": 0, "wrong": 0}
        for number in range(-(-mutants // len(MUTATIONS))):
            healthy = source.choice(truths)
            text = mutate(healthy, source, truths)
            if text is None or text == healthy:
                continue
            verdict = compare(target.judge(text, healthy), target.judge(healthy, healthy))
            of[verdict] += 1
            if verdict == "wrong" and of["wrong"] == 1:
                path = pathlib.Path(f"mutant-{name}-{re.sub(r'[^a-z0-9]+', '-', kind)}-{seed}-{number}.txt")
                path.write_text(text, encoding="utf-8", errors="surrogatepass")
    total, wrong = sum(sum(of.values()) for of in counts.values()), sum(of["wrong"] for of in counts.values())
    return {"target": name, "mutants": total, "wrong": wrong, "classes": counts}


def main() -> int:
    known = sorted(p.stem for p in (HERE / "targets").glob("*.py") if "def judge(" in p.read_text())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=known)
    parser.add_argument("--mutants", type=int, default=8000, help="of each target (default 8000)")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    for name in [chosen.target] if chosen.target else known:
        print(json.dumps(count(name, chosen.mutants, chosen.seed)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
