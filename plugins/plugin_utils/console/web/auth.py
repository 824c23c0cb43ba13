# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Authentication and authorisation. With a cluster the cluster decides both; without one there is one person, at this machine.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import ipaddress
import secrets
import threading
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.sessions import Caller, WebSession, same
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError, WebError

GROUP, RESOURCE = "acceptance.gpufleet.dev", "syncactions"
REVIEW = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
# What only looks: a right to it may be remembered for a while.
LOOKING = ("get", "list", "watch")
REMEMBERED = 10_000
# Links of the terminal that hold at a time.
LINKS = 8
Headers = t.Mapping[str, str]


class Away(WebError):
    """The API server cannot say now who a caller is or what they may do."""


class Auth(t.Protocol):
    """`enters_by`: how somebody without a session gets one, `link`, `token`, or nothing."""

    enters_by: str

    def origin(self, peer: str, headers: Headers) -> str:
        """Return the address that a request comes from."""

    def who(self, peer: str, headers: Headers, session: WebSession | None) -> Caller | None: ...

    def proven(self, peer: str, headers: Headers, session: WebSession | None) -> str:
        """Return the name of a caller whom a request proves without a question to others; empty if it does not."""

    def opens(self, code: str) -> str:
        """Return the name of the user whom the code of a link would sign in; empty if it holds no longer or never did."""

    def enter(self, secret: str) -> Caller | None:
        """Return the user whom a link's code or a token proves, or None."""

    def may(self, who: Caller, verb: str, name: str = "") -> bool: ...


def bearer(headers: Headers) -> str:
    kind, _blank, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


class LocalLogin:
    """One person, at this machine, who has read a link in the terminal that holds once, or whose programs send `token`, which a file of
    theirs holds."""

    enters_by = "link"

    def __init__(self, name: str, show: t.Callable[[str], None], token: str = "") -> None:
        self._who, self._show, self._token = Caller(name), show, token
        self._lock = threading.Lock()
        # Anybody at this machine may ask for another link: those before hold for a while, so that nobody keeps the user from signing in.
        self._codes: collections.deque[str] = collections.deque(maxlen=LINKS)
        self._shown = float("-inf")

    def new_link(self, every_s: float = 5.0) -> None:
        """Another link in the terminal; the last LINKS hold until one of them is used."""
        with self._lock:
            if time.monotonic() - self._shown < every_s:
                return
            self._codes.append(secrets.token_urlsafe(24))
            self._shown = time.monotonic()
            self._show(self._codes[-1])

    def origin(self, peer: str, headers: Headers) -> str:
        return peer

    def who(self, peer: str, headers: Headers, session: WebSession | None) -> Caller | None:
        token = bearer(headers)
        if token:
            return self._who if same(token, self._token) else None
        return session.who if session else None

    def proven(self, peer: str, headers: Headers, session: WebSession | None) -> str:
        who = self.who(peer, headers, session)
        return who.name if who else ""

    def opens(self, code: str) -> str:
        with self._lock:
            return self._who.name if self._holds(code) else ""

    def _holds(self, code: str) -> bool:
        return any(same(code, one) for one in self._codes)

    def enter(self, secret: str) -> Caller | None:
        with self._lock:
            if not self._holds(secret):
                return None
            self._codes.clear()
        return self._who

    def may(self, who: Caller, verb: str, name: str = "") -> bool:
        return True


