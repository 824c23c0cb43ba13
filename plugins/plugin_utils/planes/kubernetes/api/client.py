# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client of a cluster's API: credentials and TLS by the kubernetes package, requests and answers as plain JSON.

The package's own models cost milliseconds per pod; a stage over thousands of pods needs only dictionaries. Nothing that this module
returns or raises holds a token, a key or a part of a kubeconfig.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import ssl
import tempfile
import threading
import time
import typing as t
import urllib.parse

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import reason_codes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import AcceptanceError

try:
    import kubernetes
    import kubernetes.client.rest
    import kubernetes.config
    import urllib3
except ImportError:
    kubernetes = None  # type: ignore[assignment]  # connect() says so

Object = t.Dict[str, t.Any]
CONNECTIONS = 32
ANSWER_S = 60.0
WHOLE = "application/json"
# Requests only the metadata of an object. Servers that do not support that return the whole object.
METADATA = f"{WHOLE};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{WHOLE}"
# Seconds for which an API server may be unreachable, for example in a restart, before a request fails.
PATIENCE_S = 60.0
# The same for a server that has never answered: it may not exist.
FIRST_S = 5.0
# Seconds after a restart in which a refusal is retried: the server may not have read its roles yet.
SETTLES_S = 15.0


class KubeError(AcceptanceError, reasons.ReasonedError):
    """A cluster or its API refuses a request, or does not answer.

    `status` is the HTTP status, 0 without one; `details` is the API's Status object. Raises ValueError for an unknown reason code.
    """

    def __init__(self, reason_code: str, reason: str, status: int = 0, details: Object | None = None) -> None:
        if reason_code not in reason_codes.ALL:
            raise ValueError(f"reason code {reason_code!r} is neither in answer/reasons.py nor in this plane's reason_codes.py")
        super().__init__(reason_code, reason)
        self.status = status
        self.details = details or {}


class ControllerError(KubeError):
    """A file or variable on the controller by which no cluster can be reached, whatever the cluster does."""


class Connection(t.NamedTuple):
    """The connection to a cluster: the `acceptance_kube_*` variables of its inventory host.

    Set a kubeconfig file, or a server with a token file, or nothing inside of a cluster. A token itself is no variable, because variables
    are written to the results.
    """

    name: str
    kubeconfig: str = ""
    context: str = ""
    server: str = ""
    token_file: str = ""
    ca_file: str = ""
    namespace: str = ""
    proxy: str = ""
    no_proxy: str = ""


def connect(connection: Connection) -> Client:
    """Return a client of a cluster, without sending anything. Raise KubeError if the credentials cannot be read."""
    if kubernetes is None:
        raise KubeError("cluster_unreachable", "the controller's Python lacks the package kubernetes; see requirements.txt")
    configuration = kubernetes.client.Configuration()
    notes: list[str] = []
    with _key_files() as folder:
        namespace = _identify(connection, configuration, folder) or connection.namespace or "default"
        tls = _tls(connection, configuration)
    configuration.connection_pool_maxsize = CONNECTIONS
    configuration.retries = urllib3.Retry(0, redirect=False)
    if connection.proxy:
        configuration.proxy = connection.proxy
    no_proxy, wrong = proxy_exceptions(connection.no_proxy or configuration.no_proxy or "")
    configuration.no_proxy = no_proxy
    notes += [f"{connection.name}: {line}" for line in wrong]
    return Client(connection.name, configuration, tls, connection.namespace or namespace, notes)


_one_at_a_time = threading.Lock()


@contextlib.contextmanager
def _key_files() -> t.Iterator[str]:
    """Yield a temporary folder for the keys of a kubeconfig, because the TLS library reads keys from files only.

    The package would leave them in the common folder for temporary files until the process ends normally, which Ansible's workers never
    do. It also caches names of files, so only one thread at a time may use such a folder.
    """
    with _one_at_a_time, tempfile.TemporaryDirectory(prefix="gpufleet-") as folder:
        yield folder


