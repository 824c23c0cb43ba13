# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Argument lists of the launchers, and what their complaints mean, on outputs of real ones."""

from __future__ import annotations

import pathlib
import shlex

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import mpi

FIXTURES = pathlib.Path(__file__).resolve().parents[3] / "fixtures" / "openmpi"
HOSTS = [("10.1.30.41", 1), ("10.1.30.42", 1)]
SSH = ["ssh", "-F", "/tmp/x/ssh_config"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n", ("openmpi4", "Open MPI 4.1.4")),
        ("mpirun.openmpi (OpenRTE) 4.1.4\n", ("openmpi4", "Open MPI 4.1.4")),
        ("mpirun (Open MPI) 5.0.7\n", ("openmpi5", "Open MPI 5.0.7")),
        ("prterun (PRRTE) 3.0.8\n", ("openmpi5", "PRRTE 3.0.8")),
        ("HYDRA build details:\n    Version:                                 4.0.2\n", ("hydra", "Hydra 4.0.2")),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307\n", ("hydra", "Intel MPI 2021.9")),
        ("bash: mpirun: command not found", None),
        ("", None),
    ],
)
def test_a_launcher_is_known_by_what_it_prints_as_its_version(text: str, found: tuple[str, str] | None) -> None:
    assert mpi.flavour(text) == found


def test_the_second_line_of_a_seed_from_variables_alone() -> None:
    """Its hosts stand in a host file, one slot each, which is what -H gives; all other words are the same, in their order."""
    seed = shlex.split(
        "mpirun -np 2 --allow-run-as-root -bind-to none -map-by slot -mca coll_hcoll_enable 0 -mca pml ob1 "
        "-mca btl_tcp_if_include bond0 -mca btl ^openib -x NCCL_IB_GID_INDEX=3 -x NCCL_SOCKET_IFNAME=bond0 -x NCCL_IB_HCA=^mlx5_8 "
        "-x NCCL_IB_TC=128 -x NCCL_IB_QPS_PER_CONNECTION=8 -x NCCL_DEBUG=INFO -x NCCL_ALGO=Ring "
        "/data/nccl-tests-2.13.11/build/all_reduce_perf -b 32M -e 8G -f 2 -g 8"
    )
    env = {
        "NCCL_IB_GID_INDEX": "3", "NCCL_SOCKET_IFNAME": "bond0", "NCCL_IB_HCA": "^mlx5_8", "NCCL_IB_TC": "128",
        "NCCL_IB_QPS_PER_CONNECTION": "8", "NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring",
    }  # fmt: skip
    extra = shlex.split("-bind-to none -map-by slot -mca coll_hcoll_enable 0 -mca pml ob1 -mca btl_tcp_if_include bond0 -mca btl ^openib")
    argv = shlex.split("/data/nccl-tests-2.13.11/build/all_reduce_perf -b 32M -e 8G -f 2 -g 8")
    words, more = mpi.command(mpi.OPENMPI4, "mpirun", HOSTS, "hosts", argv, env=env, ssh=SSH, extra=extra, root=True)
    ours = ["--hostfile", "hosts", "--mca", "plm", "rsh", "--mca", "plm_rsh_agent", "ssh -F /tmp/x/ssh_config"]
    ours += ["--mca", "plm_rsh_no_tree_spawn", "1"]
    assert _without(words, ours) == seed
    assert mpi.hostfile(mpi.OPENMPI4, HOSTS) == "10.1.30.41 slots=1\n10.1.30.42 slots=1\n" and more == {}


def _without(words: list[str], some: list[str]) -> list[str]:
    """`words` less `some`, each once and in its order."""
    rest, left = [], list(some)
    for word in words:
        if left and word == left[0]:
            left.pop(0)
        else:
            rest.append(word)
    assert not left, left
    return rest


@pytest.mark.parametrize("kind", [mpi.OPENMPI4, mpi.OPENMPI5, mpi.HYDRA])
def test_what_the_user_says_wins_and_hosts_are_always_given(kind: str) -> None:
    extra = ["--bind-to", "core", "--map-by", "ppr:1:node", "--mca", "plm_rsh_agent", "rsh", "--prtemca", "plm_ssh_agent", "rsh"]
    words, more = mpi.command(kind, "mpirun", [("a", 8), ("b", 8)], "file", ["x"], env={"A": "1 2"}, ssh=SSH, extra=extra, root=True)
    assert words.count("--bind-to") + words.count("-bind-to") == 1 and words.count("--map-by") == 1 and words[-1] == "x"
    assert "16" in words and "file" in words and ("A=1 2" in words) != (kind == mpi.HYDRA)
    if kind == mpi.HYDRA:
        at = words.index("-genv")
        assert words[at : at + 3] == ["-genv", "A", "1 2"] and more == {"HYDRA_LAUNCHER_EXTRA_ARGS": "-F /tmp/x/ssh_config"}
        assert mpi.hostfile(kind, [("a", 8)]) == "a:8\n"
    else:
        assert "ssh -F /tmp/x/ssh_config" not in words and "--allow-run-as-root" in words