class Reviews:
    """Reviews of tokens and rights by the API server, cached for a moment for requests that only read."""

    def __init__(self, client: Client, namespace: str, remembered_s: float = 10.0, audiences: t.Sequence[str] = ()) -> None:
        self._client, self._namespace, self._for = client, namespace, remembered_s
        self._audiences = list(audiences)
        self._known: dict[tuple[t.Any, ...], tuple[float, t.Any]] = {}
        self._lock = threading.Lock()

    def token(self, token: str) -> Caller | None:
        def ask() -> Caller | None:
            spec: dict[str, t.Any] = {"token": token, **({"audiences": self._audiences} if self._audiences else {})}
            answer = self._post(REVIEW, "TokenReview", "authentication.k8s.io/v1", spec)
            user = answer.get("user") or {}
            if not answer.get("authenticated") or not user.get("username"):
                return None
            if self._audiences and not set(self._audiences) & set(answer.get("audiences") or ()):
                return None
            return Caller(str(user["username"]), tuple(map(str, user.get("groups") or ())), token)

        return t.cast("Caller | None", self._remembered(_key_of(token), ask))

    def known(self, token: str) -> Caller | None:
        """Return the caller whom the last review of a token has proven, None without one: the API server is not asked."""
        with self._lock:
            _until, caller = self._known.get(_key_of(token), (0.0, None))
        return t.cast("Caller | None", caller)

    def may(self, who: Caller, verb: str, name: str) -> bool:
        def ask() -> bool:
            attributes = {"namespace": self._namespace, "verb": verb, "group": GROUP, "resource": RESOURCE}
            if name:
                attributes["name"] = name
            spec = {"user": who.name, "groups": list(who.groups), "resourceAttributes": attributes}
            return self._post(ACCESS, "SubjectAccessReview", "authorization.k8s.io/v1", spec).get("allowed") is True

        return bool(self._remembered(("may", who.name, who.groups, verb, name), ask) if verb in LOOKING else ask())

    def _post(self, path: str, kind: str, version: str, spec: dict[str, t.Any]) -> dict[str, t.Any]:
        try:
            answer = self._client.post(path, {"apiVersion": version, "kind": kind, "spec": spec})
        except KubeError as error:
            raise Away(f"the API server does not say who may do what: {error.reason_code}") from None
        return answer.get("status") or {}

    def _remembered(self, key: tuple[t.Any, ...], ask: t.Callable[[], t.Any]) -> t.Any:
        now = time.monotonic()
        with self._lock:
            entry = self._known.get(key)
        if entry and entry[0] > now:
            return entry[1]
        value = ask()
        with self._lock:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[key] = (now + self._for, value)
        return value


def _key_of(token: str) -> tuple[str, bytes]:
    return "token", hashlib.sha256(token.encode("utf-8", "replace")).digest()


@dataclasses.dataclass(frozen=True)
class Proxies:
    """Proxies that may name the user in headers: only from these addresses, and only with the secret."""

    addresses: tuple[str, ...]
    secret: str = dataclasses.field(repr=False)
    user: str = "x-forwarded-user"
    groups: str = "x-forwarded-groups"
    proof: str = "x-console-proxy-secret"

    def __post_init__(self) -> None:
        if len(self.secret) < 16:
            raise RunError("console_proxy_secret: found less than 16 characters, expected a secret that the proxy sends with each request")
        for address in self.addresses:
            try:
                ipaddress.ip_network(address, strict=False)
            except ValueError:
                expected = "expected an address or network, as 10.0.0.7 or 10.0.0.0/24"
                raise RunError(f"console_proxy_addresses: found {address!r}, {expected}") from None

    def sent(self, peer: str, headers: Headers) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        networks = (ipaddress.ip_network(network, strict=False) for network in self.addresses)
        return any(address in network for network in networks) and same(headers.get(self.proof, ""), self.secret)

    def who(self, headers: Headers) -> Caller | None:
        name = headers.get(self.user, "").strip()
        groups = (group.strip() for group in headers.get(self.groups, "").split(","))
        return Caller(name, tuple(sorted({group for group in groups if group}))) if name else None


class ClusterLogin:
    """The cluster's people: by a token of theirs, or by what a proxy says that is believed."""

    def __init__(self, reviews: Reviews, proxies: Proxies | None = None) -> None:
        self._reviews, self._proxies = reviews, proxies
        self.enters_by = "token"

    def origin(self, peer: str, headers: Headers) -> str:
        if self._proxies and self._proxies.sent(peer, headers):
            return headers.get("x-forwarded-for", "").rpartition(",")[2].strip() or peer
        return peer

    def who(self, peer: str, headers: Headers, session: WebSession | None) -> Caller | None:
        token = bearer(headers)
        if token:
            return self._reviews.token(token)
        if self._proxies and self._proxies.sent(peer, headers):
            return self._proxies.who(headers)
        return self._reviews.token(session.who.token) if session and session.who.token else None

    def proven(self, peer: str, headers: Headers, session: WebSession | None) -> str:
        token = bearer(headers)
        if token:
            who = self._reviews.known(token)
        elif self._proxies and self._proxies.sent(peer, headers):
            who = self._proxies.who(headers)
        else:
            who = session.who if session else None
        return who.name if who else ""

    def opens(self, code: str) -> str:
        return ""

    def enter(self, secret: str) -> Caller | None:
        return self._reviews.token(secret) if secret else None

    def may(self, who: Caller, verb: str, name: str = "") -> bool:
        return self._reviews.may(who, verb, name)
