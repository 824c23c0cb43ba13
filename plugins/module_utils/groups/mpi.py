# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mpirun of Open MPI 4 and 5 and of Hydra (MPICH, Intel MPI): which one it is, its argument list, and its complaints.

The three agree on little more than the name. What differs and matters here:

    hosts        always by a host file of ours: Open MPI 5 ignores the variables of Open MPI 4, and without a list it starts every rank
                 on the machine it runs on and reports success
    ssh          only from the machine that mpirun runs on (no tree), so that no other node needs a key
    start        by ssh, said aloud: a machine's settings (OMPI_MCA_plm=isolated) or a batch system would choose another way
    environment  by name and value on the command line, so that every rank gets it whatever its login shell does

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import shlex
import typing as t

Host = t.Tuple[str, int]  # address, ranks on it

OPENMPI4, OPENMPI5, HYDRA = "openmpi4", "openmpi5", "hydra"


def flavour(text: str) -> tuple[str, str] | None:
    """Return the launcher that prints this for `--version`, and its version; None for an unknown launcher."""
    match = re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)(\.[\w.]+)?", text)
    if match:
        return (OPENMPI4 if int(match.group(1)) < 5 else OPENMPI5), f"Open MPI {match.group(1)}{match.group(2) or ''}"
    match = re.search(r"\(PRRTE\) ([\w.]+)|PRTE[^\d\n]{0,40}([\d.]+)", text)
    if match:
        return OPENMPI5, f"PRRTE {match.group(1) or match.group(2)}"
    match = re.search(r"Intel\(R\) MPI Library[^\n]{0,60}Version ([^\s,]+)", text)
    if match:
        return HYDRA, f"Intel MPI {match.group(1)}"
    match = re.search(r"HYDRA[\s\S]{0,200}?Version:\s*(\S+)", text)
    return (HYDRA, f"Hydra {match.group(1)}") if match else None


def hostfile(kind: str, hosts: t.Sequence[Host]) -> str:
    """Return the text of a host file. In Hydra's form an IPv6 address cannot be told from a port."""
    if kind == HYDRA:
        return "".join(f"{address}:{ranks}\n" for address, ranks in hosts)
    return "".join(f"{address} slots={ranks}\n" for address, ranks in hosts)


def command(
    kind: str,
    program: str,
    hosts: t.Sequence[Host],
    file: str,
    argv: t.Sequence[str],
    *,
    env: t.Mapping[str, str],
    ssh: t.Sequence[str],
    extra: t.Sequence[str] = (),
    scratch: str = "",
    root: bool = False,
    head_address: str = "",
) -> tuple[list[str], dict[str, str]]:
    """Return the argument list that runs `argv` once per rank, and the launcher's own environment.

    `file`: path of hostfile()'s text. `ssh`: the program, with its options, that enters a node. `extra`: the user's own options, which are
    not changed and win over ours. `env`: variables for every rank. `scratch`: a folder on every node for what a killed launcher or rank
    leaves; somebody else removes it. `head_address`: the address under which the nodes reach the launcher's machine. Without it Hydra gives
    them its host name, which only that machine may know (a pod's, or one that means 127.0.1.1); so it does where this is an IPv6 address,
    which its proxies cannot tell from a port.
    """
    ranks = sum(count for _address, count in hosts)
    options = {word.lstrip("-") for word in extra}
    if kind == HYDRA:
        words = [program, "-n", str(ranks), "-f", file, "-launcher", "ssh", "-launcher-exec", ssh[0]]
        words += [] if "bind-to" in options else ["-bind-to", "none"]
        names_head = head_address and ":" not in head_address and not options & {"iface", "localhost"}
        words += ["-localhost", head_address] if names_head else []
        words += [*extra, *(word for name in env for word in ("-genv", name, env[name]))]
        return [*words, *argv], {"HYDRA_LAUNCHER_EXTRA_ARGS": " ".join(ssh[1:])}
    words = [program, "-np", str(ranks), "--hostfile", file, *(["--allow-run-as-root"] if root else [])]
    words += [] if "bind-to" in options else ["--bind-to", "none"]
    words += [] if "map-by" in options else ["--map-by", "slot"]
    for option, name, value in _settings(kind, shlex.join(ssh), scratch):
        words += [] if name in options else [option, name, value]
    words += [*extra, *(word for name in env for word in ("-x", f"{name}={env[name]}"))]
    return [*words, *argv], {}


def _settings(kind: str, ssh: str, scratch: str) -> list[tuple[str, str, str]]:
    """Return the settings of Open MPI that differ from its defaults, as (option, name, value)."""
    if kind == OPENMPI4:
        settings = [("--mca", "plm", "rsh"), ("--mca", "plm_rsh_agent", ssh), ("--mca", "plm_rsh_no_tree_spawn", "1")]
        scratch_settings = [("--mca", "orte_tmpdir_base", scratch), ("--mca", "btl_vader_backing_directory", scratch)]
    else:
        settings = [("--prtemca", "plm", "ssh"), ("--prtemca", "plm_ssh_agent", ssh), ("--prtemca", "plm_ssh_no_tree_spawn", "1")]
        # Its daemons fork in threads. A rank that ends before the thread has noted its pid is never missed, and mpirun waits for it for
        # ever; without threads whoever forks is who waits.
        settings += [("--prtemca", "odls_base_max_threads", "0")]
        scratch_settings = [("--prtemca", "prte_tmpdir_base", scratch), ("--mca", "btl_sm_backing_directory", scratch)]
    return settings + (scratch_settings if scratch else [])


