# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sessions: a cookie that only the console can read or make, so that it outlives a restart and serves every replica.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import os
import pathlib
import secrets
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.lib import cryptography
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError, WebError

# What a browser keeps of one cookie.
MOST = 4000
# By how much the clock that began a session may have been ahead, as those of several replicas are.
AHEAD_S = 300.0


@dataclasses.dataclass(frozen=True)
class Caller:
    """A caller; `token` is what the cluster knows them by, and stands in no text."""

    name: str
    groups: tuple[str, ...] = ()
    token: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True)
class WebSession:
    id: str
    csrf: str = dataclasses.field(repr=False)
    who: Caller
    begun: float
    until: float


class TooLong(WebError):
    """A token that no cookie can hold."""


class Sessions:
    def __init__(self, key: bytes, lasts_s: float, whole_s: float, secure: bool) -> None:
        self._box = cryptography.fernet.Fernet(key)
        self._lasts, self._whole, self._secure = lasts_s, whole_s, secure
        # Browsers share cookies between the ports of a host: each console has a name of its own, the same on all its replicas.
        self.cookie = f"{'__Host-' if secure else ''}console-{hashlib.sha256(key).hexdigest()[:8]}"
        self._ended: dict[str, float] = {}

    def begin(self, who: Caller, of: WebSession | None = None) -> WebSession:
        """A new session, or one that goes on as long as it may."""
        now = time.time()
        if of is None:
            return WebSession(secrets.token_hex(16), secrets.token_urlsafe(24), who, now, now + min(self._lasts, self._whole))
        return dataclasses.replace(of, until=min(now + self._lasts, of.begun + self._whole))

    def is_old(self, session: WebSession) -> bool:
        """Return True if it is time for a new cookie."""
        return session.until - time.time() < self._lasts / 2 and session.until < session.begun + self._whole

    def sealed(self, session: WebSession) -> str:
        text = self._box.encrypt(json.dumps(dataclasses.asdict(session)).encode()).decode()
        if len(text) > MOST:
            raise TooLong(f"token: found {len(session.who.token)} characters, expected at most about {MOST // 2}")
        return text

    def opened(self, cookie: str) -> WebSession | None:
        """Return the session of a cookie; None if it is not ours, has expired or was ended."""
        try:
            fields = json.loads(self._box.decrypt(cookie.encode()))
            who = fields.pop("who")
            session = WebSession(who=Caller(who["name"], tuple(who["groups"]), who["token"]), **fields)
        except (cryptography.fernet.InvalidToken, ValueError, KeyError, TypeError, AttributeError):
            return None
        now = time.time()
        # Begun by a clock that was ahead and is right again, a session would last until that time.
        is_current = session.begun - AHEAD_S < now < session.until
        return session if is_current and session.id not in self._ended else None

    def end(self, session: WebSession) -> None:
        now = time.time()
        self._ended = {session_id: until for session_id, until in self._ended.items() if until > now}
        self._ended[session.id] = session.begun + self._whole

    def header(self, value: str, lasts: float | None = None) -> str:
        """Return the value of Set-Cookie. Lax: a link in a ticket or chat opens the page; requests that change something have a token
        of their own."""
        age = f"; Max-Age={int(self._lasts if lasts is None else lasts)}"
        return f"{self.cookie}={value}; Path=/; HttpOnly; SameSite=Lax{age}{'; Secure' if self._secure else ''}"


def same(secret: str, expected: str) -> bool:
    """Return True if two secrets are equal, in constant time."""
    return bool(expected) and hmac.compare_digest(secret.encode("utf-8", "replace"), expected.encode())


def key_in(folder: pathlib.Path) -> bytes:
    """Return the session key of a console without a cluster, made at its first start."""
    path = folder / "session.key"
    return usable_key(_secret_in(path, cryptography.fernet.Fernet.generate_key), str(path))


def token_in(folder: pathlib.Path) -> str:
    """Return the token that programs send to a console without a cluster, made at its first start."""
    return _secret_in(folder / "api.token", lambda: secrets.token_urlsafe(32).encode()).decode("ascii", "replace")


def _secret_in(path: pathlib.Path, make: t.Callable[[], bytes]) -> bytes:
    """Return the secret of a file that only its owner can read, made if there is none."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return path.read_bytes().strip()
        with os.fdopen(handle, "wb") as target:
            secret = make()
            target.write(secret)
        return secret
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}; expected a folder that can be written") from error


def usable_key(key: bytes, where: str) -> bytes:
    try:
        cryptography.fernet.Fernet(key)
    except ValueError:
        raise RunError(f"{where}: found {len(key)} characters, expected the key of sessions: 32 bytes as URL-safe base64") from None
    return key
