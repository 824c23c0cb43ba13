#!/bin/bash
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# build.sh DIR: Debian's stock kernel, a first-stage initrd with the modules that these guests and that of ../machine need, and an ACPI table per
# number of CPUs with which the stock acpi-cpufreq driver binds. The guests' root is this machine's own.
set -euo pipefail
mkdir -p "$1"
cd "$1"

package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
[ -n "$package" ] || { apt-get update -q > /dev/null; package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ {print $2; exit}'); }
apt-get download -q "$package" 2> /dev/null # only unpacked, never installed
mkdir kernel
dpkg-deb -x linux-image-*.deb kernel
release=$(ls kernel/lib/modules)
cp "kernel/boot/vmlinuz-$release" vmlinuz
depmod -b kernel "$release"

mkdir -p initrd/{bin,mnt,proc,sys,dev} "initrd/lib/modules/$release"
for module in virtio_pci virtio_net virtio_blk virtio_rng 9p 9pnet_virtio overlay ext4 crc32c_generic crc32_generic \
    rdma_rxe ib_uverbs ib_umad rdma_ucm acpi-cpufreq cpufreq_powersave cpufreq_ondemand sch_tbf sch_netem \
    nvme ie31200_edac ipmi_si ipmi_devintf; do
    modprobe -d kernel -S "$release" --show-depends "$module" | awk '$1 == "insmod" {print $2}'
done | sort -u | while read -r file; do
    install -D -m 644 "$file" "initrd/lib/modules/${file##*/lib/modules/}"
done
cp kernel/lib/modules/"$release"/modules.{builtin,builtin.modinfo,order} "initrd/lib/modules/$release/"
depmod -b initrd "$release"
cp /bin/busybox initrd/bin/
for applet in sh mount modprobe mkdir switch_root cat cp ip; do ln -s busybox "initrd/bin/$applet"; done
cat > initrd/init << 'INIT'
#!/bin/sh
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in virtio_pci virtio_blk ext4 9pnet_virtio 9p overlay; do modprobe $module; done
mkdir -p /mnt/outside /mnt/upper /mnt/root
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=524288 outside /mnt/outside
mount -t tmpfs -o size=60% tmpfs /mnt/upper
mkdir /mnt/upper/files /mnt/upper/work
mount -t overlay -o lowerdir=/mnt/outside,upperdir=/mnt/upper/files,workdir=/mnt/upper/work overlay /mnt/root
mkdir -p /mnt/root/lib/modules
mount -t tmpfs tmpfs /mnt/root/lib/modules
cp -a /lib/modules/. /mnt/root/lib/modules/
for word in $(cat /proc/cmdline); do case $word in rig.init=*) init=${word#rig.init=} ;; esac; done
for folder in proc sys dev; do mount -o move /$folder /mnt/root/$folder; done
exec switch_root /mnt/root "$init"
INIT
chmod +x initrd/init
(cd initrd && find . | cpio -o -H newc --quiet | gzip -1) > initrd.img

for cpus in 1 2 4; do
    {
        echo 'DefinitionBlock ("", "SSDT", 1, "RIG", "CPUFREQ", 1) {'
        for ((cpu = 0; cpu < cpus; cpu++)); do
            name=$(printf '\\_SB.CPUS.C%03X' $cpu)
            # Three P-states, switched through a byte-wide register that takes any value: the scratch register of COM2.
            cat << ASL
    External ($name, ProcessorObj)
    Scope ($name) {
        Name (_PPC, 0)
        Name (_PCT, Package () {
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x2FF) },
            ResourceTemplate () { Register (SystemIO, 8, 0, 0x2FF) }
        })
        Name (_PSS, Package () {
            Package () { 3000, 100000, 10, 10, 0x1E, 0x1E },
            Package () { 2000, 60000, 10, 10, 0x14, 0x14 },
            Package () { 1000, 30000, 10, 10, 0x0A, 0x0A }
        })
    }
ASL
        done
        echo '}'
    } > "cpufreq-$cpus.asl"
    iasl -ve -p "cpufreq-$cpus" "cpufreq-$cpus.asl" > /dev/null
done
echo "$release" > release
rm -rf kernel initrd ./*.deb ./*.asl
