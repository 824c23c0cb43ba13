#!/bin/bash
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Process 1 of a guest, on the overlay of the outer machine's root. What it is comes from the kernel's command line:
# rig.state (folder of the rig), rig.name, rig.address (management), rig.rails (address,address,...), rig.governor.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
for word in $(< /proc/cmdline); do
    case $word in rig.*=*) key=${word%%=*}; printf -v "rig_${key#rig.}" %s "${word#*=}" ;; esac
done
# shellcheck disable=SC2154
own=$rig_state/$rig_name
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/sshd /run/lock /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
ln -sf /proc/self/fd /dev/fd
mount -t tmpfs -o mode=700 tmpfs /root
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t ext4 /dev/vda /var/lib # what the guest keeps over a reboot

mkdir -m 700 /root/.ssh
cp "$rig_state/id_ed25519" "$rig_state/id_ed25519.pub" "$rig_state/known_hosts" /root/.ssh/
cp "$rig_state/id_ed25519.pub" /root/.ssh/authorized_keys
rm -f /etc/ssh/ssh_host_*
cp "$own/ssh_host_ed25519_key" "$rig_state/sshd_config" /etc/ssh/
chmod 600 /etc/ssh/ssh_host_ed25519_key /root/.ssh/id_ed25519
hostname "$rig_name"
cat "$own/machine-id" > /etc/machine-id
cat "$rig_state/hosts" > /etc/hosts
echo "$rig_name" > /etc/hostname
mount -t tmpfs -o mode=1777 tmpfs /var/tmp # hides the rig's own state

ip link set lo up
modprobe virtio_net
# Each address answers on its own link only.
sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
# shellcheck disable=SC2154
ip addr add "$rig_address" dev eth0
ip link set eth0 up
for module in rdma_rxe ib_uverbs ib_umad rdma_ucm; do modprobe "$module"; done
rail=0
# shellcheck disable=SC2154
for address in ${rig_rails//,/ }; do
    link=eth$((rail + 1))
    ip addr add "$address" dev $link
    ip link set $link mtu 4200
    ip link set $link up
    rdma link add mlx5_$rail type rxe netdev $link
    rail=$((rail + 1))
done
for module in acpi-cpufreq cpufreq_powersave cpufreq_ondemand; do modprobe "$module"; done
for policy in /sys/devices/system/cpu/cpufreq/policy*/scaling_governor; do
    # shellcheck disable=SC2154
    echo "$rig_governor" > "$policy"
done
ulimit -l unlimited
/usr/sbin/sshd -D -e &
read -r uptime _ < /proc/uptime
echo "RIG: sshd started at $uptime s"
mkfifo /run/never
exec 3<> /run/never
while :; do read -r <&3; done # bash reaps whatever is left to it
