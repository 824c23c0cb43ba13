#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Broken input, healthy input and lies for the readers of tools: `run.py [--target NAME] [--inputs N] [--lies N] [--seed S]`.

A target (targets/*.py) has SEEDS, a list of healthy texts, and check(text, healthy), which raises AssertionError where a
reader does wrong. Inputs are healthy texts that were cut, spliced, repeated, or had characters changed, and pure junk.

A lie is a text of the right form whose meaning was changed, so that it must not count as the measurement that it says it is. A target
that knows some has
    LIES      {class: function(healthy text, random) -> lying text, or None where this text offers nothing to change}
    accepts   function(lying text, healthy text) -> whether the reader takes it for a measurement
    TRUTHS    the healthy texts that are lied about, all of them measured (default: SEEDS)
    UNSEEN    {class of LIES: why no reader can see it}; these are counted by themselves
More than one accepted lie in 1,000 of a target fails the run; the first of each class is kept in a file. A target may have HEALTHY, too,
a function(random) -> a healthy text that nobody recorded: as many as inputs, and none may be refused.

Without a target the inputs are shared among all, and the lies among those that have some. The last line is JSON.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pathlib
import random
import re
import sys
import time
import typing as t

HERE = pathlib.Path(__file__).resolve().parent
JUNK = [
    "\0", "\x1b[31m", "<script>alert(1)</script>", "nan", "inf", "-1", "1e999", "9" * 40, "\n", "\r\n", "\t", "é", "\ud800", "{", "}",
    "#", "N/A", "[1,0]<stdout>:",
]  # fmt: skip
sys.path[:0] = [str(HERE), str(HERE.parents[1] / ".collections")]


def load(name: str) -> t.Any:
    spec = importlib.util.spec_from_file_location(f"fuzz_{name}", HERE / "targets" / f"{name}.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"no fuzz target {name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mutate(text: str, source: random.Random, seeds: list[str]) -> str:
    """One to four changes of a healthy text."""
    for _change in range(source.randint(1, 4)):
        at = source.randrange(len(text) + 1)
        kind = source.randrange(9)
        if kind == 0:
            text = text[:at]
        elif kind == 1:
            text = text[at:]
        elif kind == 2:
            text = text[:at] + source.choice(JUNK) + text[at:]
        elif kind == 3 and text:
            digits = [i for i in range(at, min(at + 80, len(text))) if text[i].isdigit()]
            if digits:
                i = source.choice(digits)
                text = text[:i] + str(source.randrange(10)) + text[i + 1 :]
        elif kind in (4, 5):
            lines = text.split("\n")
            line = source.randrange(len(lines))
            if kind == 4:
                del lines[line]
            else:
                lines.insert(source.randrange(len(lines)), lines[line])
            text = "\n".join(lines)
        elif kind == 6:
            other = source.choice(seeds)
            text = text[:at] + other[source.randrange(len(other) + 1) :]
        elif kind == 7:
            text = text[:at] + text[at + source.randint(1, 200) :]
        else:
            text = "".join(source.choice(JUNK) for _unused in range(source.randint(0, 40)))
    return text


def run(name: str, inputs: int, seed: int) -> dict[str, t.Any]:
    target = load(name)
    source = random.Random(f"{name}:{seed}")
    begin = time.monotonic()
    for number in range(inputs):
        healthy = source.choice(target.SEEDS)
        text = mutate(healthy, source, target.SEEDS)
        try:
            target.check(text, healthy)
        except Exception:
            path = pathlib.Path(f"fuzz-{name}-{seed}-{number}.txt")
            path.write_text(text, encoding="utf-8", errors="surrogatepass")
            print(f"{name}: input {number} of seed {seed} failed; it is in {path}", file=sys.stderr)
            raise
        if sys.stderr.isatty() and number % 50000 == 0:
            print(f"{name}: {number} of {inputs}", file=sys.stderr)
    seconds = time.monotonic() - begin
    return {"target": name, "inputs": inputs, "per_second": round(inputs / max(seconds, 1e-9)), "failed": 0}


def lie(name: str, lies: int, seed: int) -> dict[str, t.Any] | None:
    """Counts of lies, as many of each class: {class: [told, accepted]}. None where the target has none."""
    target = load(name)
    classes = getattr(target, "LIES", None)
    if not classes:
        return None
    truths, unseen = getattr(target, "TRUTHS", target.SEEDS), getattr(target, "UNSEEN", {})
    counts: dict[str, list[int]] = {}
    for kind, change in classes.items():
        source = random.Random(f"{name}:{kind}:{seed}")
        told = accepted = 0
        for number in range(-(-lies // len(classes))):
            healthy = source.choice(truths)
            text = change(healthy, source)
            if text is None or text == healthy:
                continue
            told += 1
            if target.accepts(text, healthy):
                accepted += 1
                if accepted == 1 and kind not in unseen:
                    path = pathlib.Path(f"lie-{name}-{re.sub(r'[^a-z0-9]+', '-', kind.lower()).strip('-')}-{seed}-{number}.txt")
                    path.write_text(text, encoding="utf-8", errors="surrogatepass")
                    print(f"{name}: accepted lie, {kind}; it is in {path}", file=sys.stderr)
        counts[kind] = [told, accepted]
    total, wrong = (sum(count[i] for kind, count in counts.items() if kind not in unseen) for i in (0, 1))
    return {
        "target": name, "lies": total, "accepted": wrong, "holds": wrong * 1000 <= total > 0,
        "classes": {kind: count for kind, count in counts.items() if kind not in unseen},
        "unseen": {kind: [*counts[kind], why] for kind, why in unseen.items()},
    }  # fmt: skip


def healthy(name: str, inputs: int, seed: int) -> dict[str, t.Any] | None:
    """Return how many of the texts that a target makes up its reader refuses."""
    target = load(name)
    if not hasattr(target, "HEALTHY"):
        return None
    refused = 0
    for number in range(inputs):
        text = target.HEALTHY(random.Random(f"{name}:healthy:{seed}:{number}"))
        if not target.accepts(text, text):
            refused += 1
            path = pathlib.Path(f"healthy-{name}-{seed}-{number}.txt")
            if refused <= 3:
                path.write_text(text, encoding="utf-8")
                print(f"{name}: refused healthy text; it is in {path}", file=sys.stderr)
    return {"target": name, "healthy": inputs, "refused": refused, "holds": not refused}


def main() -> int:
    known = sorted(p.stem for p in (HERE / "targets").glob("*.py"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=known)
    parser.add_argument("--inputs", type=int, default=50000)
    parser.add_argument("--lies", type=int, help="default: as many as inputs")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    targets = [chosen.target] if chosen.target else known
    liars = [name for name in targets if getattr(load(name), "LIES", None)]
    lies = chosen.inputs if chosen.lies is None else chosen.lies
    results = [run(name, chosen.inputs // len(targets), chosen.seed) for name in targets]
    told = [found for name in liars if lies and (found := lie(name, lies // len(liars), chosen.seed))]
    made = [found for name in targets if (found := healthy(name, chosen.inputs // len(targets), chosen.seed))]
    for result in [*results, *made, *told]:
        print(json.dumps(result))
    total, wrong = sum(r["lies"] for r in told), sum(r["accepted"] for r in told)
    counts = {"inputs": sum(r["inputs"] for r in results), "failed": 0, "lies": total, "accepted": wrong}
    print(json.dumps({**counts, "refused": sum(m["refused"] for m in made)}))
    return 0 if all(found["holds"] for found in [*told, *made]) else 1


if __name__ == "__main__":
    sys.exit(main())
