# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What playbooks/status.yml and its neighbours do on a host is its plane's."""

from __future__ import annotations

import importlib
import pathlib
import re
import types
import typing as t

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry, upkeep

ROOT = pathlib.Path(__file__).resolve().parents[4]
ACTION = importlib.import_module("ansible_collections.gpufleet.acceptance.plugins.action.upkeep")
RUN = "20260101T000000Z-0a1b2c"
SESSIONS, GOVERNOR, STATUS, CLEANUP = (
    f"gpufleet.acceptance.{name}" for name in ("node_sessions", "cpu_governor", "kube_status", "kube_cleanup")
)


class Recorded(upkeep.Upkeep):
    """Records the modules that an operation runs; `results` is what each of them returns."""

    def __init__(self, variables: dict[str, t.Any], results: dict[str, dict[str, t.Any]], **options: t.Any) -> None:
        action = types.SimpleNamespace(
            _task=types.SimpleNamespace(check_mode=False), _templar=types.SimpleNamespace(template=lambda value: value)
        )
        defaults = {name: of["default"] for name, of in upkeep.OPTIONS.items()}
        super().__init__(action, {**defaults, **options}, {"inventory_hostname": "h", **variables})
        self.results = results
        self.calls: list[tuple[str, dict[str, t.Any]]] = []

    def module(self, name: str, /, **args: t.Any) -> dict[str, t.Any]:
        self.calls.append((name, args))
        return self.results.get(name, {"changed": False})


def done(
    plane: str, operation: str, results: dict[str, dict[str, t.Any]] | None = None, **options: t.Any
) -> tuple[dict[str, t.Any], list[tuple[str, dict[str, t.Any]]]]:
    of = Recorded({"acceptance_state_dir": "/state", "acceptance_root": "/root"}, results or {}, **options)
    return registry.shipped()[plane].operations[operation](of), of.calls


def test_a_machine_is_asked_by_its_sessions() -> None:
    assert done("ssh", "status")[1] == [(SESSIONS, {"state_dir": "/state", "run_ids": []})]
    assert done("ssh", "status", run_id=RUN)[1] == [(SESSIONS, {"state_dir": "/state", "run_ids": [RUN]})]
    everything = {"state_dir": "/state", "state": "ended", "run_ids": [], "all": True}
    assert done("ssh", "stop")[1] == [(SESSIONS, everything)]
    assert done("ssh", "stop", run_id=RUN)[1] == [(SESSIONS, {**everything, "run_ids": [RUN], "all": False})]


def test_a_machine_is_restored_after_its_abandoned_runs_have_ended() -> None:
    ended = (SESSIONS, {"state_dir": "/state", "state": "ended", "abandoned": True})
    undone = (GOVERNOR, {"state": "restored", "state_dir": "/state", "root": "/root"})
    results = {SESSIONS: {"changed": True, "sessions": ["row"]}, GOVERNOR: {"changed": False, "undone": []}}
    result, calls = done("ssh", "restore", results)
    assert calls == [ended, undone] and result == {"changed": True, "sessions": ["row"], "undone": []}
    failed = {"failed": True, "msg": "still at work"}
    assert done("ssh", "restore", {SESSIONS: failed}) == (failed, [ended]), "what still runs may hold what would be given back"


def test_in_check_mode_what_would_be_given_back_is_a_change() -> None:
    of = Recorded({}, {SESSIONS: {"changed": False, "pending": ["folder /scratch/x"]}, GOVERNOR: {"changed": False}})
    for is_check in (True, False):
        of.check_mode = is_check
        assert registry.shipped()["ssh"].operations["restore"](of)["changed"] is is_check


