#!/bin/bash
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Process 1 of the guest, on the overlay of the outer machine's root: runs inside.py and switches the guest off. From the kernel's command
# line: rig.checkout, rig.python.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
for word in $(< /proc/cmdline); do
    case $word in rig.*=*) key=${word%%=*}; printf -v "rig_${key#rig.}" %s "${word#*=}" ;; esac
done
mount -t tmpfs tmpfs /run
# shellcheck disable=SC2154
[[ $rig_checkout == /tmp/* ]] || mount -t tmpfs tmpfs /tmp # without what the outer machine has there
rm -f /.dockerenv # of the outer machine, where that is a container
exec > /dev/ttyS0 2>&1
modprobe nvme
# shellcheck disable=SC2154
PYTHONPATH=$rig_checkout/.collections "$rig_python" "$rig_checkout/tests/rigs/machine/inside.py"
poweroff -f