def test_scratch_is_named_to_open_mpi_only_where_there_is_some() -> None:
    for kind, option in ((mpi.OPENMPI4, "orte_tmpdir_base"), (mpi.OPENMPI5, "prte_tmpdir_base")):
        for scratch in ("", "/tmp/gpufleet-x"):
            words, _more = mpi.command(kind, "mpirun", HOSTS, "f", ["x"], env={}, ssh=SSH, scratch=scratch)
            assert (option in words) == bool(scratch) and "--allow-run-as-root" not in words


def test_hydra_tells_nodes_an_address_and_not_a_name() -> None:
    def words(extra: list[str], own: str = "10.1.30.40") -> str:
        return " ".join(mpi.command(mpi.HYDRA, "mpiexec", HOSTS, "f", ["x"], env={}, ssh=SSH, extra=extra, head_address=own)[0])

    assert " -localhost 10.1.30.40 " in words([]) and "-localhost" not in words([], "")
    assert "-localhost" not in words([], "fd67:6670:1::c")  # its proxies take what follows the first colon for a port
    assert "10.1.30.40" not in words(["-iface", "eth0"]) and words(["-localhost", "h"]).count("-localhost") == 1


def test_daemons_of_open_mpi_5_fork_where_they_wait() -> None:
    """With threads of theirs a rank as short as `hostname` is missed once in a hundred launches, and mpirun never ends."""
    for kind in (mpi.OPENMPI4, mpi.OPENMPI5, mpi.HYDRA):
        words, _more = mpi.command(kind, "mpirun", HOSTS, "f", ["x"], env={}, ssh=SSH)
        assert ("--prtemca odls_base_max_threads 0" in " ".join(words)) == (kind == mpi.OPENMPI5)
    theirs = ["--prtemca", "odls_base_max_threads", "4"]
    words, _more = mpi.command(mpi.OPENMPI5, "mpirun", HOSTS, "f", ["x"], env={}, ssh=SSH, extra=theirs)
    assert words.count("odls_base_max_threads") == 1 and words[words.index("odls_base_max_threads") + 1] == "4"


@pytest.mark.parametrize(
    ("file", "code", "words"),
    [
        ("mpirun_err_missing_binary", "tool_missing", "gpu-03 (gn03) does not have /tmp/only12"),
        ("mpirun_err_unreachable", "unreachable", "10.213.0.99 cannot be reached"),
        ("mpirun_err_unresolvable", "unreachable", "nosuch cannot be resolved"),
        ("mpirun_no_root_flag", "launch_failed", "refuses to run as root"),
        ("mpirun_not_enough_slots", "launch_failed", "fewer than 8 slots"),
        ("mpi5_mpijob_no_hostfile", "launch_failed", "fewer than 4 slots"),
    ],
)
def test_complaints_of_launchers_have_their_reason_and_node(file: str, code: str, words: str) -> None:
    text = (FIXTURES / f"{file}.txt").read_text()
    found = mpi.failure(text, {"gn03": "gpu-03", "10.0.0.3": "gpu-03"})
    assert found and found[0] == code and words in found[1], found


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("root@10.0.0.3: Permission denied (publickey).", "no_permission", "gpu-03 (10.0.0.3) refuses the SSH login of the head"),
        ("Connection to 10.0.0.3 port 22 timed out\nPRTE has lost communication", "unreachable", "gpu-03 (10.0.0.3) cannot be reached"),
        (
            "PRTE has lost communication with a remote daemon.\n\n  HNP daemon   : [prterun-a-1@0,0] on node a\n"
            "  Remote daemon: [prterun-a-1@0,1] on node 10.0.0.3\n", "lost_node", "gpu-03 (10.0.0.3) was lost",
        ),
        (
            "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[1,0],0] on node a\n"
            "  Remote daemon: [[1,0],1] on node gpu-03\n", "lost_node", "gpu-03 was lost",
        ),
        ("Host key verification failed.\n", "no_permission", "not the known one"),
        ("bash: line 1: orted: command not found\n", "tool_missing", "same place on every node"),
        ("[proxy:0:1@b] HYDU_create_process (x.c:73): execvp error on file /x/perf (No such file or directory)", "tool_missing", "/x/perf"),
        ("/x/perf: error while loading shared libraries: libnccl.so.2: cannot open", "tool_missing", "libnccl.so.2"),
    ],
)
def test_complaints_of_ssh_have_their_reason_and_node(text: str, code: str, words: str) -> None:
    found = mpi.failure(text, {"10.0.0.3": "gpu-03"})
    assert found and found[0] == code and words in found[1], found


@pytest.mark.parametrize("file", ["mpirun_32hosts", "mpi5_mpijob_N2", "mpirun_from_gn01"])
def test_the_output_of_a_good_launch_has_no_complaint(file: str) -> None:
    assert mpi.failure((FIXTURES / f"{file}.txt").read_text(), {}) is None
