# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report for machines and plain text: JSON, Markdown, JUnit XML, Prometheus. Each escapes what a node can send.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import functools
import itertools
import json
import pathlib
import re
import typing as t
from xml.sax import saxutils

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import exposition
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects, verdict_files, versions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import CheckRows, FaultRow, Report, Row, StageRows
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import listing

# Control characters, what turns the direction of text or takes no room, and what no XML may hold.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff\ud800-\udfff]")
# Rows of a Markdown table of one check.
ROWS = 200
# Lines that are handed over together.
TOGETHER = 1000
# How deep the rows of checks lie in a stage of the model, and how many are made JSON at once: to begin takes as long as a third of a row.
ROW_DEPTH = 4
ROWS_TOGETHER = 100
# The fields of a summary that Prometheus is given.
STATISTICS: tuple[t.Literal["min", "median", "max"], ...] = ("min", "median", "max")
# So many subjects that a cause explains are named.
EXPLAINED = 40


def plain(text: t.Any) -> str:
    """A string in which everything can be seen: control and direction characters are shown as their codes."""
    text = str(text)
    return text if text.isprintable() else _UNSEEN.sub(lambda m: f"\\x{ord(m.group(0)):02x}", text)


def number(value: t.Any) -> str:
    """Four significant digits, whole numbers as they are; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, int) or value == 0:
        return f"{value:.0f}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:#.4g}"


def is_only_shown(row: t.Mapping[str, t.Any]) -> bool:
    """Return True if a row is a PASS of a number that nothing was held against. Of other checks than those that are `shown_only` such a row
    was compared with peers."""
    return row["verdict"] == "PASS" and row["value"] is not None and row["floor"] is None


def seconds(value: float | None) -> str:
    """A duration as people say it."""
    if value is None:
        return ""
    if value < 0.1:
        return "< 0.1 s"
    return f"{value:.1f} s" if value < 100 else f"{value:.0f} s"


def as_json(model: Report) -> str:
    """report/v1; an entry of a list is one line, so that two reports can be compared by lines."""
    return "".join(json_parts(model))


def json_parts(model: Report) -> t.Iterator[str]:
    """The same in parts. Of a large run some rows are not listed (report/listing.py)."""
    separator = "{\n"
    listed_model = {**model, "nodes": list(listing.nodes(model)), "stages": list(map(listing.stage, model["stages"]))}
    listed_model["sections"] = [{name: value for name, value in section.items() if name != "picture"} for section in model["sections"]]
    for key, value in listed_model.items():
        yield f"{separator} {json.dumps(key)}: "
        separator = ",\n"
        if isinstance(value, list) and value:
            for number, item in enumerate(value):
                yield ",\n  " if number else "[\n  "
                yield from _parts(item, ROW_DEPTH if key == "stages" else 0)
            yield "\n ]"
        else:
            yield json.dumps(value, sort_keys=True)
    yield "\n}\n"


_encode = json.JSONEncoder(sort_keys=True).encode


def _parts(value: t.Any, depth: int) -> t.Iterator[str]:
    """Yield the text of json.dumps with sorted keys, in parts down to some depth."""
    if depth and isinstance(value, dict) and value:
        for number, key in enumerate(sorted(value)):
            yield f"{', ' if number else '{'}{json.dumps(key)}: "
            yield from _parts(value[key], depth - 1)
        yield "}"
    elif depth > 1 and isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield ", " if number else "["
            yield from _parts(item, depth - 1)
        yield "]"
    elif depth and isinstance(value, list) and value:
        for first in range(0, len(value), ROWS_TOGETHER):
            yield f"{', ' if first else '['}{_encode(value[first : first + ROWS_TOGETHER])[1:-1]}"
        yield "]"
    else:
        yield _encode(value)


def head(path: pathlib.Path, names: t.Collection[str]) -> PlainData:
    """Return some fields of a report/v1 that `as_json` wrote, by its lines: what a large fleet measured is not held for it, nor read if it
    stands behind the last of the fields. A report of an older version may lack fields. Raises RunError for a report of another
    schema."""
    fields: PlainData = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if len(fields) == len(names):
                break
            field = re.match(r' "(\w+)": ', line)
            if field and field[1] == "schema":
                other_version = versions.problem_of_text("{" + line.strip().removesuffix(",") + "}", "report/v1")
                if other_version:
                    raise RunError(f"{path.name}: {other_version}")
            if not field or field[1] not in names:
                continue
            text = line[field.end() :]
            if text.rstrip() == "[":
                text += "".join(itertools.takewhile(lambda part: not part.startswith(" ]"), lines)) + "]"
            fields[field[1]] = json.loads(text.strip().removesuffix(","))
    return fields


def cell(text: t.Any) -> str:
    """Text as the content of a Markdown line or table cell: nothing in it is markup, nor a link."""
    flat = " ".join(plain(text).split())
    escaped = re.sub(r"([\\`*_{}\[\]()<>#+!|~&$@])", r"\\\1", flat)
    # Some readers make a link of a bare address, and a list or a heading of a line that begins with its mark.
    escaped = re.sub(r"(?i)\b(https?|ftp|file|mailto|javascript|data|www)([:.])", r"\1\\\2", escaped)
    return re.sub(r"^(\d*)([-=.])", r"\1\\\2", escaped)


def _row(*cells: t.Any) -> str:
    return "| " + " | ".join(cells) + " |"


def _table(lines: list[str], head: str, *columns: str) -> None:
    lines += ["", f"## {head}", "", _row(*columns), "|" + "---|" * len(columns)]


def coverage(model: Report) -> str:
    """Return how many planned checks were measured and their verdicts, as `84 planned checks, 81 measured: 78 PASS, 2 UNKNOWN, 4 FAIL`."""
    of = model["coverage"]
    verdicts = ", ".join(f"{count} {word}" for word, count in of["verdicts"].items())
    skipped = f", {of['skipped']} not for this hardware" if of["skipped"] else ""
    return f"{of['planned']} planned checks, {of['measured'] - of['skipped']} measured{skipped}{f': {verdicts}' if verdicts else ''}"


def markdown(model: Report) -> str:
    """The report as one Markdown page: what stands on the HTML page, without pictures and long lists."""
    lines = [
        f"# {model['word']}: run {cell(model['run_id'])}",
        "",
        cell(model["why"]),
        "",
    ]
    if model["simulated"]:
        lines += ["**SIMULATED: results marked so come from simulated tools, not from hardware.**", ""]
    if model["partial"]:
        lines += [f"**PARTIAL: {cell(left_out(model))}**", ""]
    lines += [f"{coverage(model)}."]
    if model["causes"]:
        lines += ["", "## Findings", "", cell(f"{model['blamed']} of {model['counted']}"), ""]
        for cause in model["causes"]:
            lines += [f"- **{cell(cause['verdict'])}** {cell(cause['said'])}{_simulated(cause)}"]
            lines += [f"  - {cell(place)}" for place in cause["place"]]
            lines += [f"  - What to do: {cell(' '.join(cause['advice']))}"] if cause["advice"] else []
            for f in cause["findings"]:
                also = f" (also {cell(', '.join(f['also'][:8]))})" if f["also"] else ""
                if cause["whole"] or cause["explains"] or also or len(cause["findings"]) > 1:  # else it was said just now
                    lines += [f"  - {cell(f['verdict'])} {cell(f['stage'])} {cell(f['check'])}: {cell(f['reason'])}{also}"]
                lines += [f"    - {cell(text)}" for text in f["evidence"][:8]]
                if f["raw"]:
                    lines += [f"    - output: {cell(f['raw'])}"]
            if cause["explains"]:
                names = list(dict.fromkeys(check_of["subject"] for check_of in cause["explains"]))
                hidden_text = f" and {len(names) - EXPLAINED} more, see report.json" if len(names) > EXPLAINED else ""
                lines += [f"  - because of it: {cell(', '.join(names[:EXPLAINED]))}{hidden_text}"]
    _table(lines, "Nodes", "node", "verdict", *(cell(s["name"]) for s in model["stages"]))
    for node in model["nodes"]:
        if node["kind"] != "pair":
            stages = (cell(word) for word in node["stages"].values())
            lines.append(_row(cell(node["name"]) + _simulated(node), cell(node["verdict"]), *stages))
    pairs = collections.Counter(node["verdict"] for node in model["nodes"] if node["kind"] == "pair")
    if pairs:
        lines += ["", f"Pairs, each in its stage below: {cell(', '.join(f'{n} {word}' for word, n in pairs.items()))}."]
    for stage in model["stages"]:
        for group in stage["checks"]:
            _markdown_check(lines, stage["name"], group)
    _table(lines, "Looked for, and not looked for", "fault", "in the field", "looked for by", "nodes")
    for row in model["looked_for"]["rows"]:
        lines.append(_row(*(cell(text) for text in (row["fault"], row["field"], looked_for_by(row), looked_for_on(row)))))
    reasons_why = [f"- Not looked for, {cell(row['fault'])}: {cell(why)}" for row in model["looked_for"]["rows"] for why in row["why"]]
    unseen = [*reasons_why, *(f"- Not seen: {cell(words)}" for words in model["looked_for"]["unseen"])]
    lines += ["", *unseen] if unseen else []
    for section in model["sections"]:
        _table(lines, section["title"], *(cell(column) for column in section["columns"]))
        lines += [_row(*(cell(text) for text in row)) for row in section["rows"]]
        lines += ["", *(cell(line) for line in section["said"])]
    if model["drift"]:
        _table(lines, "Stack that differs", "item", "found", "on", "expected", "on as expected", "basis")
        for d in model["drift"]:
            on = cell(", ".join(d["differing"])) + _simulated(d)
            agreeing = f"{d['agree']} of {d['of']}: {cell(', '.join(d['agreeing']))}"
            lines.append(_row(cell(d["item"]), cell(d["found"]), on, cell(d["expected"]), agreeing, cell(d["basis"])))
    if model["expectations"]:
        _table(lines, "Expectations used", "check", "expectation", "expected", "floor", "layer", "source", "date", "confidence")
        for e in model["expectations"]:
            named = (cell(f"{e['stage']} {e['check']} {e['metric']}"), cell(e["expectation"]))
            numbers = (f"{number(e['expected'])} {cell(e['unit'])}", f"{number(e['floor'])} {cell(e['unit'])}")
            lines.append(_row(*named, *numbers, cell(e["layer"]), cell(e["source"]), cell(e["date"]), cell(e["confidence"])))
    for name, sample in model["sample"].items():
        lines += ["", cell(f"Sample of stage {name}: seed {sample['seed']}, nodes {', '.join(sample['nodes'])}")]
    if model["waivers"]:
        _table(lines, "Waivers", "subject", "check", "ticket", "expires", "reason")
        for w in model["waivers"]:
            check_words = cell(f"{w['stage']} {w['check']}")
            lines.append(_row(cell(w["subject"]), check_words, cell(w["ticket"]), cell(w["expires"]), cell(w["reason"])))
    if model["past"]:
        lines += ["", "## Against their own past", "", *(f"- {cell(line)}" for line in model["past"]["said"])]
    if model["since"]:
        lines += ["", f"## Since the last accepted run, {cell(model['since']['before'])}", ""]
        lines += [f"- {cell(line)}" for line in model["since"]["said"]]
    _table(lines, "Command lines", "stage", "nodes", "command")
    lines += [_row(cell(c["stage"]), str(c["nodes"]), cell(c["command"])) for c in model["commands"]]
    _table(lines, "Versions", "what", "version", "nodes")
    lines += [_row(cell(v["name"]), cell(v["version"]), str(v["nodes"] or "")) for v in model["versions"]]
    lines += [
        "",
        f"Plan, journal, verdicts and {len(model['raw'])} raw texts are listed with their SHA-256 in report.json; "
        f"SHA-256 of that list: {model['fingerprint']}",
    ]
    lines += [line for note in model["notes"] for line in ("", f"Note: {cell(note)}")]
    if model["warnings"]:
        lines += ["", "## Signed with these warnings in mind", ""]
        lines += [f"- {cell(w['text'])}{_simulated(w)}" for w in model["warnings"]]
    return "\n".join(lines).rstrip() + "\n"


def looked_for_by(row: FaultRow) -> str:
    """Return the checks that looked for a class of faults, in words."""
    return ", ".join(row["checks"]) or "nothing: not looked for"


def looked_for_on(row: FaultRow) -> str:
    """Return on how many nodes a class of faults was looked for, in words."""
    return f"{row['nodes']} of {row['of']}"


def left_out(model: Report) -> str:
    """Return the hosts and stages that a partial run left out, in words."""
    hosts, stages = model["left_out"], model["skipped_stages"]
    parts = []
    if model["not_proven"]:
        parts.append(f"a quick test, which does not show {', '.join(model['not_proven'])}")
    if hosts:
        parts.append(f"{subjects.hosts(hosts)} left out: {', '.join(hosts[:50])}{' ...' if len(hosts) > 50 else ''}")
    if stages:
        parts.append(f"stages left out: {', '.join(stages)}")
    return "; ".join(parts) or "parts of the fleet or of the stages were left out"


def _simulated(row: t.Mapping[str, t.Any]) -> str:
    return " (simulated)" if row["simulated"] else ""


def _markdown_check(lines: list[str], stage: str, group: CheckRows) -> None:
    """Add a table of one check; where nothing has a number only what is not a PASS."""
    rows = [r for r in group["rows"] if r["value"] is not None or r["verdict"] != "PASS"][:ROWS]
    counts = ", ".join(f"{n} {word}" for word, n in group["counts"].items())
    lines += ["", f"### {cell(stage)} {cell(group['check'])} {cell(group['variant'])}".rstrip(), "", f"{cell(counts)}"]
    if not rows:
        return
    lines += ["", _row("subject", "verdict", "value", "floor", "shown, not gated on"), "|---|---|---|---|---|"]
    for r in rows:
        unit = cell(r["unit"] or "")
        ungated = ", ".join(f"{name} {number(m['value'])} {m['unit']}" for name, m in r["ungated"].items())
        values = (f"{number(r['value'])} {unit}".strip(), number(r["floor"]), cell(ungated))
        word = cell(r["verdict"]) + (", not judged" if group["shown_only"] and is_only_shown(r) else "")
        lines.append(_row(cell(r["subject"]) + _simulated(r), word, *values))
    if len(group["rows"]) > len(rows):
        lines += ["", f"{len(group['rows']) - len(rows)} more rows stand in {verdict_files.WORDS}."]
    for r in rows:
        if r["sweep"]:
            lines += ["", cell(r["subject"]), "", _row("world size", "message size (B)", "time (us)", "algbw (GB/s)", "busbw (GB/s)")]
            lines.append("|---|---|---|---|---|")
            for size in r["sweep"]["rows"][:ROWS]:
                values = (number(size["time_us"]), number(size["algbw"]), number(size["busbw"]))
                lines.append(_row(str(r["sweep"]["world_size"]), str(size["size"]), *values))


def junit(model: Report) -> str:
    """One test case per verdict; FAIL is a failure, UNKNOWN an error, SKIPPED and KNOWN_FAIL are skipped."""
    return "".join(junit_parts(model))


def junit_parts(model: Report) -> t.Iterator[str]:
    """The same in parts, each element written as it is: for a large run, to make them of objects takes three times as long."""
    because = {
        (check_of["stage"], check_of["check"], check_of["variant"], check_of["subject"]): f"because of {cause['said']}; "
        for cause in model["causes"]
        for check_of in cause["explains"]
    }
    tags = {"FAIL": "failure", "UNKNOWN": "error", "SKIPPED": "skipped", "KNOWN_FAIL": "skipped"}
    attribute = functools.cache(_attribute)  # a name stands at many cases
    # Who reads JUnit tells cases apart by class and name only: a stage that repeats the checks of another one adds its name.
    first_of: dict[str, str] = {}
    yield f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="{attribute(model["run_id"])}">'
    for stage in model["stages"]:
        of = collections.Counter(
            tags.get(verdict, "")
            for group in stage["checks"]
            for verdict in (*(row["verdict"] for row in listing.rows(group)), *listing.unlisted(group))
        )
        counts = f'tests="{of.total()}" failures="{of["failure"]}" errors="{of["error"]}" skipped="{of["skipped"]}"'
        yield f'<testsuite name="{attribute(stage["name"])}" {counts}>'
        for group in stage["checks"]:
            check = f"{group['check']} {group['variant']}".strip()
            if first_of.setdefault(check, stage["name"]) != stage["name"]:
                check += f" [{stage['name']}]"
            for row in listing.rows(group):
                verdict, subject = row["verdict"], row["subject"]
                names = f'name="{attribute(check + _simulated(row))}" classname="{attribute(subject)}"'
                case = f'testcase {names} time="{row["duration_s"] or 0:.3f}"'
                if verdict not in tags and verdict != "WARN":
                    yield f"<{case} />"
                    continue
                reason = because.get((stage["name"], group["check"], group["variant"], subject), "") + row["reason"]
                text = f"{verdict}: {_flat(reason)}"
                if verdict in tags:
                    yield f'<{case}><{tags[verdict]} message="{_attribute(text[:2000])}" /></testcase>'
                else:
                    yield f"<{case}><system-out>{saxutils.escape(text)}</system-out></testcase>"
            for word, count in listing.unlisted(group).items():
                # One case for all subjects with one verdict, so that a suite with a FAIL never looks as if it had none. Its name has no
                # number, since readers compare cases of two runs by their names.
                inner = f'<{tags[word]} message="{word}: {count} subjects" />' if word in tags else ""
                names = f'name="{attribute(check)}: all other subjects with {word}" classname="{attribute(stage["name"])}"'
                text = saxutils.escape(f"{count} subjects. {_said(model)}")
                yield f'<testcase {names} time="0.000">{inner}<system-out>{text}</system-out></testcase>'
        yield "</testsuite>"
    if not model["passed"]:
        # The run itself is a case: a refusal for another reason than a single check must show as well.
        yield '<testsuite name="acceptance" tests="1" failures="1" errors="0" skipped="0">'
        yield '<testcase name="the run is accepted" classname="acceptance" time="0">'
        yield f'<failure message="{_attribute(_flat(model["why"])[:2000])}" /></testcase></testsuite>'
    yield "</testsuites>\n"


def _said(model: Report) -> str:
    """Return what a file of a large run leaves out, in a sentence; empty if nothing."""
    return model["unlisted"]["said"] if model["unlisted"] else ""


def _flat(text: t.Any) -> str:
    return plain(text).replace("\t", " ").replace("\n", " ")


def _attribute(text: t.Any) -> str:
    """A text as it stands between the quotes of an attribute of XML."""
    return saxutils.escape(_flat(text), {'"': "&quot;"})


def prometheus(model: Report) -> str:
    """Metrics for the text file collector of node_exporter."""
    return "".join(prometheus_parts(model))


def prometheus_parts(model: Report) -> t.Iterator[str]:
    """The same in parts."""
    run = model["run_id"]
    coverage = model["coverage"]
    exporter = exposition.Exposition(run_id=_label(run))
    metric = exporter.metric

    def sample(name: str, value: t.Any, **labels: t.Any) -> None:
        exporter.sample(name, value, **{key: _label(text) for key, text in labels.items()})

    metric("accepted", "Whether the run was accepted; a quick test accepts nothing.")
    sample("accepted", int(model["accepted"]), simulated=_bool(model["simulated"]), partial=_bool(model["partial"]))
    metric("verdicts", "Number of verdicts.")
    for word, n in model["counts"].items():
        sample("verdicts", n, verdict=word)
    metric("planned_checks", "Checks that the run planned.")
    sample("planned_checks", coverage["planned"])
    metric("measured_checks", "Planned checks that were measured, or do not apply.")
    sample("measured_checks", coverage["measured"])
    metric("node_verdict", "1 at the worst verdict of a node, a pair, a switch or a group.")
    for node in listing.nodes(model):
        sample("node_verdict", 1, node=node["name"], kind=node["kind"], verdict=node["verdict"], simulated=_bool(node["simulated"]))
    metric("check_verdicts", "Number of verdicts of a check.")
    groups = [(_labels_of(exporter, stage, group), group) for stage in model["stages"] for group in stage["checks"]]
    for labels, group in groups:
        for word, n in group["counts"].items():
            exporter.line("check_verdicts", n, f'{labels},verdict="{word}"')
    metric("check_summary", "The least, median and most of the values of a check, in its unit.")
    for labels, group in groups:
        if summary := group["summary"]:
            unit = exposition.label(_label(summary["unit"]))
            for statistic in STATISTICS:
                exporter.line("check_summary", summary[statistic], f'{labels},unit="{unit}",statistic="{statistic}"')
    metric("unlisted_rows", f"Rows of a large run without a sample of their own. {_said(model)}".rstrip())
    sample("unlisted_rows", model["unlisted"]["rows"] if model["unlisted"] else 0)
    columns: dict[t.Literal["value", "floor"], str] = {
        "value": "What a check measured, in its unit.",
        "floor": "The least, for a time the most, that passes.",
    }
    for name, text in columns.items():
        metric(name, text)
        for number, (row, labelled) in enumerate(_measured(model, exporter)):
            if row[name] is not None:
                exporter.line(name, row[name], labelled)
            if number % TOGETHER == 0:
                yield exporter.taken()
    yield exporter.taken()


def _measured(model: Report, exporter: exposition.Exposition) -> t.Iterator[tuple[Row, str]]:
    """Yield each row that has a value, with its labels; those of thousands of nodes are not held."""
    labelled = functools.cache(lambda name, text: f'{name}="{exposition.label(_label(text))}"')
    for stage in model["stages"]:
        for group in stage["checks"]:
            of = _labels_of(exporter, stage, group)
            for row in listing.rows(group):
                if row["value"] is not None:
                    names = (labelled("subject", row["subject"]), labelled("metric", row["metric"]), labelled("unit", row["unit"]))
                    yield row, ",".join((of, *names))


def _labels_of(exporter: exposition.Exposition, stage: StageRows, group: CheckRows) -> str:
    return exporter.labels(stage=_label(stage["name"]), check=_label(group["check"]), variant=_label(group["variant"]))


def _bool(value: bool) -> str:
    return str(bool(value)).lower()


def _label(value: t.Any) -> str:
    return plain("" if value is None else value)
