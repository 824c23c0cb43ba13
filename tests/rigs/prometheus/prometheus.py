# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prometheus, Alertmanager and Pushgateway of the distribution on loopback, each on a port of its own and without an init system."""

from __future__ import annotations

import http.server
import json
import pathlib
import threading
import typing as t
import urllib.error
import urllib.parse
import urllib.request

from rigs import common
from rigs.services import Service, free_port

PACKAGES = {
    "prometheus": "prometheus", "promtool": "prometheus", "prometheus-alertmanager": "prometheus-alertmanager",
    "prometheus-pushgateway": "prometheus-pushgateway",
}  # fmt: skip
Record = t.Dict[str, t.Any]


def get(url: str) -> str | None:
    """Return the answer of an address, whatever its status; None if there is none."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError:
        return None


class _Daemon:
    """The common part of the three programs; `folder` has configuration, data and log."""

    def __init__(self, name: str, folder: pathlib.Path, *options: str) -> None:
        common.need_packages(PACKAGES)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.service = Service(name, [name, f"--web.listen-address=127.0.0.1:{self.port}", *options], folder)

    def __enter__(self) -> t.Any:
        self.service.start()
        self.service.until("ready", lambda: "ready" in (get(f"{self.url}/-/ready") or "").lower() or get(f"{self.url}/-/ready") == "OK")
        return self

    def __exit__(self, *_error: object) -> None:
        self.service.end()


class Pushgateway(_Daemon):
    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__("prometheus-pushgateway", folder)

    def metrics(self) -> str:
        return get(f"{self.url}/metrics") or ""


class Alertmanager(_Daemon):
    """Tells `heard` of each alert, by a webhook."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.heard: list[Record] = []
        heard = self.heard

        class Hook(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                heard.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                pass

        self._hook = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
        threading.Thread(target=self._hook.serve_forever, daemon=True).start()
        receiver = {"name": "hook", "webhook_configs": [{"url": f"http://127.0.0.1:{self._hook.server_port}/"}]}
        route = {"receiver": "hook", "group_wait": "0s", "group_interval": "1s", "group_by": ["..."]}
        (folder / "alertmanager.json").write_text(json.dumps({"route": route, "receivers": [receiver]}))
        super().__init__(
            "prometheus-alertmanager", folder, "--config.file=alertmanager.json", f"--storage.path={folder}/alerts",
            "--cluster.listen-address=",
        )  # fmt: skip

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._hook.shutdown()
        self._hook.server_close()


class Prometheus(_Daemon):
    """`jobs`: {name: addresses as host:port} that it scrapes each second; `rules`: files; `more`: jobs as its configuration has them."""

    def __init__(
        self, folder: pathlib.Path, jobs: t.Mapping[str, t.Sequence[str]], rules: t.Sequence[pathlib.Path] = (), alertmanager: str = "",
        more: t.Sequence[Record] = (),
    ) -> None:  # fmt: skip
        managers = [{"static_configs": [{"targets": [alertmanager.partition("//")[2]]}]}] if alertmanager else []
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(path) for path in rules],
            "alerting": {"alertmanagers": managers},
            "scrape_configs": [
                {"job_name": name, "honor_labels": True, "static_configs": [{"targets": list(targets)}]} for name, targets in jobs.items()
            ] + list(more),
        }
        (folder / "prometheus.json").write_text(json.dumps(config))
        super().__init__("prometheus", folder, "--config.file=prometheus.json", f"--storage.tsdb.path={folder}/data")

    def query(self, expression: str) -> list[Record]:
        """The result of an instant query; RigError where it cannot be asked."""
        answer = json.loads(get(f"{self.url}/api/v1/query?query={urllib.parse.quote(expression)}") or "{}")
        if answer.get("status") != "success":
            raise common.RigError(f"{expression}: {answer.get('error')}")
        found = answer["data"]["result"]
        return found if isinstance(found, list) and answer["data"]["resultType"] == "vector" else [{"value": found}]

    def until(self, expression: str) -> list[Record]:
        """The result of a query once it has one."""
        return t.cast(t.List[Record], self.service.until(f"answering {expression}", lambda: self.query(expression)))
