# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The client commands, in the ways of several versions, and what is said when they fail."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import inventory, preflight
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.client import Client, SlurmError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

Program = t.Callable[[str, str], None]
LINES = """for last in "$@"; do :; done
mark=${last%%|*}
echo "$mark|n1|all|idle|hgx|gpu:8|22.05.8|Unknown|Unknown|none"
echo "$mark|n2|all|drained||gpu:8|22.05.8|root|1795742058|NHC: x"
echo "$mark|n3|other|idle|old|(null)|22.05.8|Unknown|Unknown|none"
"""


def test_json_of_scontrol_comes_first_then_that_of_sinfo_then_lines(program: Program, fixtures: pathlib.Path) -> None:
    folder = fixtures / "slurm"
    program("sinfo", f'case "$*" in *--json) cat {folder}/22.05-sinfo-reasons.json;; *) exit 9;; esac')
    program("scontrol", f"cat {folder}/24.11-scontrol-node.json")
    assert [node.version for node in Client("lab", ()).nodes()] == ["24.11.5"]
    program("scontrol", "echo \"scontrol: unrecognized option '--json'\" >&2; exit 1")
    assert {node.version for node in Client("lab", ()).nodes()} == {"22.05.8"}
    program("sinfo", f'case "$*" in *--json) cat {folder}/24.11-sinfo.json;; *) {LINES} ;; esac')
    assert [node.name for node in Client("lab", ()).nodes()] == ["n1", "n2", "n3"]


def test_slurm_that_does_not_answer_is_unreachable_in_its_own_words(program: Program) -> None:
    for name in ("sinfo", "scontrol"):
        program(name, "echo 'slurm_load_node error: Unable to contact slurm controller (connect failure)' >&2; exit 1")
    with pytest.raises(SlurmError, match=r"lab: sinfo fails: slurm_load_node error: Unable to contact slurm controller") as error:
        Client("lab", ()).nodes()
    assert error.value.reason_code == "slurm_unreachable"


def test_a_list_of_no_nodes_is_no_answer(program: Program) -> None:
    """As sinfo of 22.05 says while slurmctld is gone, with status 0."""
    program("scontrol", "exit 1")
    program("sinfo", """case "$*" in *--json) echo '{"errors": [{"error_code": -1}], "nodes": []}';;
*) echo 'slurm_load_partitions: Unable to contact slurm controller (connect failure)' >&2; exit 1;; esac""")
    with pytest.raises(SlurmError, match="lab: sinfo fails: slurm_load_partitions: Unable to contact slurm controller"):
        Client("lab", ()).nodes("n1")


def test_a_machine_that_ssh_does_not_reach(program: Program) -> None:
    program("ssh", 'echo "$@" >&2; exit 255')
    with pytest.raises(SlurmError, match="lab: cannot be reached by ssh: login -T -o BatchMode=yes"):
        Client("lab", ("ssh", "login")).nodes()


def test_a_machine_without_the_client_commands(program: Program) -> None:
    for name in ("sinfo", "scontrol"):
        program(name, "echo 'not found' >&2; exit 127")
    with pytest.raises(SlurmError, match=r"lab: sinfo fails: .*see acceptance_slurm_ssh"):
        Client("lab", ()).nodes()


def test_an_allocation_that_we_run_in_is_not_ours_to_use(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SRUN_DEBUG", "3")
    monkeypatch.setenv("SLURM_CONF", "/etc/lab.conf")
    program("srun", 'echo "job ${SLURM_JOB_ID-none}, debug ${SRUN_DEBUG-none}, $SLURM_CONF"')
    assert Client("lab", ()).run("srun") == "job none, debug none, /etc/lab.conf\n"


def test_words_behind_ssh_are_quoted_for_its_shell() -> None:
    assert Client("lab", ("ssh", "login")).words(["a b", "$(c)"])[-2:] == ["--", "'a b' '$(c)'"]
    assert Client("lab", ()).words(["a b"]) == ["a b"]


@pytest.mark.parametrize(
    ("variables", "names", "note"),
    [
        ({}, ["n1", "n2", "n3"], ""),
        ({"acceptance_slurm_partition": "all"}, ["n1", "n2"], ""),
        ({"acceptance_slurm_partition": "other"}, ["n3"], "partition other is DOWN"),
        ({"acceptance_slurm_partition": "gone"}, [], "the cluster has no partition gone"),
        ({"acceptance_nodes": {"feature": "hgx"}}, ["n1"], ""),
        ({"acceptance_nodes": {"names": ["n2", "n9"]}}, ["n2", "n9"], "the cluster has no node n9"),
        ({"acceptance_nodes": {"expected": ["n1", "n7"]}}, ["n1", "n2", "n3", "n7"], "the cluster has no node n7"),
        ({"acceptance_nodes": {"expected": 4}}, ["n1", "n2", "n3", "expected-4"], "4 nodes are expected, and 3 are there"),
        ({"acceptance_nodes": {"feature": "none"}}, [], "no node of partition any, feature none"),
    ],
)
def test_nodes_that_the_inventory_means(program: Program, variables: dict[str, t.Any], names: list[str], note: str) -> None:
    program("scontrol", "exit 1")
    program("sinfo", f'case "$*" in *--json) exit 1;; *-N*) {LINES} ;; *) for last in "$@"; do :; done; m=${{last%%|*}}; '
                     'echo "$m|all|up|1:00:00|all*"; echo "$m|other|down|infinite|other";; esac')  # fmt: skip
    found = inventory.subjects("lab", variables)
    assert found.names == names and (note in " ".join(found.notes) if note else not found.notes)


def test_nodes_that_are_expected_are_planned_where_slurm_does_not_answer(program: Program) -> None:
    for name in ("sinfo", "scontrol"):
        program(name, "exit 1")
    found = inventory.subjects("lab", {"acceptance_nodes": {"expected": ["n1"]}})
    assert found.names == ["n1"] and "sinfo fails" in found.notes[0]
    assert inventory.subjects("lab", {"acceptance_nodes": {"expected": 2}}).names == ["expected-1", "expected-2"]
    assert inventory.subjects("lab", {}).names == []


def test_check_mode_names_nodes_without_jobs_and_a_job_that_would_be_refused(program: Program, tmp_path: pathlib.Path) -> None:
    program("scontrol", "exit 1")
    program("sinfo", f'case "$*" in *--json) exit 1;; *) {LINES} ;; esac')
    program("srun", f'echo "$@" > {tmp_path}/tried')
    (line,) = preflight.lines("lab", {})
    assert line.startswith("lab: node n2 is drained") and "--test-only" in (tmp_path / "tried").read_text()
    program("srun", "echo 'allocation failure: Invalid qos specification' >&2; exit 1")
    with pytest.raises(RunError, match="lab: srun fails: allocation failure: Invalid qos specification; tried on node n1 without"):
        preflight.lines("lab", {})


def test_nodes_of_an_entry_of_acceptance_node_vars(program: Program) -> None:
    program("scontrol", "exit 1")
    program("sinfo", f'case "$*" in *--json) exit 1;; *) {LINES} ;; esac')
    assert inventory.select("lab", {}, {"names": ["x"]}) == ["x"] and inventory.select("lab", {}, {"feature": "old"}) == ["n3"]
    with pytest.raises(Exception, match="expected names or a feature"):
        inventory.select("lab", {}, {"selector": "a=b"})