def _tls(connection: Connection, configuration: t.Any) -> t.Any:
    """Return the TLS context of a configuration, with its certificates loaded."""
    try:
        context = urllib3.util.ssl_.create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if configuration.verify_ssl else ssl.CERT_NONE)
        if configuration.ssl_ca_cert:
            context.load_verify_locations(configuration.ssl_ca_cert)
        else:
            context.load_default_certs()
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except (OSError, ValueError) as error:
        words = "no certificate or key that can be read" if isinstance(error, (ssl.SSLError, ValueError)) else error.strerror
        where = f"certificates of {connection.kubeconfig or connection.server}: {words}"
        if connection.ca_file:
            where = f"acceptance_kube_ca_file: {connection.ca_file}: {words}; expected a file of certificates in PEM"
        raise ControllerError("credentials", f"{connection.name}: {where}") from None
    return context


def _identify(connection: Connection, configuration: t.Any, folder: str) -> str:
    """Fill in server, TLS and credentials. Return the namespace that they name, empty if none."""
    name = connection.name
    if connection.server:
        configuration.host = connection.server
        configuration.ssl_ca_cert = os.path.expanduser(connection.ca_file) or None
        if connection.token_file:
            configuration.refresh_api_key_hook = lambda target: target.api_key.update(
                authorization=f"Bearer {_text(f'{name}: acceptance_kube_token_file', connection.token_file)}"
            )
            configuration.refresh_api_key_hook(configuration)
        return ""
    path = connection.kubeconfig or os.environ.get("KUBECONFIG", "")
    if not path and os.environ.get("KUBERNETES_SERVICE_HOST"):
        try:
            kubernetes.config.load_incluster_config(client_configuration=configuration)
        except kubernetes.config.ConfigException as error:
            raise ControllerError("credentials", f"{name}: no service account in this pod: {error}") from None
        namespace_file = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
        return _text(name, namespace_file) if os.path.exists(namespace_file) else ""
    path = os.path.expanduser(path or "~/.kube/config")
    # Messages of the YAML parser and of the loader may quote the file, so they are not shown.
    hidden = f"{name}: kubeconfig {path} cannot be used"
    _require_files(name, path)
    try:
        contexts, active = kubernetes.config.list_kube_config_contexts(config_file=path)
    except Exception as error:
        raise ControllerError("credentials", f"{hidden}: {_harmless(error)}") from None
    chosen = next((c for c in contexts if c["name"] == connection.context), None) if connection.context else active
    if chosen is None:
        names = ", ".join(sorted(c["name"] for c in contexts)) or "none"
        raise ControllerError("credentials", f"{name}: context {connection.context!r} is not in kubeconfig {path}; it has {names}")
    try:
        kubernetes.config.load_kube_config(path, chosen["name"], configuration, temp_file_path=folder)
    except Exception as error:
        raise ControllerError("credentials", f"{hidden} with context {chosen['name']!r}: {_harmless(error)}") from None
    return str(chosen["context"].get("namespace") or "")


def require_kubeconfig(connection: Connection) -> None:
    """Raise ControllerError if the variables name a kubeconfig that does not exist. Nothing is read."""
    if connection.kubeconfig:
        _require_files(connection.name, os.path.expanduser(connection.kubeconfig))


def _require_files(name: str, path: str) -> None:
    if not all(os.path.isfile(part) for part in path.split(os.pathsep) if part):
        raise ControllerError("credentials", f"{name}: kubeconfig {path} does not exist; set acceptance_kube_kubeconfig")


