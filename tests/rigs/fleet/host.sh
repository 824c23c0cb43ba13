#!/bin/bash
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# host.sh FLEET_DIR NAME: becomes process 1 of a host. Started by fleet.py in network, UTS, PID, IPC and mount
# namespaces of its own; $FLEET_DIR/NAME holds what the host keeps over a reboot, host.conf its options.
set -euo pipefail
fleet=$1 name=$2 own=$1/$2

# /proc is still the outside one: this is how the outside knows us.
read -r stat < /proc/self/stat
rest=${stat##*) }
# shellcheck disable=SC2086  # split into fields on purpose
set -- $rest
echo "${stat%% *} ${20} $(< /proc/sys/kernel/random/boot_id)" > "$own/init"
boot_id=$(< /proc/sys/kernel/random/uuid)

python=yes sudo=yes state_size='' state_dir='' overlays=()
# shellcheck source=/dev/null
. "$own/host.conf"

hostname "$name"
mount --make-rprivate /
mount -t tmpfs -o size=512m,mode=755 "$name" "$own/fs"
mkdir "$own"/fs/{upper,work,root}
mount -t overlay -o "lowerdir=/,upperdir=$own/fs/upper,workdir=$own/fs/work" overlay "$own/fs/root"
root=$own/fs/root
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=700 tmpfs "$root/root"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mkdir -p "$root/run/sshd" "$root/run/lock" "$root/opt/simulated"
mount --bind "$own/var-lib" "$root/var/lib"
mount --bind "$own/simulated" "$root/opt/simulated"
if [ -n "$state_size" ]; then
  mkdir -p "$root$state_dir"
  mount -t tmpfs -o "size=$state_size,mode=700" tmpfs "$root$state_dir"
fi
for overlay in "${overlays[@]}"; do # SOURCE:TARGET, the source's files over those of the target
  source=${overlay%%:*} target=${overlay#*:} scratch=$(mktemp -d "$own/fs/overlay.XXXX")
  mkdir "$scratch/upper" "$scratch/work"
  mount -t overlay -o "lowerdir=$source:$target,upperdir=$scratch/upper,workdir=$scratch/work" overlay "$root$target"
done
echo "$boot_id" > "$root/run/boot_id"
mount --bind "$root/run/boot_id" "$root/proc/sys/kernel/random/boot_id"

rm -f "$root"/etc/ssh/ssh_host_*
mount -t tmpfs -o mode=1777 tmpfs "$root/var/tmp" # hides the rigs' own state, other hosts' keys with it
mkdir -m 700 "$root/root/.ssh"
cp "$fleet/id_ed25519" "$fleet/id_ed25519.pub" "$root/root/.ssh/"
cp "$fleet/id_ed25519.pub" "$root/root/.ssh/authorized_keys"
cp "$own/ssh_host_ed25519_key" "$root/etc/ssh/"
cp "$fleet/sshd_config" "$root/etc/ssh/sshd_config"
# These grow with the fleet while the host runs.
touch "$root/root/.ssh/known_hosts" "$root/etc/hosts"
mount -o bind,ro "$fleet/known_hosts" "$root/root/.ssh/known_hosts"
mount -o bind,ro "$fleet/hosts" "$root/etc/hosts"
echo "$name" > "$root/etc/hostname"
cat "$own/machine-id" > "$root/etc/machine-id"
# A login without rights, which may sudo.
echo 'tester:x:4242:4242::/home/tester:/bin/bash' >> "$root/etc/passwd"
echo 'tester:x:4242:' >> "$root/etc/group"
echo 'tester:*:20000:0:99999:7:::' >> "$root/etc/shadow"
mkdir -p "$root/etc/sudoers.d" "$root/home/tester/.ssh"
(umask 226; echo 'tester ALL=(ALL:ALL) NOPASSWD: ALL' > "$root/etc/sudoers.d/tester")
cp "$fleet/id_ed25519.pub" "$root/home/tester/.ssh/authorized_keys"
chown -R 4242:4242 "$root/home/tester"
[ "$python" = yes ] || rm -f "$root"/usr/bin/python3* "$root"/usr/local/bin/python3*
[ "$sudo" = yes ] || rm -f "$root/usr/bin/sudo"

cd "$root"
mkdir -p mnt/outside
pivot_root . mnt/outside
umount -l /mnt/outside
cd /
# Process 1 stays when sshd is killed, and reaps what is left to it (bash waits for every child).
# shellcheck disable=SC2016
exec env -i PATH=/opt/simulated/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
  LANG=C.UTF-8 /bin/bash -c '/usr/sbin/sshd -D -e & mkfifo /run/never; exec 3<> /run/never; while :; do read -r <&3; done'
