# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads resources of a Redfish service (DMTF DSP0266), by GET and Basic authentication: a session would stay on the management controller
if the controller of the run dies, and management controllers have few.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import ssl
import threading
import time
import typing as t
import urllib.error
import urllib.parse

from ansible.module_utils.urls import open_url
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError

ROOT = "/redfish/v1/"
# A management controller answers one request in tenths of a second to some seconds.
REQUEST_S = 20.0
# The largest resources, pages of a log, have some hundred KB.
LARGEST_BYTES = 8 << 20
# Pages of a collection that are read. A log of 20,000 events has about 400.
MOST_PAGES = 40

Resource = t.Dict[str, t.Any]


@dataclasses.dataclass
class Service:
    """A Redfish service. `deadline` is the time of time.monotonic() after which nothing is asked any more; `ca_path` is a file with the
    certificates that are trusted besides those of the system, or empty."""

    url: str
    user: str
    password: str = dataclasses.field(repr=False)
    deadline: float
    validate_certs: bool = True
    ca_path: str = ""
    # Why the service refused the login. It is not tried again: management controllers lock a user out after some attempts.
    refused: ReasonedError | None = dataclasses.field(default=None, init=False)

    @property
    def host(self) -> str:
        return urllib.parse.urlsplit(self.url).netloc

    def get(self, path: str) -> Resource:
        """Return a resource. Raise ReasonedError, with words that name the service and the resource, if it cannot be read."""
        what = f"https://{self.host}{path}"
        if not path.startswith("/") or path.startswith("//"):
            raise ReasonedError("bmc_unreadable", f"the service at {self.host} refers to {path[:100]!r}, expected a path on itself")
        if self.refused is not None:
            raise self.refused
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise ReasonedError("timeout", f"no time was left to read {what}: see host_health_redfish_timeout")
        try:
            found = json.loads(self._in_time(what, left))
        except urllib.error.HTTPError as error:
            if error.code in (401, 403):
                words = "refuses the login" if error.code == 401 else "does not let this user read it"
                refusal = ReasonedError("credentials", f"{what}: the service {words} (status {error.code})")
                self.refused = refusal if error.code == 401 else None
                raise refusal from error
            raise ReasonedError("bmc_unreadable", f"{what}: the service answers with status {error.code}") from error
        except (OSError, http.client.HTTPException) as error:
            raise ReasonedError("bmc_unreadable", f"{what} cannot be read: {_cause(error)}") from error
        except (ValueError, RecursionError) as error:
            raise ReasonedError("bmc_unreadable", f"{what}: the answer is not JSON: {str(error)[:100]}") from error
        if not isinstance(found, dict):
            raise ReasonedError("bmc_unreadable", f"{what}: found a {type(found).__name__}, expected a resource")
        if "error" in found:
            raise ReasonedError("bmc_unreadable", f"{what}: the service answers with an error in place of the resource")
        return found

    def members(self, path: str) -> t.Iterator[Resource]:
        """Yield the members of a collection, those of its further pages too; each is a reference or the resource itself."""
        count = 0
        for _page in range(MOST_PAGES):
            where = f"https://{self.host}{path}"
            collection = self.get(path)
            found = collection.get("Members")
            if not isinstance(found, list) or not all(isinstance(member, dict) for member in found):
                raise ReasonedError("bmc_unreadable", f"{where}: found no list Members, expected a collection of resources")
            yield from found
            count += len(found)
            following = collection.get("Members@odata.nextLink") or collection.get("@odata.nextLink")
            following = following.get("@odata.id") if isinstance(following, dict) else following  # as in the first versions of Redfish
            if not following:
                total = collection.get("Members@odata.count")
                if isinstance(total, int) and total > count:
                    raise ReasonedError("bmc_unreadable", f"{where}: found {count} members, expected the {total} that it counts")
                return
            path = str(following)
        raise ReasonedError("bmc_unreadable", f"https://{self.host}{path}: more than {MOST_PAGES} pages of it were not read")

    def _in_time(self, what: str, left_s: float) -> bytes:
        """Return the text of a resource. Raise an error of the request, or OSError behind the deadline: a service that sends its headers
        byte by byte meets every time limit of a connection."""
        results: list[bytes] = []
        errors: list[Exception] = []

        def ask() -> None:
            try:
                results.append(self._text(what, min(REQUEST_S, left_s)))
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=ask, daemon=True, name="redfish")
        thread.start()
        thread.join(left_s)
        if errors:
            raise errors[0]
        if not results:
            raise OSError("the answer was not whole in time; see host_health_redfish_timeout")
        return results[0]

    def _text(self, what: str, timeout_s: float) -> bytes:
        chunks: list[bytes] = []
        # No proxy and no redirect: the password goes to this address only.
        with open_url(
            what, headers={"Accept": "application/json"}, timeout=timeout_s, validate_certs=self.validate_certs,
            ca_path=self.ca_path or None, url_username=self.user, url_password=self.password, force_basic_auth=True,
            follow_redirects="none", use_proxy=False, use_netrc=False,
        ) as answer:  # fmt: skip
            while chunk := answer.read1(1 << 16):
                chunks.append(chunk)
                if sum(map(len, chunks)) > LARGEST_BYTES:
                    raise OSError(f"the answer has more than {LARGEST_BYTES >> 20} MiB")
                if time.monotonic() > self.deadline:
                    raise OSError("the answer was not whole in time; see host_health_redfish_timeout")
        return b"".join(chunks)


def _cause(error: Exception) -> str:
    """Return the cause of an error of the connection in words."""
    cause = getattr(error, "reason", error)
    if isinstance(cause, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(cause):
        problem = getattr(cause, "verify_message", "") or "it cannot be verified"
        return f"its certificate is not trusted ({problem}): give its issuer in host_health_redfish_ca_path"
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    return " ".join(str(cause).split())[:200] or type(cause).__name__
