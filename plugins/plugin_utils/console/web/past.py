# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results for the pages: the history, and the folders of the runs that still exist.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import threading
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import parts
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import comparing, hardware, machine, searching, showing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError, Store, is_there, url_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import integrity, raw, verdict_files
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, Plan
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.parts import Seen
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import CauseRow, Comparison
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RUN_ID, Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats, judged_runs, model

# Who reads a page does not wait for a writer as long as a run does.
LOCKED_S = 5.0
ROWS = 200
DIGEST = re.compile(r"[0-9a-f]{64}\Z")
HEAD = (
    *("run_id", "planned_at", "created_at", "mode", "accepted", "passed", "word", "why", "partial", "simulated", "counts"),
    *("coverage", "commands", "fingerprint", "raw", "files", "blamed", "counted"),
)
# What a report of an older version may lack.
OF_OLDER: PlainData = {
    "mode": "", "planned_at": "", "created_at": "", "why": "", "partial": False, "simulated": False, "counts": {}, "commands": [],
    "fingerprint": "", "raw": [],
}  # fmt: skip
# Of a run's folder, beside what lies in raw/.
FORMS = ("report.html", "report.json", "report.md", "report.junit.xml", "report.prom", "report.sha256", *verdict_files.NAMES)


class Found(t.NamedTuple):
    """Verdicts that somebody asked for; `cut`: there is more."""

    rows: list[searching.FoundVerdict]
    cut: bool


