# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Syntax trees of Python source, made by one thread at a time.

Python 3.11 before 3.11.8 counts the depth of all trees that are being made in one place: two threads that make one at a time may get
"SystemError: AST constructor recursion depth mismatch" for a correct source (python/cpython issue 106905).
"""

from __future__ import annotations

import ast
import threading
import typing as t

_ONE_AT_A_TIME = threading.Lock()


def tree(source: str, name: str = "<unknown>", mode: t.Literal["exec", "eval"] = "exec") -> t.Any:
    """Return the ast.Module of a source, or the ast.Expression with `mode` "eval". Raise SyntaxError or ValueError as ast.parse() does."""
    with _ONE_AT_A_TIME:
        return ast.parse(source, name, mode)
