# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Signals as a terminal hands them on, for tests and drills that interrupt what they start."""

from __future__ import annotations

import signal


def restore() -> None:
    """Let this process and its children heed signals that its parent ignores: a shell without job control ignores Ctrl-C for its jobs in
    the background, and `nohup` ignores the end of the terminal."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
