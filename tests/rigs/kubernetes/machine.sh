#!/bin/bash
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# machine.sh FOLDER NAME CGROUP PROGRAMS: a machine of the cluster with network, UTS, PID, IPC, mount and cgroup namespaces of
# its own, an overlay of this machine's / as root and FOLDER as its /rig. It ends, with all in it, when its process 1 ends.
set -euo pipefail
folder=$1 name=$2 cgroup=$3 programs=$4

if [ -z "${RIG_INSIDE:-}" ]; then
  # Its own branch of every cgroup hierarchy, to be the root of what is inside.
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then # version 2 alone
    for controller in $(< /sys/fs/cgroup/cgroup.controllers); do
      echo "+$controller" > /sys/fs/cgroup/cgroup.subtree_control
    done
    mkdir -p "/sys/fs/cgroup/$cgroup"
    echo $$ > "/sys/fs/cgroup/$cgroup/cgroup.procs"
  else
    for hierarchy in /sys/fs/cgroup/*/; do
      mkdir -p "$hierarchy$cgroup"
      if [ -e "$hierarchy$cgroup/cpuset.cpus" ]; then # empty at birth, and takes no process then
        cat "$hierarchy/cpuset.cpus" > "$hierarchy$cgroup/cpuset.cpus"
        cat "$hierarchy/cpuset.mems" > "$hierarchy$cgroup/cpuset.mems"
        echo 1 > "$hierarchy$cgroup/cgroup.clone_children"
      fi
      echo $$ > "$hierarchy$cgroup/cgroup.procs"
    done
  fi
  RIG_INSIDE=yes exec unshare --net --uts --mount --ipc --pid --cgroup --fork --kill-child=KILL "$0" "$@"
fi

# /proc is still the outside one: this is how the outside knows us.
read -r stat < /proc/self/stat
rest=${stat##*) }
# shellcheck disable=SC2086  # split into fields on purpose
set -- $rest
echo "${stat%% *} ${20} $(< /proc/sys/kernel/random/boot_id)" > "$folder/init.new"

hostname "$name"
mount --make-rprivate /
mkdir -p "$folder/root"
mount -t tmpfs -o size=512m,mode=755 "$name" "$folder/root"
mkdir "$folder"/root/{upper,work,root}
mount -t overlay -o "lowerdir=/,upperdir=$folder/root/upper,workdir=$folder/root/work" overlay "$folder/root/root"
root=$folder/root/root
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mount -t cgroup2 cgroup "$root/sys/fs/cgroup"
  mkdir "$root/sys/fs/cgroup/init" # a branch with children of its own holds no processes
  echo 0 > "$root/sys/fs/cgroup/init/cgroup.procs"
  for controller in $(< "$root/sys/fs/cgroup/cgroup.controllers"); do
    echo "+$controller" > "$root/sys/fs/cgroup/cgroup.subtree_control"
  done
else
  mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
  while IFS=: read -r _ controllers _; do
    case $controllers in
      '') kind=cgroup2 options='' at=unified ;;
      name=*) kind=cgroup options=none,$controllers at=${controllers#name=} ;;
      *) kind=cgroup options=$controllers at=$controllers ;;
    esac
    mkdir "$root/sys/fs/cgroup/$at"
    mount -t $kind ${options:+-o "$options"} cgroup "$root/sys/fs/cgroup/$at"
    case $at in *,*) for one in ${at//,/ }; do ln -s "$at" "$root/sys/fs/cgroup/$one"; done ;; esac
  done < /proc/self/cgroup
fi
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mkdir "$root/run/lock" "$root/run/netns"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=1777 tmpfs "$root/var/tmp" # hides the rigs' own state
mount -t tmpfs -o mode=700 tmpfs "$root/root"
mkdir -p "$folder/lib" "$folder/log" "$root/rig" "$root/opt/rig/bin"
mount --bind "$folder" "$root/rig"
mount --bind "$folder/lib" "$root/var/lib"
mount --bind "$folder/log" "$root/var/log"
mount -o bind,ro "$programs" "$root/opt/rig/bin"
echo "$name" > "$root/etc/hostname"
rm -f "$root/etc/resolv.conf" "$root/etc/machine-id"
cp "$folder/resolv.conf" "$folder/machine-id" "$root/etc/"
printf '127.0.0.1 localhost\n' > "$root/etc/hosts"

cd "$root"
mkdir -p mnt/outside
pivot_root . mnt/outside
umount -l /mnt/outside
cd /
mount --make-rshared / # as on a real node: pods may ask for mounts that propagate
mkfifo /run/never
mv /rig/init.new /rig/init # from here on it can be used
# Process 1 reaps what is left to it (bash waits for every child).
# shellcheck disable=SC2016
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  /bin/bash -c 'exec 3<> /run/never; while :; do read -r <&3; done'
