# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real OpenTelemetry collector on loopback: what it is sent by OTLP over HTTP stands in a file, one JSON object a line.

Built from Go modules of pinned versions, once per content of module/ (minutes), and kept in the cache of the rigs.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import sys
import typing as t

from rigs import common, golang
from rigs.services import Service, free_port

MODULE = pathlib.Path(__file__).resolve().parent / "module"
FLAGS = ("-trimpath", "-mod=readonly", "-ldflags", "-s -w")


def program() -> pathlib.Path:
    """The collector, built where it is not there yet."""
    digest = hashlib.sha256(repr(FLAGS).encode())
    for path in sorted(MODULE.iterdir()):
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    target = common.CACHE / "otel" / f"collector-{digest.hexdigest()[:16]}"
    with common.locked(target.with_name("lock"), "another process, which builds the OpenTelemetry collector"):
        if not target.exists():
            golang.build("the OpenTelemetry collector", *FLAGS, package=".", into=target, cwd=MODULE)
    return target


class Collector:
    """A collector of its own, with what it has received."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.port = free_port()
        self._file = folder / "received.jsonl"
        config = folder / "collector.json"  # JSON is YAML
        listen = {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{self.port}"}}}}
        traces = {"receivers": ["otlp"], "exporters": ["file"]}
        config.write_text(
            json.dumps(
                {
                    "receivers": listen,
                    "exporters": {"file": {"path": str(self._file), "flush_interval": "100ms"}},
                    "service": {"telemetry": {"metrics": {"level": "none"}}, "pipelines": {"traces": traces}},
                }
            )
        )
        self.service = Service("collector", [str(program()), f"--config=file:{config}"], folder)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Collector:
        self.service.start()
        self.service.listens(self.port)
        return self

    def __exit__(self, *_error: object) -> None:
        self.service.end()

    def spans(self) -> list[dict[str, t.Any]]:
        """Every span that has come in, with the attributes of its resource as `resource`, both as plain dictionaries."""
        if not self._file.exists():
            return []
        found = []
        for line in self._file.read_text(encoding="utf-8").splitlines():
            for of in json.loads(line)["resourceSpans"]:
                resource = _plain(of["resource"].get("attributes", ()))
                for scope in of["scopeSpans"]:
                    found += [{**span, "attributes": _plain(span.get("attributes", ())), "resource": resource} for span in scope["spans"]]
        return found


def _plain(attributes: t.Iterable[dict[str, t.Any]]) -> dict[str, t.Any]:
    return {one["key"]: next(iter(one["value"].values()), None) for one in attributes}


if __name__ == "__main__":  # python3 -m rigs.otel.otel: ahead of whoever needs it
    try:
        print(program())
    except common.RigError as problem:
        sys.exit(f"{problem}")