def test_a_machine_without_a_part_that_is_sent_back_is_not_asked(tmp_path: pathlib.Path) -> None:
    (tmp_path / "handover").mkdir()
    path = tmp_path / "handover/punch_list.csv"
    path.write_text("id,state,node,category\nP-1,open,other,part\n")
    of = Recorded({"acceptance_results_dir": str(tmp_path), "acceptance_bug_report": True}, {})
    do = registry.shipped()["ssh"].operations["support_files"]
    assert do(of)["skipped"] and not of.calls
    path.write_text("id,state,node,category\nP-1,open,h,part\n")
    do(of)
    ((name, args),) = of.calls
    assert name == "gpufleet.acceptance.support_files" and args["bug_report"] is True and args["results_dir"] == str(tmp_path)
    assert (args["timeout"], args["max_mib"], args["nvidia_smi"]) == (600, 32, "nvidia-smi")


def test_a_cluster_is_asked_by_its_api() -> None:
    shown = {"run_id": RUN, "stage": "gemm", "node": "n1", "tail": 5, "previous": True, "follow": 2.0}
    assert done("kubernetes", "logs", **shown)[1] == done("kubernetes", "status", **shown)[1] == [(STATUS, shown)]
    assert done("kubernetes", "stop")[1] == [(CLEANUP, {"run_id": "", "all": True})]
    assert done("kubernetes", "stop", run_id=RUN)[1] == [(CLEANUP, {"run_id": RUN, "all": False})]
    assert done("kubernetes", "cleanup", run_id=RUN)[1] == [(CLEANUP, {"run_id": RUN})]
    assert done("kubernetes", "restore", run_id=RUN)[1] == [(CLEANUP, {})], "a run that lives is left alone"
    (storage,) = done("kubernetes", "observability_preflight", storage_class="fast")[1]
    assert storage == ("gpufleet.acceptance.kube_storage", {"storage_class": "fast", "claims_namespace": "monitoring"})


@pytest.mark.parametrize("operation", upkeep.OPERATIONS)
def test_each_operation_is_one_task_of_the_playbook_of_its_name(operation: str) -> None:
    (play,) = yaml.safe_load((ROOT / "playbooks" / f"{operation}.yml").read_text())
    task = play["tasks"][0]
    assert task["gpufleet.acceptance.upkeep"]["operation"] == operation
    assert set(task) <= {"name", "gpufleet.acceptance.upkeep", "become", "register"}, "it asks the plane on every host"
    known = [others for plane in registry.shipped().values() for others in plane.operations]
    assert operation in known and set(known) <= set(upkeep.OPERATIONS)


def test_an_operation_for_all_runs_says_that_it_does_not_keep_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    monkeypatch.setattr(ACTION.ActionBase, "run", lambda *_args: {})
    monkeypatch.setattr(ACTION.Display, "warning", lambda _self, words: warned.append(words))
    plane = types.SimpleNamespace(name="p", operations=dict.fromkeys(upkeep.OPERATIONS, lambda _upkeep: {"done": True}))
    monkeypatch.setattr(ACTION.registry, "of", lambda *_args: plane)
    for operation in upkeep.OPERATIONS:
        action = object.__new__(ACTION.ActionModule)
        action._task = types.SimpleNamespace(args={"operation": operation, "run_id": RUN}, check_mode=False)
        assert action.run(task_vars={"inventory_hostname": "h"})["done"]
    assert [words.partition(":")[0] for words in warned] == ["run_id is not used"] * len(upkeep.OF_ALL_RUNS)


def test_the_module_documents_the_options_that_its_action_takes() -> None:
    module = importlib.import_module("ansible_collections.gpufleet.acceptance.plugins.modules.upkeep")
    documented = yaml.safe_load(module.DOCUMENTATION)["options"]
    assert {name: {key: of[key] for key in of if key != "description"} for name, of in documented.items()} == ACTION.SPEC


def test_no_playbook_and_no_role_compares_the_name_of_a_plane() -> None:
    files = [path for folder in ("playbooks", "roles") for path in (ROOT / folder).rglob("*.yml")]
    compared = re.compile(r"acceptance_plane[^\n]*(==|!=|\bin\b)")
    assert files and not [str(path) for path in files if compared.search(path.read_text())]
