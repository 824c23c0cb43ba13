# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages. All of them work without the script: it only shows sooner what a reload would.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
import secrets
import time
import typing as t
import urllib.parse

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions, allowed, calendar
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import request as requests
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.spec import LIBRARIES, RDMA_OPERATIONS, SCOPES, operations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import (
    api,
    fleet,
    forms,
    home,
    notes,
    one_part,
    ordering,
    parts,
    progress,
    rerun,
    standing,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.auth import LocalLogin
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.drawing import KINDS, draw, files, url
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.lib import prometheus_client, starlette
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.past import Past
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.request_context import (
    Endpoint,
    RequestContext,
    RequestRefused,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.sessions import TooLong
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import comparing, exporting, machine, part_sheets, searching
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.searching import Query, literally
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.causes import GOOD
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import parts as seen_parts
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import CauseRow
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RUN_ID
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import alike

if t.TYPE_CHECKING:
    from starlette.responses import Response

ON_A_PAGE = 50
# Runs of the history that stand below those asked for here.
LATELY = 5
# Nodes of an action that are named in the list of actions.
NODES_IN_A_ROW = 2
NODES_ON_A_PAGE = 100
FILES_ON_A_PAGE = 200
# Causes of a run that have a card, and lines for the others, one for those that say the same of several nodes.
MOST_CAUSES, MOST_LINES = 40, 1000
# Of a run, the verdicts that are no pass.
ROWS_OF_RUN = 20_000
RANGES_DAYS = (1, 7, 30, 90, 365)
# A page that a run wrote has a script of its own in it: it may do nothing here but draw itself, in a frame of this console's or alone.
OF_A_RUN = {
    "content-security-policy": "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data: blob:; frame-ancestors 'self'",
    "x-frame-options": "SAMEORIGIN",
}
# What a tool printed is text, whatever it says of itself.
RAW = {"content-security-policy": "sandbox; default-src 'none'; frame-ancestors 'none'"}
TYPES = {".html": "text/html", ".json": "application/json", ".jsonl": "application/json", ".xml": "text/plain", ".gz": "application/gzip"}


# Starting -----------------------------------------------------------------------------------------------------------------------------


def _start(ask: RequestContext) -> Response:
    fields = [(name, value) for name, value in ask.fields if name not in ("lang", "csrf")]
    do = ask.one("do")
    if do == "add":
        fields = [(name, value) for name, value in fields if name != "do"]
        fields = [field for field in fields if field[0] not in ("nodes", "found")] + [("nodes", "\n".join(forms.nodes_of(fields)))]
        return starlette.responses.RedirectResponse(url("/start", fields), 303)
    if again := ask.one("again"):
        past = ask.console.past
        if not RUN_ID.fullmatch(again) or past.head(again) is None:
            raise RequestRefused(404, "error_no_run")
        return _form(ask, rerun.fields(past.causes(again), past.plan(again)), shown=True)
    if ask.one("template"):
        saved = ask.console.saved_forms.one(ask.one("template"))
        if saved is None:
            raise RequestRefused(404, "error_no_template")
        return _form(ask, saved.fields, shown=True)
    return _form(ask, fields, shown=do in ("show", "find") or bool(ask.one("nodes") or ask.one("labels")))


def _begin(ask: RequestContext) -> Response:
    fields = [(name, value) for name, value in ask.fields if name not in ("lang", "csrf", "do")]
    who = ask.who.name if ask.who else ""
    try:
        spec = forms.spec_of(fields)
        name = api.checked_name(ask, ask.one("name"), spec)
        action = _created(ask, name, spec, who)
    except requests.RequestError as error:
        return _form(ask, fields, 422, error.problems)
    except actions.ActionError as error:
        return _form(ask, fields, 503 if isinstance(error, actions.Unavailable) else 400, said=str(error))
    response = starlette.responses.RedirectResponse(f"/runs/{action.name}", 303)
    response.headers["x-about"] = action.name
    return response


def _created(ask: RequestContext, name: str | None, spec: PlainData, who: str) -> actions.Action:
    """Return the action of a form, made only once however often the form is sent.

    A form that was changed and sent again, as after the browser's Back, still has the name of the first: its action gets a name that
    follows from both.
    """
    try:
        return ask.console.actions.create(name, spec, who, ask.namespace)
    except actions.Conflict:
        action = ask.console.actions.get(str(name), ask.namespace)
        if action.who == who and action.spec == spec:
            return action
    content = json.dumps([name, who, spec], sort_keys=True).encode()
    name = f"{str(name)[:50]}-{hashlib.sha256(content).hexdigest()[:8]}"
    try:
        return ask.console.actions.create(name, spec, who, ask.namespace)
    except actions.Conflict:
        return ask.console.actions.get(name, ask.namespace)


def _form(
    ask: RequestContext,
    fields: list[tuple[str, str]],
    status: int = 200,
    wrong: t.Sequence[requests.Problem] = (),
    said: str = "",
    shown: bool = False,
) -> Response:
    filled = {**dict.fromkeys(forms.FIELDS, ""), **forms.DEFAULTS, **dict(reversed(fields))}
    preview: PlainData | None = None
    if shown:
        try:
            preview = api.preview(ask, forms.spec_of(fields))
        except requests.RequestError as error:
            wrong = error.problems
    text = filled["q"].strip()
    nodes = sorted(ask.console.actions.nodes(), key=lambda info: info.name)
    matching = [info for info in nodes if text in info.name] if text else nodes
    chosen = set(forms.nodes_of(fields))
    filled["nodes"] = "\n".join(forms.nodes_of(fields)) if any(name == "found" for name, _value in fields) else filled["nodes"]
    labels = sorted({f"{name}={value}" for info in nodes for name, value in info.labels.items()})
    images = ask.console.limits().images
    problems = forms.at_fields(wrong, () if images else ("image",))
    # A page that the reader asked for by a button to be checked begins at the first wrong field.
    focus = next(iter(problems), None) if status != 200 or ask.one("do") == "show" else None
    return draw(
        ask, "start", status, filled=filled, stages_chosen=[value for name, value in fields if name == "stage"], preview=preview,
        problems=problems, focus=focus, field_labels=forms.LABELS, said=said, sought=text, found=matching[: forms.MOST_NODES_SHOWN],
        found_all=len(matching), count=len(nodes), chosen=chosen, labels=labels[:200], stages=allowed.NAMES, requests=requests,
        operations=operations(""), scopes=SCOPES, rdma_operations=RDMA_OPERATIONS, libraries=LIBRARIES,
        name=filled["name"] or f"test-{secrets.token_hex(4)}",
        free=None if any(info.free is None for info in nodes) else sum(info.free or 0 for info in nodes),
        may=ask.may("create"), images=images, templates=ask.console.saved_forms.all(),
    )  # fmt: skip


def _save_template(ask: RequestContext) -> Response:
    """Save the form under the name of its run, and show it."""
    fields = [(name, value) for name, value in ask.fields if name not in ("lang", "csrf", "do")]
    try:
        name = api.name_of(ask.one("name"))
    except requests.RequestError as error:
        return _form(ask, fields, 422, error.problems)
    if name is None:
        return _form(ask, fields, 422, [requests.Problem("metadata.name", requests.NOTHING, "a name for the template")])
    ask.console.saved_forms.save(name, fields, ask.who.name if ask.who else "")
    response = starlette.responses.RedirectResponse(url("/start", {"template": name}), 303)
    response.headers["x-about"] = name
    return response


def _remove_template(ask: RequestContext) -> Response:
    name = ask.request.path_params["name"]
    if not actions.NAME.match(name):
        raise RequestRefused(404, "error_no_page")
    ask.console.saved_forms.remove(name)
    return starlette.responses.RedirectResponse("/start", 303)


# Runs ---------------------------------------------------------------------------------------------------------------------------------


def _runs(ask: RequestContext) -> Response:
    wrong = ""
    try:
        page = ask.console.actions.list(api.filters(ask, ON_A_PAGE))
    except requests.RequestError as error:
        wrong, page = str(error), actions.Page(())
    except actions.ActionError as error:
        wrong, page = str(error), actions.Page(())
    rows = [{**api.shown(action), **_in_words(action)} for action in page.actions]
    partial = ask.console.past.partial(action.status.run_id for action in page.actions)
    return draw(
        ask, "runs", rows=rows, may=ask.may("patch"), more=page.more, wrong=wrong, sort=ask.one("sort"), runs=_lately(ask), partial=partial,
    )  # fmt: skip


def _in_words(action: actions.Action) -> PlainData:
    """Return what an action measures and where, and the minutes that it took."""
    kind = next((name for name in requests.KINDS if action.spec.get(name)), "")
    spec = action.spec.get(kind) or {}
    words = [spec.get(name) for name in ("operation", "measure", "library", "scope")] if kind != "stages" else spec.get("names") or []
    labels = (spec.get("pool") or {}).get("matchLabels") or {}
    nodes = [str(name) for name in spec.get("nodes") or ()]
    names = ", ".join(nodes[:NODES_IN_A_ROW]) + (f" +{len(nodes) - NODES_IN_A_ROW}" if len(nodes) > NODES_IN_A_ROW else "")
    return {
        "kind": kind, "what": " ".join(str(word) for word in words if word),
        "where": names or ", ".join(f"{name}={value}" for name, value in labels.items()), "times": _times(action.status),
    }  # fmt: skip


def _lately(ask: RequestContext) -> list[searching.JudgedRun]:
    """The last runs of the history, those from a terminal among them; none where others are sought, or where it cannot be asked now."""
    if any(ask.one(name) for name in ("text", "phase", "kind", "after")):
        return []
    try:
        return ask.console.past.runs(limit=LATELY)
    except HistoryError:
        return []


def _action(ask: RequestContext) -> Response:
    name = ask.request.path_params["name"]
    if RUN_ID.fullmatch(name):  # no action is called so: a run of an action
        return starlette.responses.RedirectResponse(f"/results/{name}", 303)
    action = ask.console.actions.get(name, ask.namespace)
    of, status = api.shown(action), action.status
    again_url = url("/start", forms.fields_of(of["spec"]))
    spec = json.dumps(of["spec"], indent=1, sort_keys=True)
    node = ask.one("node")
    grid = ask.console.progress.grid(status.run_id) if status.run_id else None
    is_running = status.phase == actions.RUNNING and grid is not None
    output = ask.console.progress.output(status.run_id, node) if is_running and node else None
    failed = ask.console.past.causes(status.run_id) if status.verdict == actions.NOT_ACCEPTED else []
    if grid and status.verdict:
        with contextlib.suppress(HistoryError):
            bad = Query(run=status.run_id, verdict=",".join(word for word in WORST_FIRST if word not in GOOD))
            grid = progress.judged(grid, ask.console.past.search(bad, limit=ROWS_OF_RUN).rows)
    return draw(
        ask, "action", of=of, spec=spec, again=again_url, may=ask.may("patch", name), may_delete=ask.may("delete", name), grid=grid,
        rows=_first_unfinished(grid) if grid else [], log=ask.console.progress.log(action.uid, node), node=node, is_running=is_running,
        output=output, output_at=calendar.text(output.at) if output and output.at else "",
        again_failed=rerun.link(status.run_id, failed), times=_times(status),
        is_partial=bool(ask.console.past.partial([status.run_id])),
        has_notes=_has_begun(ask.console.past, status.run_id), **_notes(ask, status.run_id, name),
    )  # fmt: skip


def _first_unfinished(grid: progress.RunGrid) -> list[str]:
    """Return the nodes whose rows are shown: of many those with failed tests first, then those that are not done."""
    ranks = {"failed": 0, "begun": 1, "open": 2, "done": 3}
    ranked = sorted(grid.nodes, key=lambda name: (min(ranks.get(cell.state, 0) for cell in grid.nodes[name].values()), name))
    return sorted(ranked[:NODES_ON_A_PAGE])


def _times(status: actions.Status) -> tuple[int, int | None] | None:
    """Return how many minutes a run has taken, and how many are left as far as its progress tells; None if it has not begun."""
    try:
        until = calendar.moment(status.ended) if status.ended else time.time()
        elapsed = max(0.0, until - calendar.moment(status.started))
    except ValueError:  # it has not begun, or the time is none
        return None
    measured, _slash, planned = status.progress.partition("/")
    left_min = None
    if not status.ended and measured.isdigit() and planned.isdigit() and 0 < int(measured) <= int(planned):
        left_min = round(elapsed * (int(planned) - int(measured)) / int(measured) / 60)
    return round(elapsed / 60), left_min


def _act(ask: RequestContext) -> Response:
    name, do = ask.request.path_params["name"], ask.one("do")
    if do not in ("cancel", "suspend", "resume"):
        raise RequestRefused(400, "error_form")
    _set(ask, name, do)
    return starlette.responses.RedirectResponse(f"/runs/{name}", 303)


def _set(ask: RequestContext, name: str, do: str) -> None:
    change = {"cancel": True} if do == "cancel" else {"suspend": do == "suspend"}
    ask.console.actions.set(name, **change, namespace=ask.namespace)


def _remove(ask: RequestContext) -> Response:
    ask.console.actions.delete(ask.request.path_params["name"], ask.namespace)
    return starlette.responses.RedirectResponse("/runs", 303)


def _confirm(do: str) -> t.Callable[[RequestContext], Response]:
    """Return the page that asks before actions are cancelled or suspended. `do` is `cancel` or `suspend`."""

    def confirm(ask: RequestContext) -> Response:
        rows = [{**api.shown(action), **_in_words(action)} for action in _changeable(ask, do)]
        return draw(ask, "confirm", do=do, rows=rows)

    return confirm


def _changeable(ask: RequestContext, do: str) -> t.Iterator[actions.Action]:
    """Yield the named actions that can be cancelled or suspended, without those that may not be changed."""
    never = actions.ENDED if do == "cancel" else (*actions.ENDED, actions.SUSPENDED)
    for name in dict.fromkeys(ask.all("name")[:ON_A_PAGE]):
        with contextlib.suppress(actions.NotFound):
            action = ask.console.actions.get(name, ask.namespace)
            if action.status.phase not in never and ask.may("patch", name):
                yield action


def _act_on_many(ask: RequestContext) -> Response:
    """Cancel or suspend the named actions. One that cannot be changed any more keeps no other from it."""
    do = ask.one("do")
    if do not in ("cancel", "suspend"):
        raise RequestRefused(400, "error_form")
    for action in _changeable(ask, do):
        with contextlib.suppress(actions.ActionError):
            _set(ask, action.name, do)
    return starlette.responses.RedirectResponse("/runs", 303)


def _find(ask: RequestContext) -> Response:
    """Answer with the page of a run, action, node, part or digest of this name; else with the nodes or actions that have it in theirs."""
    text = ask.one("q").strip()[:200]
    if RUN_ID.fullmatch(text):
        return starlette.responses.RedirectResponse(f"/results/{text}", 303)
    if re.fullmatch(r"[0-9a-f]{64}", text):
        return starlette.responses.RedirectResponse(f"/digest/{text}", 303)
    try:
        names = {info.name for info in ask.console.actions.nodes()}
        if text in names:
            return starlette.responses.RedirectResponse(url("/node", {"name": text}), 303)
        if actions.NAME.match(text):
            with contextlib.suppress(actions.NotFound):
                return starlette.responses.RedirectResponse(f"/runs/{ask.console.actions.get(text, ask.namespace).name}", 303)
        if to := _in_history(ask, text):
            return starlette.responses.RedirectResponse(to, 303)
        if any(text in name for name in names):
            return starlette.responses.RedirectResponse(url("/nodes", {"q": text}), 303)
    except actions.ActionError:
        pass  # the page of actions says so
    return starlette.responses.RedirectResponse(url("/runs", {"text": text}), 303)


def _in_history(ask: RequestContext, name: str) -> str:
    """Return the address of the page of a node or part that any run had under this name; empty if there is none."""
    with contextlib.suppress(HistoryError):  # the page that follows says so
        if name and ask.console.past.is_node(name):
            return url("/node", {"name": name})
        if one_part.named(ask, name):
            return url("/part", {"name": name})
    return ""


def _has_begun(past: Past, run: str) -> bool:
    """Return True if a run has begun; False as well if only the history could tell and it cannot be read."""
    try:
        return past.has(run)
    except HistoryError:
        return False


# Results ------------------------------------------------------------------------------------------------------------------------------


def _run_id(ask: RequestContext) -> str:
    run = str(ask.request.path_params["run"])
    if not RUN_ID.fullmatch(run):
        raise RequestRefused(404, "error_no_run")
    return run


def _result(ask: RequestContext) -> Response:
    run = _run_id(ask)
    past = ask.console.past
    of, head = past.run(run), past.head(run)
    if of is None and head is None:
        raise RequestRefused(404, "error_no_run")
    causes = past.causes(run) if head is not None else []
    text = ask.one("q").strip()
    raw = [entry for entry in (head or {}).get("raw", ()) if text in entry["path"]]
    rows_found = past.search(Query(run=run), limit=ON_A_PAGE * 4) if head is None else None
    return draw(
        ask, "result", run=run, of=of, head_of=head, verdicts=past.verdicts(head or {}), raw=raw[:FILES_ON_A_PAGE], raw_all=len(raw),
        sought=text,
        rows=ordering.verdicts(rows_found.rows, ask.one("sort")) if rows_found else [], cut=bool(rows_found and rows_found.cut),
        sort=ask.one("sort"),
        earlier=past.runs(before=run, limit=ON_A_PAGE), causes=causes[:MOST_CAUSES], causes_all=len(causes),
        more_causes=[line[:2] for line in alike.lines(causes[MOST_CAUSES:])[:MOST_LINES]],
        again=rerun.link(run, causes), **_notes(ask, run),
        **_places(past.seen(run).parts if causes else {}, causes[:MOST_CAUSES]),
    )  # fmt: skip


def _notes(ask: RequestContext, run: str, action: str = "") -> PlainData:
    """Return what notes.html.j2 shows of a run, and of the action whose page shows it."""
    return {
        "notes": ask.console.notes.all(run), "noted_run": run, "noted_action": action, "may_note": ask.may("patch"),
        "note_limits": (notes.MOST_TEXT, notes.MOST_TO),
    }  # fmt: skip


def _add_note(ask: RequestContext) -> Response:
    run, text, to = _run_id(ask), ask.one("text").strip(), ask.one("to").strip()
    if not ask.console.past.has(run):
        raise RequestRefused(404, "error_no_run")
    if not 0 < len(text) <= notes.MOST_TEXT or len(to) > notes.MOST_TO:
        raise RequestRefused(422, "error_note", most=notes.MOST_TEXT, most_name=notes.MOST_TO)
    ask.console.notes.add(run, text, to, ask.who.name if ask.who else "")
    action = ask.one("action")
    page = f"/runs/{action}" if actions.NAME.match(action) else f"/results/{run}"
    response = starlette.responses.RedirectResponse(f"{page}#notes", 303)
    response.headers["x-about"] = run
    return response


def _places(known: seen_parts.Parts, causes: t.Sequence[CauseRow]) -> PlainData:
    """Return {subject of a cause: where its parts are} as `places`, which reports of earlier versions do not say, and as `part_names` the
    names that lead to the pages of these parts."""
    return {
        "places": {
            cause["subject"]: cause.get("place") or seen_parts.places(known, cause["subject"], [cause["said"]]) for cause in causes
        },
        "part_names": {
            cause["subject"]: cause["subject"].split("|") if cause["kind"] == one_part.SWITCH
            else seen_parts.ids(known, cause["subject"], [cause["said"]])
            for cause in causes
        },
    }  # fmt: skip


def _result_file(ask: RequestContext) -> Response:
    run, name = _run_id(ask), str(ask.request.path_params["file"])
    path = ask.console.past.file(run, name)
    if path is None:
        raise RequestRefused(404, "error_no_file")
    if not ask.console.past.is_whole(run, name):
        raise RequestRefused(409, "error_changed")
    text = ask.console.past.text(run, name)
    kind = "text/plain" if name.startswith("raw/") else TYPES.get(path.suffix, "text/plain")
    headers = dict(OF_A_RUN if kind == "text/html" else RAW)
    if kind != "text/html":
        place = path.name if text is None else name.rpartition("/")[2].replace(".txt.gz#", "-") + ".txt"
        file_name = urllib.parse.quote(f"{run}-{place}", safe="")
        headers["content-disposition"] = f"inline; filename*=UTF-8''{file_name}"
    if text is not None:
        return starlette.responses.Response(text, headers=headers, media_type="text/plain; charset=utf-8")
    return starlette.responses.FileResponse(path, headers=headers, media_type=f"{kind}; charset=utf-8")


def _digest(ask: RequestContext) -> Response:
    run = ask.console.past.of_digest(str(ask.request.path_params["sha256"]))
    if run is None:
        raise RequestRefused(404, "error_no_run")
    return starlette.responses.RedirectResponse(f"/results/{run}", 303)


def _compare(ask: RequestContext) -> Response:
    before, after = ask.one("before").strip(), ask.one("after").strip()
    comparison, wrong = None, ""
    if after:
        try:
            comparison = ask.console.past.compared(before, after)
        except RunError as error:
            wrong = str(error)
    return draw(
        ask, "compare", 404 if wrong else 200, before=before, after=after, found=comparison,
        told=comparing.sentences(comparison) if comparison else [], wrong=wrong, runs=ask.console.past.runs(limit=ON_A_PAGE),
        numbers=comparison["values"][: ON_A_PAGE * 4] if comparison else [],
    )  # fmt: skip


# The history --------------------------------------------------------------------------------------------------------------------------

def _history(ask: RequestContext) -> Response:
    query, regressed, order = api.asked(ask), ask.one("regressed") == "true", ask.one("sort")
    answer, wrong, field = None, "", ""
    if any(query) or regressed:
        try:
            answer = ask.console.past.search(query, regressed)
        except HistoryError as error:
            wrong = str(error)
            field = next((name for name in query._fields if wrong.startswith((f"{name}:", f"{name} "))), "")
    rows = ordering.verdicts(answer.rows, order) if answer else []
    try:
        runs = ask.console.past.runs(ask.one("before"), ON_A_PAGE, query.since, query.until)
    except HistoryError as error:
        runs, wrong = [], wrong or str(error)
    curves = url("/history/curves", query._asdict()) if answer and answer.rows and (query.node or query.check or query.part) else ""
    return draw(
        ask, "past", 404 if wrong else 200, asked=query, regressed=regressed, rows=rows, searched=answer is not None, wrong=wrong,
        field=field, runs=runs, curves=curves, cut=bool(answer and answer.cut), sort=order,
        table=url("/history.csv", {**query._asdict(), "regressed": "true" if regressed else ""}),
        ranges=[(days, url("/history", {**query._asdict(), "since": f"{days}d", "until": ""})) for days in RANGES_DAYS],
        older=runs[-1]["run"] if len(runs) == ON_A_PAGE else "",
    )  # fmt: skip


def _curves(ask: RequestContext) -> Response:
    query = api.asked(ask)
    if not (query.node or query.check or query.run or query.part):
        raise RequestRefused(400, "error_curves")
    return starlette.responses.HTMLResponse(ask.console.past.curves(query), headers=OF_A_RUN)


def _csv(ask: RequestContext) -> Response:
    answer = ask.console.past.search(api.asked(ask), ask.one("regressed") == "true", 20_000)
    headers = {"content-disposition": 'attachment; filename="history.csv"', **RAW}
    return starlette.responses.Response(exporting.as_csv(answer.rows), headers=headers, media_type="text/csv; charset=utf-8")


# Nodes --------------------------------------------------------------------------------------------------------------------------------


def _nodes(ask: RequestContext) -> Response:
    wrong = ""
    try:
        nodes = list(ask.console.actions.nodes())
    except actions.ActionError as error:
        nodes, wrong = [], str(error)
    text, state, order = ask.one("q").strip(), ask.one("state"), ask.one("sort") or "name"
    label = ask.one("label").strip()
    matching = [
        info for info in nodes
        if text in info.name and (not label or label in {f"{name}={value}" for name, value in info.labels.items()})
        and (state != "free" or (info.free or 0) > 0) and (state != "used" or info.used_by) and (state != "problem" or info.problem)
    ]  # fmt: skip
    matching = ordering.ordered(matching, order, {
        "name": lambda info: info.name, "gpus": lambda info: (info.gpus or 0, info.name), "free": lambda info: (info.free or 0, info.name),
    })  # fmt: skip
    number_text = ask.one("page", "1")
    page = max(1, int(number_text)) if number_text.isascii() and number_text.isdigit() and len(number_text) < 7 else 1
    first = (page - 1) * NODES_ON_A_PAGE
    return draw(
        ask, "nodes", rows=matching[first : first + NODES_ON_A_PAGE], count=len(matching), all=len(nodes), first=first, page=page,
        last=first + NODES_ON_A_PAGE >= len(matching), wrong=wrong, sought=text, label=label, state=state, sort=order,
    )  # fmt: skip


def _node(ask: RequestContext) -> Response:
    past = ask.console.past
    state, _problem = ask.console.fleet.state()
    name = state.measured_as(ask.one("name")) if state else ask.one("name")
    try:
        infos = {info.name: info for info in ask.console.actions.nodes()}
        info = infos.get(name) or infos.get(fleet.requested(name))
    except actions.ActionError:
        info = None
    facts, timeline = past.facts(name), past.timeline(name)
    every, hardware, stands = standing.read(past, name)
    if info is None and not facts and not every:
        raise RequestRefused(404, "error_no_node")
    broken = [row for row in stands if row["verdict"] not in GOOD]
    rows = every[: ON_A_PAGE * 4]
    shown = ordering.verdicts(rows, ask.one("sort"))
    findings = [row for row in shown if row["verdict"] not in GOOD]
    return draw(
        ask, "node", name=name, info=info, facts=facts, changes=_changes(facts), sort=ask.one("sort"), timeline=timeline,
        hardware=_verdicts_of_parts(name, hardware, stands),
        rows=rows, findings=findings, passed=[row for row in shown if row["verdict"] in GOOD], cut=len(every) > len(rows),
        broken=standing.problems(broken, lambda run: _causes(past, run)),
        curves=url("/history/curves", {"node": literally(name)}) if rows else "",
        start=url("/start", {"nodes": fleet.requested(name)}), history=url("/history", {"node": literally(name)}),
    )  # fmt: skip


def _verdicts_of_parts(
    node: str, hardware: parts.Hardware, stands: t.Iterable[searching.FoundVerdict]
) -> list[tuple[seen_parts.Part, str, str]]:
    """Return the parts of a node, each with its name in addresses and the worst of its verdicts that stand. Of a part that no check has as
    its subject these are the findings of the node that name it."""
    verdicts: dict[str, list[str]] = {}
    for row in stands:
        part = seen_parts.find({node: hardware.parts}, row["subject"])
        named = [part] if part else []
        if not part and row["verdict"] not in GOOD:
            named = [
                one for one in hardware.parts.values()
                if one.kind in one_part.NAMED_ONLY and seen_parts.names(one, [row["reason"] or ""])
            ]  # fmt: skip
        for one in named:
            verdicts.setdefault(one.key, []).append(row["verdict"])
    return [
        (part, _address(part, node), min(verdicts.get(key, []), key=WORST_FIRST.index, default=""))
        for key, part in hardware.parts.items()
    ]


def _address(part: seen_parts.Part, node: str) -> str:
    """Return the name that leads from a node to the page of a part of it, which may share its serial number with parts of other nodes."""
    return part_sheets.address(part, node) if part.kind in ("gpu", "nic") else part_sheets.at_node(part, node)


def _causes(past: Past, run: str) -> list[CauseRow]:
    try:
        return past.causes(run)
    except HistoryError:  # without them the problems are shown all the same
        return []


def _changes(facts: t.Sequence[machine.FactsSince]) -> list[PlainData]:
    """Return the facts that changed, and the run from which each holds."""
    changes = []
    for new, old in itertools.pairwise(facts):
        names = sorted(name for name in {*new.facts, *old.facts} if new.facts.get(name) != old.facts.get(name))
        changed = [(name, old.facts.get(name), new.facts.get(name)) for name in names]
        changes.append({"run": new.run, "planned_at": new.planned_at, "changed": changed})
    return changes


# Coming and going ---------------------------------------------------------------------------------------------------------------------


def _enter_page(ask: RequestContext) -> Response:
    code = ask.one("code")
    # A HEAD request, as of a program that looks whether a link is alive, does not use it up.
    if code and ask.console.auth.enters_by == "link" and ask.request.method == "GET":
        return _entered(ask, code)
    return draw(ask, "enter", by=ask.console.auth.enters_by, wrong=False, again=False)


def _enter(ask: RequestContext) -> Response:
    auth = ask.console.auth
    if isinstance(auth, LocalLogin):
        auth.new_link()
        return draw(ask, "enter", by="link", wrong=False, again=True)
    return _entered(ask, ask.one("token").strip())


def _entered(ask: RequestContext, secret: str) -> Response:
    who = ask.console.auth.enter(secret)
    ask.console.audit.note(who.name if who else "", "enter", "", ask.request.scope["origin"], "done" if who else "refused")
    if who is None:
        ask.console.metrics.refused.labels("enter").inc()
        time.sleep(0.2)  # who guesses takes his time
        return draw(ask, "enter", 401, by=ask.console.auth.enters_by, wrong=True, again=False)
    session = ask.console.sessions.begin(who)
    ask.who = who
    response = starlette.responses.RedirectResponse("/", 303)
    try:
        response.headers.append("set-cookie", ask.console.sessions.header(ask.console.sessions.sealed(session)))
    except TooLong:
        raise RequestRefused(400, "error_token_long") from None
    return response


def _leave(ask: RequestContext) -> Response:
    if ask.session:
        ask.console.sessions.end(ask.session)
    response = starlette.responses.RedirectResponse("/enter", 303)
    response.headers.append("set-cookie", ask.console.sessions.header("", 0))
    return response


def refused(ask: RequestContext, why: RequestRefused) -> Response:
    if why.status == 401:
        return draw(ask, "enter", 401, by=ask.console.auth.enters_by, wrong=False, again=False)
    return draw(ask, "refused", why.status, status=why.status, said=why.values.get("said") or ask.words(why.text, **why.values))


# For machines -------------------------------------------------------------------------------------------------------------------------


def _static(ask: RequestContext) -> Response:
    name = ask.request.path_params["name"]
    text = files().get(name)
    if text is None:
        raise RequestRefused(404, "error_no_page")
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return starlette.responses.Response(text, headers=headers, media_type=f"{KINDS['.' + name.rpartition('.')[2]]}; charset=utf-8")


def _healthz(_ask: RequestContext) -> Response:
    return starlette.responses.PlainTextResponse("ok\n")


def _readyz(ask: RequestContext) -> Response:
    """Answer 503 if actions cannot be listed or the results of a run cannot be kept. Trouble with the history alone is only named: it
    keeps nobody from starting or cancelling."""
    try:
        ask.console.actions.list(actions.Filters(namespace=ask.namespace, limit=1))
    except actions.ActionError:
        return starlette.responses.PlainTextResponse("actions: not answering\n", 503)
    problems = ask.console.storage.problems()
    words = {"storage_away": "results: not there", "storage_read_only": "results: cannot be written", "storage_full": "results: no room"}
    states = sorted({words.get(problem.text, "history: not answering") for problem in problems})
    if any(problem.fatal for problem in problems):
        return starlette.responses.PlainTextResponse("; ".join(states) + "\n", 503)
    return starlette.responses.PlainTextResponse("; ".join(["ok", *states]) + "\n")


def _metrics(ask: RequestContext) -> Response:
    return starlette.responses.Response(ask.console.metrics.text(), media_type=prometheus_client.CONTENT_TYPE_LATEST)


ENDPOINTS = (
    Endpoint("GET", "/", home.home),
    Endpoint("GET", "/start", _start, "list"),
    Endpoint("POST", "/start", _begin, "create", "create"),
    Endpoint("POST", "/templates", _save_template, "create", "save_template"),
    Endpoint("POST", "/templates/{name}/delete", _remove_template, "create", "delete_template"),
    Endpoint("GET", "/runs", _runs),
    Endpoint("POST", "/runs", _act_on_many, "patch", "set"),
    Endpoint("GET", "/cancel", _confirm("cancel")),
    Endpoint("GET", "/suspend", _confirm("suspend")),
    Endpoint("GET", "/find", _find),
    Endpoint("GET", "/runs/{name}", _action, "get"),
    Endpoint("POST", "/runs/{name}", _act, "patch", "set"),
    Endpoint("POST", "/runs/{name}/delete", _remove, "delete", "delete"),
    Endpoint("GET", "/results/{run}", _result),
    Endpoint("POST", "/results/{run}/notes", _add_note, "patch", "note"),
    Endpoint("GET", "/results/{run}/{file:path}", _result_file),
    Endpoint("GET", "/digest/{sha256}", _digest),
    Endpoint("GET", "/compare", _compare),
    Endpoint("GET", "/history", _history),
    Endpoint("GET", "/history/curves", _curves),
    Endpoint("GET", "/history.csv", _csv),
    Endpoint("GET", "/nodes", _nodes),
    Endpoint("GET", "/node", _node),
    Endpoint("GET", "/part", one_part.part),
    Endpoint("GET", "/enter", _enter_page, ""),
    Endpoint("POST", "/enter", _enter, ""),
    Endpoint("POST", "/leave", _leave, "", "leave"),
    Endpoint("GET", "/static/{name}", _static, ""),
    Endpoint("GET", "/healthz", _healthz, ""),
    Endpoint("GET", "/readyz", _readyz, ""),
    Endpoint("GET", "/metrics", _metrics, ""),
)