class Past:
    """The history of a results folder, opened when it is first asked for, and again after trouble."""

    def __init__(self, results_dir: str, url: str = "") -> None:
        self._results = pathlib.Path(results_dir)
        self._url = url
        self._store: Store | None = None
        self._lock = threading.Lock()

    def store(self) -> Store | None:
        """None where nothing was measured yet."""
        if not is_there(self._results, self._url):
            return None
        with self._lock:
            if self._store is None:
                self._store = Store(url_of(self._results, self._url), locked_s=LOCKED_S)
            return self._store

    def close(self) -> None:
        with self._lock:
            if self._store:
                self._store.close()
            self._store = None

    # The history ---------------------------------------------------------------------------------------------------------------------

    def runs(self, before: str = "", limit: int = 50, since: str = "", until: str = "") -> list[searching.JudgedRun]:
        store = self.store()
        return searching.runs(store, before_run=before, limit=limit, since=since, until=until) if store else []

    def run(self, name: str) -> searching.JudgedRun | None:
        store = self.store()
        return next(iter(searching.runs(store, name=name)), None) if store else None

    def partial(self, names: t.Iterable[str]) -> set[str]:
        """Return those of the named runs that are partial; none if the history cannot be read now."""
        wanted = {name for name in names if name}
        with contextlib.suppress(HistoryError):
            store = self.store() if wanted else None
            return searching.partial_runs(store, wanted) if store else set()
        return set()

    def of_digest(self, sha256: str) -> str | None:
        store = self.store()
        return searching.run_of_digest(store, sha256) if store and DIGEST.match(sha256) else None

    def search(self, query: searching.Query, regressed: bool = False, limit: int = ROWS) -> Found:
        """HistoryError says what is not there, or cannot be asked so."""
        store = self.store()
        rows: list[searching.FoundVerdict] = []
        if store is None:
            return Found(rows, False)
        for _run, matches in searching.found_in_runs(store, query, limit + 1, regressed):
            rows += matches
            if len(rows) > limit:
                return Found(rows[:limit], True)
        return Found(rows, False)

    def curves(self, query: searching.Query) -> str:
        """The history's own page."""
        store = self.store()
        if store is None:
            raise HistoryError("there is no history yet")
        return showing.html(query, searching.search(store, query, 20_000))

    def compared(self, before: str, after: str) -> Comparison:
        """Return the differences of `after`; without `before`, against the last accepted run of the same subjects."""
        store = self.store()
        if store is None:
            raise HistoryError("there is no history yet")
        if not after:
            raise HistoryError("found no run to compare, expected its id in the parameter after")
        new = comparing.of_run(store, after)
        before = before or comparing.last_accepted(store, new) or ""
        if not before:
            raise HistoryError(f"no accepted run before {after} has any of its nodes")
        return comparing.compare(store, comparing.of_run(store, before), new)

    def facts(self, node: str) -> list[machine.FactsSince]:
        store = self.store()
        return machine.facts(store, node) if store else []

    def timeline(self, node: str) -> list[machine.RunOfNode]:
        store = self.store()
        return machine.timeline(store, node) if store else []

    def parts(self, name: str) -> list[hardware.FoundPart]:
        """Return the parts that have this name, as of any run."""
        store = self.store()
        return hardware.find(store, name) if store else []

    def seen_on(self, node: str) -> list[Seen]:
        """Return the parts of a node as the newest runs with it have seen them."""
        store = self.store()
        return [Seen({node: parts}, {}) for parts in hardware.of_node(store, node)] if store else []

    def is_node(self, name: str) -> bool:
        """Return True if any run had a node of this name."""
        store = self.store()
        return store is not None and hardware.is_node(store, name)

    # The folders ---------------------------------------------------------------------------------------------------------------------

    def folder(self, run: str) -> pathlib.Path | None:
        """Return the folder of a run's reports: that of its last judgement."""
        return judged_runs.folder_of(self._results, run)

    def head(self, run: str) -> PlainData | None:
        """Return the head of a run's report, whatever version wrote it; None if its folder is gone or was never judged."""
        folder = self.folder(run)
        if folder is None:
            return None
        try:
            fields = {**OF_OLDER, **formats.head(folder / "report.json", HEAD)}
            mode = fields["mode"] or Run(self._results, run).plan().mode
            fields["accepted"], fields["word"] = model.outcome(mode, fields)
            return {**fields, "mode": mode}
        except RunError as error:
            raise HistoryError(f"run {run}: {error}") from None
        except (OSError, ValueError, KeyError) as error:
            raise HistoryError(f"run {run}: report.json cannot be read: {type(error).__name__}") from None

    def causes(self, run: str) -> list[CauseRow]:
        """Return the causes of a run's report, the worst first; empty if its folder is gone. Raises HistoryError for a broken report."""
        folder = self.folder(run)
        if folder is None:
            return []
        try:
            causes: list[CauseRow] = formats.head(folder / "report.json", ("causes",)).get("causes") or []
        except RunError as error:
            raise HistoryError(f"run {run}: {error}") from None
        except (OSError, ValueError) as error:
            raise HistoryError(f"run {run}: report.json cannot be read: {type(error).__name__}") from None
        return causes

    def plan(self, run: str) -> Plan | None:
        """Return the plan of a run; None if it cannot be read."""
        with contextlib.suppress(RunError, OSError, ValueError):
            return Run(self._results, run).plan()
        return None

    @staticmethod
    def verdicts(head: PlainData) -> list[str]:
        """Return the name of the file with the verdicts by the head of a report, in a list; empty if the report lists none."""
        return [file["path"] for file in head.get("files", ()) if file["path"] in verdict_files.NAMES]

    def has(self, run: str) -> bool:
        """Return True if a run has begun: it has a folder, or the history knows it."""
        return bool(RUN_ID.fullmatch(run)) and ((self._results / run).is_dir() or self.run(run) is not None)

    def seen(self, run: str) -> Seen:
        """Return the parts and RDMA devices of a run's nodes, as far as the run has seen them."""
        return parts.of_run(self._results / run) if RUN_ID.fullmatch(run) else Seen({}, {})

    def file(self, run: str, name: str) -> pathlib.Path | None:
        """The file of a report, or of a raw text, that a run's report lists, by its name as it stands there. Nothing else is ever given
        out: no way leads elsewhere."""
        folder = self.folder(run)
        if folder is None:
            return None
        if name in FORMS:
            path = folder / name
        elif name.startswith("raw/") and any(entry["path"] == name for entry in (self.head(run) or {}).get("raw", ())):
            path = self._results / run / raw.file_of(name)
        else:
            return None
        inside = self._results.resolve() / run
        return path if path.is_file() and path.resolve().is_relative_to(inside) else None

    def is_whole(self, run: str, name: str) -> bool:
        """Return True if a raw text has the digest that the report lists."""
        listed = {entry["path"]: entry["sha256"] for entry in (self.head(run) or {}).get("raw", ())}
        return name not in listed or integrity.digest(self._results / run, name) == listed[name]

    def text(self, run: str, name: str) -> bytes | None:
        """Return a raw text that `file` has found, None if `name` is that of a whole file."""
        return raw.read(self._results / run, name) if raw.is_packed(name) else None