def _harmless(error: Exception) -> str:
    """Return a description of an error without contents of the kubeconfig."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"it is not YAML at line {mark.line + 1}"
    if isinstance(error, OSError):
        return f"{error.strerror}: {error.filename}"
    match = re.search(r"Expected (?:key|object with name|all values) [\w.\-]+|File does not exist: \S+", str(error))
    return match.group(0) if match else "it is no kubeconfig; expected apiVersion v1, kind Config, with clusters, users and contexts"


def _text(name: str, path: str) -> str:
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as source:
            return source.read().strip()
    except OSError as error:
        raise ControllerError("credentials", f"{name}: {path}: {error.strerror}") from None


def proxy_exceptions(text: str) -> tuple[str, list[str]]:
    """Return NO_PROXY in the form that clients understand, and a note for each changed entry. Most clients ignore `10.0.*.*`."""
    entries, notes = [], []
    for entry in (part.strip() for part in text.split(",")):
        numbers = entry.split(".")
        stars = numbers[::-1].index(next((n for n in numbers[::-1] if n != "*"), "*")) if "*" in numbers else 0
        if len(numbers) == 4 and stars and all(n.isdigit() for n in numbers[: 4 - stars]):
            network = ".".join(numbers[: 4 - stars] + ["0"] * stars) + f"/{8 * (4 - stars)}"
            notes.append(f"NO_PROXY entry {entry} is taken as {network}; most clients do not know this spelling")
            entry = network
        if entry:
            entries.append(entry)
    return ",".join(entries), notes


class Client:
    """Requests to one API server. Safe to use from several threads."""

    def __init__(self, name: str, configuration: t.Any, tls: t.Any, namespace: str, notes: list[str]) -> None:
        self.name = name
        self.namespace = namespace
        self.notes = notes
        self.patience = FIRST_S
        self._lost_at = -SETTLES_S
        self._configuration = configuration
        # The context has loaded the certificates, and their files are removed. The package sets the paths again when it renews a token.
        configuration.ssl_ca_cert = configuration.cert_file = configuration.key_file = None
        self._pool = kubernetes.client.rest.RESTClientObject(configuration).pool_manager
        self._pool.connection_pool_kw["ssl_context"] = tls
        self._credentials = threading.Lock()

    def fresh(self) -> Client:
        """Return a client with its own connections. A forked process must not use those of its parent."""
        return Client(self.name, self._configuration, self._pool.connection_pool_kw["ssl_context"], self.namespace, [])

    # Requests ----------------------------------------------------------------------------------------------------

    def get(self, path: str, **query: t.Any) -> Object:
        """Return a resource or a list. Raise KubeError with the API's status."""
        return self._request("GET", path, query)

    def post(self, path: str, body: Object, **query: t.Any) -> Object:
        """Create an object with a unique name. If a lost request of ours has created it already, return that object."""
        return self._request("POST", path, query, body)

    def post_like(self, path: str, body: Object) -> None:
        """Create an object like one that post() has created: without validation of its fields, which costs the API server time, and without
        reading the answer."""
        self._request("POST", path, {"fieldValidation": "Ignore"}, body, METADATA)

    def delete(self, path: str, **query: t.Any) -> None:
        """Delete an object, or with a labelSelector a collection. A missing object is no error."""
        try:
            self._request("DELETE", path, query)
        except KubeError as error:
            if error.status != 404:
                raise

    def patch(self, path: str, body: Object) -> Object:
        """Merge `body` into an object."""
        return self._request("PATCH", path, {}, body)

    def patch_once(self, path: str, body: Object, timeout: float) -> Object:
        """Merge `body` into an object and return its metadata. Do not retry: raise KubeError if no answer comes within `timeout`
        seconds."""
        try:
            response = self._send("PATCH", path, {}, body, urllib3.Timeout(connect=timeout, read=timeout), METADATA)
            data = response.data
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise KubeError("cluster_unreachable", f"{self.name}: {path}: {_network(error)}") from None
        if response.status >= 400:
            raise self._refused(response.status, data, f"PATCH {path}")
        return t.cast("Object", json.loads(data))

    def apply(self, path: str, body: Object, manager: str, dry_run: bool = False) -> Object:
        """Apply `body` to an object by server-side apply. Fields of other managers stay."""
        query = {"fieldManager": manager, "force": True, "fieldValidation": "Strict", "dryRun": "All" if dry_run else None}
        return self._request("PATCH", path, query, body)

    def pages(self, path: str, limit: int = 500, **query: t.Any) -> t.Iterator[Object]:
        """Yield the pages of a list, so that no answer grows with the cluster."""
        following = ""
        while True:
            page = self.get(path, limit=limit, **query, **({"continue": following} if following else {}))
            yield page
            following = page["metadata"].get("continue") or ""
            if not following:
                return

    def transport(self) -> tuple[str, t.Any, dict[str, str], str]:
        """Return server, TLS context, headers with our credentials, and proxy, for connections other than HTTP requests."""
        headers = {"User-Agent": "gpufleet.acceptance", **self._authorisation()}
        proxy = getattr(self._pool, "proxy", None)
        return self._configuration.host.rstrip("/"), self._pool.connection_pool_kw["ssl_context"], headers, str(proxy.url) if proxy else ""

    def _authorisation(self) -> dict[str, str]:
        with self._credentials:
            authorised = self._configuration.auth_settings().get("BearerToken")
        return {"Authorization": authorised["value"]} if authorised and authorised["value"] else {}

    @contextlib.contextmanager
    def stream(self, path: str, silence: float, **query: t.Any) -> t.Iterator[t.Any]:
        """Open a watch or a log and yield the urllib3 response. `silence` is the read timeout in seconds."""
        response = self._send("GET", path, query, None, urllib3.Timeout(connect=10, read=silence))
        try:
            if response.status >= 400:
                raise self._refused(response.status, response.read(1 << 16), f"GET {path}")
            yield response
        finally:
            # A connection that was not read to its end cannot be used again.
            response.close()
            response.release_conn()

    def lines(self, path: str, silence: float = ANSWER_S, line_limit: int = 1 << 24, **query: t.Any) -> t.Iterator[bytes]:
        """Yield the lines of a stream without their newlines. A line longer than `line_limit` bytes comes in pieces."""
        try:
            with self.stream(path, silence, **query) as response:
                partial = b""
                for piece in response.stream(1 << 16):
                    pieces = (partial + piece).split(b"\n")
                    partial = pieces.pop()
                    yield from pieces
                    if len(partial) > line_limit:
                        yield partial
                        partial = b""
                if partial:
                    yield partial
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise KubeError("cluster_unreachable", f"{self.name}: {self.server}{self._through_proxy}: {_network(error)}") from None

    def text(self, path: str, timeout: float, **query: t.Any) -> tuple[int, str]:
        """Return status and text of a pod behind the API server's proxy. Do not retry: raise KubeError without an answer."""
        status, text, _date = self.dated(path, timeout, **query)
        return status, text

    def dated(self, path: str, timeout: float, **query: t.Any) -> tuple[int, str, str | None]:
        """Return status, text and the `Date` header of the answer, like text()."""
        response = self._send("GET", path, query, None, urllib3.Timeout(connect=10, read=timeout), "*/*")
        try:
            return int(response.status), response.data.decode("utf-8", "replace"), response.headers.get("Date")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise KubeError("cluster_unreachable", f"{self.name}: {path}: {_network(error)}") from None

    def _request(self, method: str, path: str, query: Object, body: Object | None = None, accept: str = WHOLE) -> Object:
        begin = time.monotonic()
        pause, tried, renewed = 0.1, 0, False
        while True:
            tried += 1
            try:
                response = self._send(method, path, query, body, urllib3.Timeout(connect=10, read=ANSWER_S), accept)
                data, status, retry_after = response.data, response.status, response.headers.get("Retry-After", "")
            except KubeError as error:
                self._lost_at = time.monotonic()
                if error.reason_code != "cluster_unreachable" or time.monotonic() + pause > begin + self.patience:
                    raise
                time.sleep(pause)
                pause = min(pause * 2, 3.0)
                continue
            self.patience = PATIENCE_S
            if status < 400:
                return t.cast("Object", json.loads(data)) if data else {}
            refused = self._refused(status, data, f"{method} {path}")
            if status == 401 and not renewed:
                renewed = True  # a token read from a file or made by a plugin may have been renewed by now
                continue
            if status == 409 and method == "POST" and tried > 1 and body and "AlreadyExists" in str(refused.details.get("reason")):
                return self.get(f"{path}/{body['metadata']['name']}")
            settling = status == 403 and time.monotonic() - self._lost_at < SETTLES_S
            retry = settling or status in (429, 503, 504) or (status == 500 and b"etcdserver" in data)
            remaining_s = begin + self.patience - time.monotonic()
            if not retry or pause > remaining_s:
                raise refused
            time.sleep(min(float(retry_after) if retry_after.isdigit() else pause, remaining_s))
            pause = min(pause * 2, 3.0)

    def _send(self, method: str, path: str, query: Object, body: Object | None, timeout: t.Any, accept: str = WHOLE) -> t.Any:
        url = self._configuration.host.rstrip("/") + path
        parameters = {k: str(v).lower() if isinstance(v, bool) else v for k, v in query.items() if v is not None}
        if parameters:
            url += "?" + urllib.parse.urlencode(parameters)
        headers = {"Accept": accept, "User-Agent": "gpufleet.acceptance", **self._authorisation()}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            patch = "application/apply-patch+yaml" if "fieldManager" in parameters else "application/merge-patch+json"
            headers["Content-Type"] = patch if method == "PATCH" else WHOLE
        try:
            return self._pool.request(method, url, body=data, headers=headers, timeout=timeout, preload_content=False, redirect=False)
        except urllib3.exceptions.SSLError as error:
            match = re.search(r"certificate verify failed: [\w ,'.-]+|hostname [^)]*doesn't match[^)]*", str(error))
            raise KubeError(
                "credentials", f"{self.name}: TLS with {self.server}: {match.group(0) if match else type(error).__name__}"
            ) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise KubeError(
                "cluster_unreachable", f"{self.name}: {self.server} does not answer{self._through_proxy}: {_network(error)}"
            ) from None

    @property
    def _through_proxy(self) -> str:
        """Return words about the proxy of requests, without credentials of its URL, empty without a proxy. An error may be the proxy's."""
        proxy = getattr(self._pool, "proxy", None)
        return f" through proxy {proxy.scheme}://{proxy.host}:{proxy.port}" if proxy else ""

    @property
    def server(self) -> str:
        """Return the server's address without credentials of its URL."""
        parts = urllib.parse.urlsplit(self._configuration.host)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")

    def _refused(self, status: int, data: bytes, request: str) -> KubeError:
        try:
            details = json.loads(data)
        except ValueError:
            details = {}
        details = details if isinstance(details, dict) else {}
        message = " ".join(str(details.get("message") or data[:300].decode("utf-8", "replace")).split())
        return refusal(self.name, status, message, details, request)


