# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Reason of a node: who took it out of service, when, and what is known of the words.

A reason is anybody's text: operators', Slurm's own, that of a health checker. It is shown with its invisible characters escaped, explained
by its beginning, and never changed.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import datetime
import re
import typing as t

LIMIT = 240


class Reason(t.NamedTuple):
    """The reason of a node, the user who set it, and when: seconds since 1970, 0 if not known."""

    text: str
    user: str = ""
    at: int = 0


NONE = Reason("")

# Reasons that slurmctld and slurmd set themselves, by their beginnings (src/slurmctld/node_mgr.c, src/slurmd/slurmd/req.c).
_OWN = (
    ("not responding", "slurmd on the node does not answer slurmctld"),
    ("node unexpectedly rebooted", "the node restarted without an order of Slurm, and stays down until somebody resumes it"),
    ("kill task failed", "processes of an earlier job could not be ended"),
    ("prolog error", "the site's prolog failed on the node"),
    ("epilog error", "the site's epilog failed on the node"),
    ("low ", "the node reports less than slurm.conf says it has"),
    ("gres/", "the node reports fewer devices than slurm.conf says it has"),
    ("batch job complete failure", "slurmd could not report the end of a batch job"),
    ("duplicate jobid", "two jobs of one number ran on the node"),
    ("reboot asap", "Slurm reboots the node when its jobs have ended"),
    ("resumetimeout reached", "the node did not come up in ResumeTimeout"),
)
# Health checkers, by what they put before their words.
_CHECKERS = (
    (re.compile(r"NHC:\s*", re.IGNORECASE), "the health checker NHC"),
    (re.compile(r"\[node_problem\]\s*", re.IGNORECASE), "a detector of node problems"),
    (re.compile(r"\[(?P<name>[\w.-]{1,32})\]\s*"), "a tool that signs as {name}"),
)
# What clients say of a job that is well, or of a cluster without a plugin.
_NOISE = ("queued and waiting for resources", "has been allocated resources", "lacks support for cpu binding")
_DATE = re.compile(r"(?P<date>(?:19|20)\d\d-?[01]\d-?[0-3]\d)(?:[T_ ][\d:.]+Z?)?\b[\s:,-]*")
_PREFIX = re.compile(r"(?P<name>[A-Za-z][\w.-]{0,31}):\s+")


def printable(text: str, limit: int = LIMIT) -> str:
    """Return a text of others in one line of at most `limit` characters, with control and direction characters escaped."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text[: limit + 1])
    return shown if len(shown) <= limit else f"{shown[: limit - 3]}..."


def explained(reason: Reason) -> str:
    """Return words that follow a sentence about a node: its reason, user and time, and what is known of the reason; empty without one."""
    if not reason.text:
        return ""
    at = datetime.datetime.fromtimestamp(reason.at, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if reason.at else ""
    signed = ", ".join(filter(None, (printable(reason.user, 64), at)))
    known = meaning(reason.text)
    return f": Reason '{printable(reason.text)}'{f' [{signed}]' if signed else ''}{f': {known}' if known else ''}"


def meaning(text: str) -> str:
    """Return what is known of a reason by its beginning, empty if nothing is. A date before or behind the sign of a tool is taken off."""
    words: list[str] = []
    dated, text = _without_date(text.strip())
    for pattern, who in _CHECKERS:
        match = pattern.match(text)
        if match:
            words.append(f"set by {who.format(**match.groupdict())}")
            more, text = _without_date(text[match.end() :])
            dated = dated or more
            break
    low = text.lower()
    own = next((said for beginning, said in _OWN if low.startswith(beginning)), "")
    if own:
        words.append(own)
    elif not words and (match := _PREFIX.match(text)):
        words.append(f"signed {match['name']}")
    if dated:
        words.append(f"dated {dated}")
    return "; ".join(words)


def _without_date(text: str) -> tuple[str, str]:
    match = _DATE.match(text)
    return (match["date"], text[match.end() :]) if match else ("", text)


def words_of(text: str) -> str:
    """Return what a client command said that matters, in one line."""
    lines = [line.strip().removeprefix("srun: ").removeprefix("error: ") for line in text.splitlines()]
    return printable("; ".join(dict.fromkeys(line for line in lines if line and not line.endswith(_NOISE))), 500)
