# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Slurm on hosts of the fleet rig: munge and slurmd on each, slurmctld and the client commands on the first (README.md)."""

from __future__ import annotations

import functools
import pathlib
import subprocess
import time

from rigs import common
from rigs.fleet.fleet import Fleet

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sinfo": "slurm-client", "munged": "munge"}
# What accounting needs besides.
ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server-core", "mariadb": "mariadb-client-core"}
# GPUs of a host. They are character devices, as slurmd asks for files, and lie outside of /dev, which all hosts share.
GPUS = 8
MODEL = "h200"
UP_S = 60.0
# Processors of a host, and of the last of several.
PROCESSORS, FEWER = 16, 8

SLURM_CONF = """\
ClusterName=rig
SlurmctldHost={controller}
AuthType=auth/munge
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/ctld
SlurmdSpoolDir=/var/lib/slurm/d
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
# Namespaces have no cgroups of their own: the processes of a job are found by /proc.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=100000,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=10
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
KillWait=20
SlurmdTimeout=30
MinJobAge=300
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
{accounting}
NodeName=DEFAULT CPUs={processors} Boards=1 SocketsPerBoard=2 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=1000
NodeName=DEFAULT Gres=gpu:{model}:{gpus} Feature=hgx State=UNKNOWN
{described}
PartitionName=all Nodes={nodes} Default=YES MaxTime=60 State=UP
PartitionName=urgent Nodes={nodes} PriorityTier=10 State=UP
PartitionName=closed Nodes={nodes} State=DOWN
"""
WITHOUT_ACCOUNTING = "AccountingStorageType=accounting_storage/none"
# Jobs of users without an association, and beyond the limits of a QOS, are refused.
WITH_ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={controller}
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits,qos
"""
SLURMDBD_CONF = """\
AuthType=auth/munge
DbdHost={controller}
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
PidFile=/run/slurm/slurmdbd.pid
LogFile=/var/log/slurm/slurmdbd.log
"""
DATABASE = """\
set -e
install -d -o slurm -g slurm /var/lib/mysql /run/mysqld
cp /opt/simulated/slurm/slurmdbd.conf /etc/slurm/ && chown slurm:slurm /etc/slurm/slurmdbd.conf && chmod 600 /etc/slurm/slurmdbd.conf
cd /
runuser -u slurm -- mariadb-install-db --no-defaults --datadir=/var/lib/mysql --skip-test-db \
    --auth-root-authentication-method=normal > /dev/null
setsid runuser -u slurm -- mariadbd --no-defaults --datadir=/var/lib/mysql --socket=/run/mysqld/mysqld.sock --bind-address=127.0.0.1 \
    --innodb-flush-log-at-trx-commit=0 --skip-log-bin > /var/log/slurm/mariadbd.log 2>&1 < /dev/null &
