# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables given by -e that nothing reads: a misspelt one would leave a run as if it had not been given.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import difflib
import pathlib
import re
import typing as t

from ansible import context
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection

# Ansible's own, and those that AWX and Automation Platform give to every job.
OF_OTHERS = ("ansible_", "awx_", "tower_")
_WORD = re.compile(r"[A-Za-z_]\w*")
_TEMPLATE = re.compile(r"\{[{%](.*?)[}%]\}", re.DOTALL)
_COMMENT = re.compile(r"(?:^|\s)#.*$", re.MULTILINE)


def unread(
    names: t.Iterable[str],
    begins: tuple[str, ...],
    defaults: t.Iterable[t.Any],
    inventory: t.Callable[[], t.Iterable[t.Mapping[str, t.Any]]],
) -> str | None:
    """Return the message about the first of the variables `names` that nothing reads, None if there is none.

    `begins` are the prefixes of variables of stages, which are checked one by one elsewhere. `defaults` are the values of those, which may
    have templates; `inventory` returns the variables of hosts without those of -e, and is called only if it decides.
    """
    asked = sorted(name for name in names if not name.startswith((*begins, *OF_OTHERS)))
    if not asked:
        return None
    short = _templated(defaults) | _of_playbooks()
    strange = [name for name in asked if name not in short]
    if not strange:
        return None
    hosts = list(inventory())
    read = {name for variables in hosts for name in variables} | _templated(value for variables in hosts for value in variables.values())
    unknown = [name for name in strange if name not in read]
    if not unknown:
        return None
    readable = sorted(name for name in short if not name.startswith("_") and len(name) > 2)
    near = difflib.get_close_matches(unknown[0], [*readable, *sorted(read)], 3, 0.75)
    expected = f"did you mean {' or '.join(near)}?" if near else "expected one that a stage, the playbook or the inventory reads"
    return f"-e {unknown[0]}: nothing in this run reads this variable; {expected}"


def _templated(values: t.Iterable[t.Any]) -> set[str]:
    """Return the words inside the templates of values."""
    return {word for template in _TEMPLATE.findall(repr(list(values))) for word in _WORD.findall(template)}


def has_only_our_playbooks() -> bool:
    """Return True if every playbook of the command line is one of the collection's: what others import and include is not known here."""
    ours = {path.resolve() for path in (*(collection.ROOT / "playbooks").glob("*.yml"), collection.ROOT / "acceptance.yml")}
    named = [str(name) for name in context.CLIARGS.get("args") or ()]
    return all(name.startswith("gpufleet.acceptance.") or pathlib.Path(name).resolve() in ours for name in named)


def _of_playbooks() -> set[str]:
    """Return the words inside the playbooks that were named on the command line, in ours that they import, and in the tasks that plan."""
    folder = collection.ROOT / "playbooks"
    words: set[str] = set()
    texts = [(collection.ROOT / "roles/common/tasks" / name) for name in ("plan.yml", "judge.yml")]
    for given in context.CLIARGS.get("args") or ():
        own = folder / f"{str(given).removeprefix('gpufleet.acceptance.')}.yml"
        texts.append(own if own.is_file() else pathlib.Path(given))
        texts += [collection.ROOT / "roles/common/tasks/quarantine.yml"] if texts[-1].name == "quarantine.yml" else []
    texts.append(folder / "acceptance.yml")
    for path in texts:
        try:
            words |= set(_WORD.findall(_COMMENT.sub("", path.read_text(encoding="utf-8"))))
        except OSError:  # of another collection
            continue
    return words