# Without mpirun ------------------------------------------------------------------------------------------------------


def variables(extra: t.Sequence[str]) -> tuple[dict[str, str], str]:
    """Return the variables of ranks that do the same as these options of mpirun, and the first option that is none of a variable or of a
    parameter of Open MPI; empty if all are."""
    env: dict[str, str] = {}
    words = list(extra)
    while words:
        option, *rest = words
        kind = option.lstrip("-")
        if kind == "x" and rest and "=" in rest[0]:
            name, _equals, value = rest[0].partition("=")
            words = rest[1:]
        elif kind in ("mca", "omca", "gmca", "genv") and len(rest) > 1:
            name, value = rest[0] if kind == "genv" else f"OMPI_MCA_{rest[0]}", rest[1]
            words = rest[2:]
        else:
            return {}, option
        env[name] = value
    return env, ""


def scratch_variables(scratch: str) -> dict[str, str]:
    """Return the variables by which ranks of Open MPI 4 and 5 leave their files in a folder."""
    return {f"OMPI_MCA_btl_{name}_backing_directory": scratch for name in ("vader", "sm")}


# Complaints ----------------------------------------------------------------------------------------------------------


def failure(text: str, names: t.Mapping[str, str]) -> tuple[str, str] | None:
    """Return why a launcher did not start every rank, as (reason code, sentence), from the output of the launcher and its ssh; None if no
    known complaint is in it. `names`: names of the nodes by address and host name."""
    for code, pattern, sentence in _COMPLAINTS:
        match = pattern.search(text)
        if match:
            words = {key: _named((value or "").strip(), names) for key, value in match.groupdict().items()}
            return code, sentence.format(said=" ".join(match.group(0).split())[:300], **words)
    return None


def _named(address: str, names: t.Mapping[str, str]) -> str:
    name = names.get(address) or names.get(address.partition(".")[0])
    return f"{name} ({address})" if name and name != address else address or "a node"


_COMPLAINTS: tuple[tuple[str, t.Pattern[str], str], ...] = (
    (
        "no_permission",
        re.compile(r"(?m)^\S*?@?(?P<node>[\w.:-]+): Permission denied \([^)\n]{1,100}\)"),
        "{node} refuses the SSH login of the head of the group: {said}",
    ),
    (
        "no_permission",
        re.compile(r"No \S{1,20} host key is known for (?P<node>\S+) and you have requested strict checking"),
        "the host key of {node} is not known on the head of the group: {said}",
    ),
    ("no_permission", re.compile(r"Host key verification failed[^\n]{0,200}"), "a node's host key is not the known one: {said}"),
    (
        "unreachable",
        re.compile(r"(?:ssh: connect to host|Connection to|Connection closed by|Connection reset by) (?P<node>\S+) port \d+[^\n]{0,100}"),
        "{node} cannot be reached from the head of the group: {said}",
    ),
    (
        "unreachable",
        re.compile(r"ssh: Could not resolve hostname (?P<node>[^\s:]+): [^\n]{1,100}"),
        "{node} cannot be resolved on the head of the group: {said}",
    ),
    (
        "tool_missing",
        re.compile(r"(?m)^[^\n]{0,80}(?:orted|prted|hydra_pmi_proxy)\S{0,10}: (?:command not found|not found|No such file)[^\n]{0,100}"),
        "the MPI library is not installed in the same place on every node: {said}",
    ),
    (
        "tool_missing",
        re.compile(r"was unable to find the specified executable file[\s\S]{0,500}?Node:\s+(?P<node>\S+)\s+Executable: (?P<tool>\S+)"),
        "{node} does not have {tool}",
    ),
    (
        "tool_missing",
        re.compile(r"was unable to launch the specified application[\s\S]{0,200}?Executable: (?P<tool>[^\n]+)\s+Node: (?P<node>\S+)"),
        "{node} does not have {tool}, or cannot execute it",
    ),
    (
        "tool_missing",
        re.compile(r"execvp error on file (?P<tool>\S+) \([^)\n]{1,60}\)"),
        "a node does not have {tool}, or cannot execute it: {said}",
    ),
    (
        "tool_missing",
        re.compile(r"(?m)^(?P<tool>[^\n:]{1,200}): error while loading shared libraries: [^\n]{1,200}"),
        "a library that {tool} needs is missing on a node: {said}",
    ),
    (
        "launch_failed",
        re.compile(r"There are not enough slots available in the system to satisfy the (?P<ranks>\d+)"),
        "the launcher found fewer than {ranks} slots in the host file: {said}",
    ),
    (
        "launch_failed",
        re.compile(r"has detected an attempt to run as root"),
        "the launcher refuses to run as root: {said}",
    ),
    (
        "lost_node",
        re.compile(r"lost (?:communication|connection) [\s\S]{0,300}?[Rr]emote (?:daemon|host|node):?[^\n]{0,80}? on node (?P<node>\S+)"),
        "{node} was lost, or its daemon did not come up",
    ),
    (
        "launch_failed",
        re.compile(r"(?:ORTE|PRTE|PRRTE) was unable to reliably start one or more daemons"),
        "the launcher could not start its daemon on every node: {said}",
    ),
)