client="mariadb --no-defaults --socket=/run/mysqld/mysqld.sock -u root"
for try in $(seq 300); do $client -e "select 1" > /dev/null 2>&1 && break; sleep 0.1; done
$client -e "create database slurm_acct_db; create user slurm@localhost identified by 'slurm'"
$client -e "grant all on slurm_acct_db.* to slurm@localhost"
slurmdbd
for try in $(seq 300); do sacctmgr -n show cluster > /dev/null 2>&1 && break; sleep 0.1; done
sacctmgr -i add cluster rig > /dev/null
"""
GRES_CONF = "NodeName={nodes} Name=gpu Type={model} File=/run/fake/gpu[0-{last}]\n"
PREPARE = """\
set -e
install -d -o munge -g munge -m 0700 /var/lib/munge /var/log/munge
install -d -o munge -g munge -m 0755 /run/munge
install -d -o slurm -g slurm -m 0755 /var/lib/slurm /var/lib/slurm/ctld /var/log/slurm /run/slurm
install -d -m 0755 /var/lib/slurm/d /run/fake
for number in $(seq 0 {last}); do [ -e /run/fake/gpu$number ] || mknod /run/fake/gpu$number c 1 3; done
cp /opt/simulated/slurm/*.conf /etc/slurm/
[ -S /run/munge/munge.socket.2 ] || runuser -u munge -- munged
"""


class Slurm:
    """Slurm on all hosts of a fleet that is up. It ends with the fleet."""

    def __init__(self, fleet: Fleet, accounting: bool = False) -> None:
        self.fleet = fleet
        self.accounting = accounting
        self.controller = fleet.hosts[0]

    def up(self) -> None:
        """Start Slurm, and return when every node is idle."""
        common.need_packages({**PACKAGES, **(ACCOUNTING if self.accounting else {})})
        hosts = self.fleet.hosts
        described = [f"NodeName={host}" for host in hosts]
        if len(hosts) > 1:
            described[-1] += f" CPUs={FEWER} SocketsPerBoard=1"
        words = {
            "controller": self.controller, "nodes": ",".join(hosts), "model": MODEL, "gpus": GPUS, "last": GPUS - 1,
            "accounting": (WITH_ACCOUNTING if self.accounting else WITHOUT_ACCOUNTING).format(controller=self.controller),
            "processors": PROCESSORS, "described": "\n".join(described),
        }  # fmt: skip
        for host in hosts:
            folder = self.fleet.plant(host) / "slurm"
            folder.mkdir(exist_ok=True)
            (folder / "slurm.conf").write_text(SLURM_CONF.format(**words))
            (folder / "gres.conf").write_text(GRES_CONF.format(**words))
            (folder / "cgroup.conf").write_text(f"CgroupPlugin={'cgroup/v1' if version() < (23, 11) else 'disabled'}\n")
            self.fleet.inside(host, "sh", "-c", PREPARE.format(**words))
        if self.accounting:
            (self.fleet.plant(self.controller) / "slurm/slurmdbd.conf").write_text(SLURMDBD_CONF.format(**words))
            self.client("sh", "-c", DATABASE)
            self.account("default", "root")
        self.fleet.inside(self.controller, "slurmctld")
        for host in hosts:
            self.fleet.inside(host, "slurmd")
        self.until_idle(*hosts)

    def client(self, *argv: str) -> str:
        """Return what a client command prints."""
        return self.fleet.inside(self.controller, *argv)

    def account(self, name: str, user: str, *words: str) -> None:
        """Add an account with a user to the accounting. `words`: more of the user, `qos=x` for example."""
        self.client("sacctmgr", "-i", "add", "account", name)
        self.client("sacctmgr", "-i", "add", "user", user, f"account={name}", *words)

    def until_idle(self, *hosts: str) -> None:
        until = time.monotonic() + UP_S
        while (states := self.states()) and any(states.get(host) != "idle" for host in hosts):
            if time.monotonic() > until:
                raise common.RigError(f"not idle after {UP_S:.0f} s: {states}")
            time.sleep(0.1)

    def states(self) -> dict[str, str]:
        """Return {node: state in sinfo's words}."""
        lines = self.client("sinfo", "-h", "-N", "-p", "all", "-o", "%N %T").splitlines()
        return dict(line.split() for line in lines)

    def jobs(self) -> list[str]:
        """Return the jobs that wait or run, one line each: number, state, name, nodes."""
        return self.client("squeue", "-h", "-o", "%i %T %j %N").splitlines()

    def drain(self, host: str, reason: str) -> None:
        self.client("scontrol", "update", f"nodename={host}", "state=drain", f"reason={reason}")

    def resume(self, host: str) -> None:
        self.client("scontrol", "update", f"nodename={host}", "state=resume")
        self.until_idle(host)


@functools.lru_cache(maxsize=1)
def version() -> tuple[int, int]:
    """Return the version of the installed Slurm, (22, 5)."""
    text = subprocess.run(["slurmd", "-V"], check=True, capture_output=True, text=True, env={"PATH": "/usr/sbin:/usr/bin"}).stdout
    major, minor = text.split()[-1].split(".")[:2]
    return int(major), int(minor)
