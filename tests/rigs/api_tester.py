# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Schemathesis, which calls an HTTP API in all ways that its OpenAPI document names and in ways that it forbids: a pinned version from
PyPI, in a virtual environment of its own in the cache of the rigs, since it brings a plugin into every run of pytest beside it."""

from __future__ import annotations

import pathlib
import shutil
import sys

from rigs import common

VERSION = "4.32.5"
FOLDER = common.CACHE / f"schemathesis-{VERSION}"
# Values that only this console knows, such as names of its nodes, no schema can tell: a valid request may be refused.
CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance"),
    *("response_schema_conformance", "negative_data_rejection", "unsupported_method", "ignored_auth", "missing_required_header"),
)


def program() -> pathlib.Path:
    """Return the path of the program, installed if it is not there yet."""
    done = FOLDER / "bin/schemathesis"
    with common.locked(FOLDER.with_name(f".{FOLDER.name}.lock")):
        if not done.exists():
            shutil.rmtree(FOLDER, ignore_errors=True)
            common.run(sys.executable, "-m", "venv", str(FOLDER))
            pip = [str(FOLDER / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            try:
                common.run(*pip, f"schemathesis=={VERSION}")
            except BaseException:
                shutil.rmtree(FOLDER, ignore_errors=True)
                raise
    return done
