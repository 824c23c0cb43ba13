# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whoever applies files/console by hand gets what the role console makes."""

from __future__ import annotations

import json
import pathlib
import typing as t

import jinja2
import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import worker

ROOT = pathlib.Path(__file__).resolve().parents[4]
ROLE = ROOT / "roles/console"
FILES = ROOT / "files"
TOLD = {
    "acceptance_plane": "kubernetes", "acceptance_kube_namespace": "acceptance",
    "acceptance_kube_image": "registry.example.com/acceptance-tester:1",
}  # fmt: skip
Objects = dict[tuple[str, str], dict[str, t.Any]]


def made(**variables: t.Any) -> Objects:
    """What the role makes."""
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    given = {
        **defaults, "role_path": str(ROLE), "acceptance_kube_namespace": "acceptance", "console_told": TOLD,
        "console_image": "registry.example.com/acceptance-console:1", **variables,
    }  # fmt: skip
    # As Ansible's templates are: lines of blocks leave nothing, and the two words that this one asks for.
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["to_json"] = json.dumps
    environment.globals["lookup"] = lambda _plugin, path: pathlib.Path(path).read_text()
    template = environment.from_string((ROLE / "templates/manifests.yaml.j2").read_text())
    return _named(yaml.safe_load_all(template.render(given)))


def plain() -> Objects:
    """What stands in files/."""
    rights = [FILES / "rbac" / f"{name}.yaml" for name in ("nodes", "probe", "rdma", "group", "group-job", "holders")]
    documents = [yaml.safe_load(path.read_text()) for path in (*sorted((FILES / "console").glob("*.yaml")), *rights)]
    return _named(item for document in documents for item in document.get("items", [document]))


def _named(found: t.Iterable[dict[str, t.Any]]) -> Objects:
    objects = {(item["kind"], item["metadata"]["name"]): item for item in found if item}
    for (kind, _name), item in objects.items():
        if kind == "ConfigMap":
            item["data"]["inventory.json"] = json.loads(item["data"]["inventory.json"])
    return objects


def test_the_manifests_are_what_the_role_makes() -> None:
    ours = made()
    # Its key is drawn by whoever installs the console.
    assert ours.pop(("Secret", "gpufleet-acceptance-console"))
    assert ours == plain()


def test_a_name_that_people_use_is_the_one_that_the_cluster_asks_for() -> None:
    deployment = made(console_host="console.example.com")["Deployment", "gpufleet-acceptance-console"]
    pages = next(one for one in deployment["spec"]["template"]["spec"]["containers"] if one["name"] == "pages")
    assert "--host=console.example.com" in pages["command"]
    assert pages["readinessProbe"]["httpGet"]["httpHeaders"] == [{"name": "Host", "value": "console.example.com"}]


def test_addresses_that_are_secrets_come_from_files_that_only_the_controller_has() -> None:
    objects = made(console_webhook_secret="chat", console_history_secret="database")
    pod = objects["Deployment", "gpufleet-acceptance-console"]["spec"]["template"]["spec"]
    controller, pages = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for name, secret in (("webhook", "chat"), ("history", "database")):
        assert f"--{name}-url-file=/etc/gpufleet-{name}/url" in controller["command"]
        assert {"name": name, "mountPath": f"/etc/gpufleet-{name}", "readOnly": True} in controller["volumeMounts"]
        assert volumes[name]["secret"] == {"secretName": secret}
        assert all(mount["name"] != name for mount in pages["volumeMounts"])


def test_the_controller_tells_its_runs_the_addresses_of_its_files(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "url").write_text("https://hooks.example.com/x\n")
    begun: list[tuple[t.Any, ...]] = []
    monkeypatch.setattr(worker, "lead", lambda *given: begun.append(given))
    needed = ["--folder", str(tmp_path), "--inventory", "inventory.json", "--results-dir", str(tmp_path)]
    assert worker.main([*needed, "--webhook-url-file", str(tmp_path / "url")]) == 0
    assert begun[0][-1] == {"acceptance_webhook": "https://hooks.example.com/x"}
    assert worker.main([*needed, "--webhook-url-file", str(tmp_path / "gone")]) == 1
