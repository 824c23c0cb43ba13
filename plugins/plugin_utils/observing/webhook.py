# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`acceptance_webhook: URL`: post the outcome of each judged run as JSON. Its `text` is what Slack and compatible chats show.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import http.client
import json
import typing as t
import urllib.error
import urllib.parse

from ansible.module_utils.urls import open_url
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.observing import events
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import inventory
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import SinkError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.formats import plain
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Judged, Options, Sink

TIMEOUT_S = 10.0
# Causes that are named; the report has all.
MOST_CAUSES = 10
# Findings and regressions for programs.
MOST_FINDINGS = 200


class WebhookError(SinkError):
    """The receiver did not accept a message. The text names the receiver's host only: the rest of an address is often its password."""


class Webhook(Sink):
    name = "webhook"
    options: t.Mapping[str, t.Mapping[str, t.Any]] = {
        "url": {"type": "str", "required": True, "no_log": True},
        "link": {"type": "str", "default": ""},
    }

    def problem(self, options: Options) -> str | None:
        if not _is_address(options["url"]):
            return "expected the address of a webhook, like https://hooks.example.com/services/..."
        if options["link"] and not _is_address(options["link"]):
            return "link: expected the address of a console, like https://console.example.com"
        return None

    def judged(self, of: Judged, options: Options) -> None:
        post(options["url"], message(of, options["link"]))


def _is_address(text: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def message(of: Judged, link: str = "") -> dict[str, t.Any]:
    """Return the message about a judged run. `link` is the address of a console, whose page of the result is named then."""
    report = of.report
    causes = [plain(cause["said"]) for cause in report["causes"]]
    noticed = events.harmless([*events.findings(report["causes"]), *events.regressions(report["past"])])
    address = f"{link.rstrip('/')}/results/{of.run_id}" if link else ""
    lines = [f"{report['word']}: {of.run_id}: {plain(report['why'])}", *causes[:MOST_CAUSES]]
    if len(causes) > MOST_CAUSES:
        lines.append(f"and {len(causes) - MOST_CAUSES} more")
    return {
        # Chats take <, > and & for markup of their own, such as a link or the mention of everybody.
        "text": "\n".join([*lines, *([address] if address else [])]).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
        "run": of.run_id, "inventory": inventory.of_plan(of.plan), "word": report["word"], "accepted": report["accepted"],
        "why": report["why"], "partial": report["partial"], "simulated": report["simulated"], "counts": report["counts"],
        "causes": causes[:MOST_CAUSES], "planned_at": report["planned_at"], "judged_at": report["created_at"], "link": address,
        "mode": report["mode"], "findings": noticed[:MOST_FINDINGS], "cut": len(noticed) > MOST_FINDINGS,
    }  # fmt: skip


def post(url: str, content: t.Mapping[str, t.Any]) -> None:
    """Send a message. Raise WebhookError if it is not accepted."""
    host = urllib.parse.urlsplit(url).hostname
    try:
        with open_url(
            url, data=json.dumps(content), method="POST", timeout=TIMEOUT_S, headers={"Content-Type": "application/json"},
            follow_redirects="none",
        ):  # fmt: skip
            pass
    except urllib.error.HTTPError as error:
        raise WebhookError(f"the webhook at {host} refuses the message: {error.code}") from error
    except urllib.error.URLError as error:
        raise WebhookError(f"the webhook at {host} cannot be reached: {error.reason}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:  # words of the last two quote the address
        raise WebhookError(f"the webhook at {host} does not answer: {type(error).__name__}") from error


SINK = Webhook()