def _network(error: BaseException) -> str:
    text = str(error)
    for mark, words in (
        ("Tunnel connection failed", "the proxy refuses"),
        ("Connection refused", "connection refused"), ("Name or service not known", "its name is not known"),
        ("Temporary failure in name resolution", "its name cannot be resolved"), ("No route to host", "no route to host"),
        ("Network is unreachable", "the network is unreachable"), ("timed out", "no answer in time"),
        ("Connection reset", "connection reset"), ("Remote end closed", "connection closed"), ("ProxyError", "the proxy does not help"),
    ):  # fmt: skip
        if mark in text:
            return words
    return type(error).__name__


# Status codes and words of the API server (apimachinery's metav1.StatusReason and the admission plugins' messages).
_REFUSALS: tuple[tuple[int, str, str, str], ...] = (
    (401, "", "credentials", "the API server does not accept our credentials: expired, or of another cluster"),
    (403, "exceeded quota", "quota", "the namespace's quota is used up"),
    (403, "failed quota", "quota", "the namespace's quota wants resources to be set: see acceptance_kube_resources"),
    (
        403,
        "violates PodSecurity",
        "admission",
        "PodSecurity refuses the pod: label the namespace, or see acceptance_kube_host_root and acceptance_kube_pod_patch",
    ),
    (403, "being terminated", "namespace_gone", "the namespace is being deleted"),
    (403, "is forbidden: User", "no_permission", "not permitted; see files/rbac"),
    (403, " cannot ", "no_permission", "not permitted; see files/rbac"),
    (403, "", "admission", "admission refuses it"),
    (404, "namespaces", "namespace_gone", "the namespace does not exist: see acceptance_kube_namespace"),
    (400, "denied the request", "admission", "an admission webhook refuses it"),
    (500, "failed calling webhook", "admission", "an admission webhook does not answer"),
    (422, "", "bad_spec", "the object is invalid"),
    (400, "", "bad_spec", "the request is invalid"),
)


def refusal(cluster: str, status: int, message: str, details: Object, request: str) -> KubeError:
    """Return a refusal of the API server as an error with its reason code and the server's message."""
    for known_status, mark, code, meaning in _REFUSALS:
        if status == known_status and mark in message:
            return KubeError(code, f"{cluster}: {meaning}: {message}"[:900], status, details)
    code = "cluster_unreachable" if status >= 500 or status == 429 else "bad_spec"
    return KubeError(code, f"{cluster}: {request}: status {status}: {message}"[:900], status, details)
