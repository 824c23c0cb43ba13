# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words before a command that run it on a host beside Ansible, over the connection that Ansible has open.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleError


def words(connection: t.Any) -> list[str] | None:
    """Return the words for a connection plugin: none for `local`, those of ssh with all settings of the host for `ssh`; None for any other.

    Nobody can type a password for these calls: ssh takes the connection that is open (ControlPersist) or a key.
    """
    if connection.transport == "local":
        return []
    build = getattr(connection, "_build_command", None)
    if connection.transport != "ssh" or build is None:
        return None
    try:
        program = str(connection.get_option("ssh_executable"))
        argv = [part.decode("utf-8", "surrogateescape") for part in build(program, "ssh", "-o", "BatchMode=yes", connection.host)]
    except (AnsibleError, AttributeError, TypeError, KeyError):  # a private interface of Ansible, the same from 2.18 to 2.21
        return None
    return argv[argv.index(program) :] if program in argv else None  # without sshpass, whose pipe is ours alone
