# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API server as the rig speaks with it, certificates, and kubeconfigs that carry them."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import pathlib
import ssl
import typing as t

from rigs import common

DAYS = "3650"


class ApiError(common.RigError):
    """The API server refused; `status` is its HTTP status, 0 when it did not answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Api:
    """One connection as one user. `pki` holds ca.crt, USER.crt and USER.key."""

    def __init__(self, address: str, port: int, pki: pathlib.Path, user: str) -> None:
        self._address = address
        self._port = port
        self._context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._context.load_cert_chain(pki / f"{user}.crt", pki / f"{user}.key")
        self._connection: http.client.HTTPSConnection | None = None

    def request(self, method: str, path: str, body: t.Any = None, content: str = "application/json") -> t.Any:
        """The answer, decoded where it is JSON. `body` is sent as it is when it is text, else as JSON."""
        data = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
        status, text = self._exchange(method, path, data, {"Content-Type": content, "Accept": "application/json"})
        try:
            answer = json.loads(text)
        except ValueError:
            answer = text
        if status >= 400:
            message = answer.get("message", text) if isinstance(answer, dict) else text
            raise ApiError(status, f"{method} {path}: {status} {message.strip()[:500]}")
        return answer

    def create(self, path: str, document: dict[str, t.Any] | str) -> None:
        """Create what is not there yet; text is a document in YAML."""
        try:
            self.request("POST", path, document, "application/yaml" if isinstance(document, str) else "application/json")
        except ApiError as error:
            if error.status != 409:
                raise

    def apply(self, path: str, document: dict[str, t.Any]) -> None:
        """Make the object at this path what the document says (server-side apply)."""
        self.request("PATCH", f"{path}?fieldManager=rig&force=true", document, "application/apply-patch+yaml")

    def delete(self, path: str) -> None:
        """Delete what is there."""
        try:
            self.request("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    def items(self, path: str) -> list[dict[str, t.Any]]:
        found: list[dict[str, t.Any]] = self.request("GET", path)["items"]
        return found

    def _exchange(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, str]:
        for fresh in (False, True):
            if self._connection is None or fresh:
                self._connection = http.client.HTTPSConnection(self._address, self._port, timeout=30, context=self._context)
            try:
                self._connection.request(method, path, data, headers)
                response = self._connection.getresponse()
                return response.status, response.read().decode(errors="replace")
            except (OSError, http.client.HTTPException) as error:  # a kept connection that the other side closed, or nobody there
                self._connection.close()
                if fresh:
                    self._connection = None
                    raise ApiError(0, f"{method} {path}: {error}") from error
        raise AssertionError


def authority(pki: pathlib.Path) -> None:
    """ca.crt, ca.key and the key pair of service account tokens, unless they are there."""
    pki.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (pki / "ca.crt").exists():
        common.run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", pki / "sa.key")
        common.run("openssl", "ec", "-in", pki / "sa.key", "-pubout", "-out", pki / "sa.pub")
        common.run(
            "openssl", "req", "-x509", *_NEW_KEY, "-days", DAYS, "-subj", "/CN=rig-authority",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout", pki / "ca.key", "-out", pki / "ca.new",
        )  # fmt: skip
        (pki / "ca.new").rename(pki / "ca.crt")


def issue(pki: pathlib.Path, name: str, subject: str, alternatives: t.Sequence[str] = ()) -> None:
    """NAME.crt and NAME.key, unless they are there. `alternatives` such as IP:10.96.0.1 make it a server's too."""
    if (pki / f"{name}.crt").exists():
        return
    extensions = "extendedKeyUsage=clientAuth,serverAuth\n"
    if alternatives:
        extensions += f"subjectAltName={','.join(alternatives)}\n"

    def file(kind: str) -> pathlib.Path:
        return pki / f"{name}.{kind}"

    file("ext").write_text(extensions)
    common.run("openssl", "req", *_NEW_KEY, "-subj", subject, "-keyout", file("key"), "-out", file("csr"))
    serial = hashlib.sha256(name.encode()).hexdigest()[:16]
    common.run(
        "openssl", "x509", "-req", "-in", file("csr"), "-CA", pki / "ca.crt", "-CAkey", pki / "ca.key", "-set_serial", f"0x{serial}",
        "-days", DAYS, "-extfile", file("ext"), "-out", file("new"),
    )  # fmt: skip
    file("new").rename(file("crt"))


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def kubeconfig(server: str, pki: pathlib.Path, user: str, token: str = "", namespace: str = "default") -> str:
    """A kubeconfig without files beside it: with the user's certificate, or with a token."""

    def data(file: str) -> str:
        return base64.b64encode((pki / file).read_bytes()).decode()

    login = {"token": token} if token else {"client-certificate-data": data(f"{user}.crt"), "client-key-data": data(f"{user}.key")}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "rig",
        "clusters": [{"name": "rig", "cluster": {"server": server, "certificate-authority-data": data("ca.crt")}}],
        "users": [{"name": user, "user": login}],
        "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": user, "namespace": namespace}}],
    }
    return json.dumps(document, indent=1) + "\n"
