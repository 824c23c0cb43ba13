# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a schedule is due. Times are said in UTC; a schedule has the zone that it names.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import datetime
import time
import zoneinfo

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.spec import Schedule

try:
    import croniter
except ImportError:
    croniter = None  # problem() says so

_FORM = "%Y-%m-%dT%H:%M:%SZ"
# Of a name that a schedule gives, as the API's own schedules do it: minutes since 1970.
_NAME = 52


def text(moment: float) -> str:
    return time.strftime(_FORM, time.gmtime(moment))


def moment(written: str) -> float:
    """Seconds since 1970; ValueError for what is no time."""
    return datetime.datetime.strptime(written, _FORM).replace(tzinfo=datetime.UTC).timestamp()


def problem(schedule: Schedule) -> str:
    """Return what is expected instead of a schedule that is none, or is never due; empty if it is good."""
    if croniter is None:
        return "none: this console lacks the Python package croniter of requirements.txt"
    try:
        upcoming(schedule, 0.0)
    except (ValueError, KeyError, croniter.CroniterError):
        return "minute, hour, day, month and weekday, like 0 3 * * 6"
    return ""


def upcoming(schedule: Schedule, after: float) -> float:
    """When it is due next."""
    start = datetime.datetime.fromtimestamp(after, zoneinfo.ZoneInfo(schedule.zone))
    due_at: datetime.datetime = croniter.croniter(schedule.cron, start).get_next(datetime.datetime)
    return due_at.timestamp()


def due(schedule: Schedule, after: float, now: float) -> float | None:
    """The last moment behind `after` at which it was due until now. What was missed before that is not made up for."""
    if upcoming(schedule, after) > now:
        return None
    end = datetime.datetime.fromtimestamp(now + 1, zoneinfo.ZoneInfo(schedule.zone))
    due_at: datetime.datetime = croniter.croniter(schedule.cron, end).get_prev(datetime.datetime)
    return due_at.timestamp()


def name(parent: str, moment_: float) -> str:
    """Return the name of the action that a schedule starts at a moment: equal for all controllers, so that it is started once."""
    return f"{parent[:_NAME].rstrip('-')}-{int(moment_ // 60)}"
