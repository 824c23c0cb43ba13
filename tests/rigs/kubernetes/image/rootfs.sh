#!/bin/bash
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# rootfs.sh DIR SUITE PACKAGE,PACKAGE SOURCE.c: Debian with these packages in DIR, and SOURCE built with its mpicc as
# DIR/opt/simulated/bin/collective. The compiler is gone from DIR when it is done. Run in a mount namespace of its own.
set -euo pipefail
dir=$1 suite=$2 packages=$3 source=$4
mount --make-rprivate /
debootstrap --variant=minbase --include="$packages" "$suite" "$dir/root"
mkdir -p "$dir"/{upper,work,compiler} "$dir/root/opt/simulated/bin"

mount -t overlay -o "lowerdir=$dir/root,upperdir=$dir/upper,workdir=$dir/work" overlay "$dir/compiler"
mount --rbind /dev "$dir/compiler/dev"
mount -t proc proc "$dir/compiler/proc"
cp -L /etc/resolv.conf "$dir/compiler/etc/resolv.conf"
cp "$source" "$dir/compiler/tmp/collective.c"
DEBIAN_FRONTEND=noninteractive chroot "$dir/compiler" apt-get install -y -q --no-install-recommends gcc libc6-dev libopenmpi-dev
chroot "$dir/compiler" mpicc -O2 -Wall -Werror -o /tmp/collective /tmp/collective.c
cp "$dir/compiler/tmp/collective" "$dir/root/opt/simulated/bin/collective"
umount -l "$dir/compiler"
rm -rf "$dir/upper" "$dir/work" "$dir/compiler"

rm -rf "$dir"/root/usr/share/{doc,man,locale} "$dir"/root/var/lib/apt/lists "$dir"/root/var/cache/* "$dir"/root/dev/*
