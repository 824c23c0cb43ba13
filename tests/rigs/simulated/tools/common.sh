# Sourced by the simulated tools: which node they play, and with which faults.
# A tool at NODE/bin/TOOL reads NODE/node.conf; without one it plays a healthy node of eight H200.
NAME="NVIDIA H200" GPUS=8 MEMORY=143771 DRIVER=580.159.04 CUDA=13.0 VBIOS=96.00.A5.00.1A IDENTITY=1
BUSBW=478 TFLOPS=705 FAULTS="" SLEEP=0
here=${0%/*}
if [ -r "${0%/bin/*}/node.conf" ]; then . "${0%/bin/*}/node.conf"; fi
MARK="simulated by gpufleet.acceptance"
# DEVICE_FILES: a process has those GPUs whose device files it may open, as in a container; amd-smi reads /sys, and shows the others too.
if [ "${DEVICE_FILES:-}" ]; then
    case ${0##*/} in
    amd-smi) ;;
    *)
        GPUS=0
        for file in /dev/dri/renderD*; do
            if [ -r /dev/kfd ] && [ -w /dev/kfd ] && [ -r "$file" ] && [ -w "$file" ]; then GPUS=$((GPUS + 1)); fi
        done ;;
    esac
fi
# fault NAME: true when the node has it; the value behind = is in $value.
fault() {
    for word in $FAULTS; do
        case $word in
        "$1") value=""; return 0 ;;
        "$1="*) value=${word#*=}; return 0 ;;
        esac
    done
    return 1
}
# later_gpus=N, later_identity, later_machine: from the second look at all GPUs on (`nvidia-smi -q -x`, which the first stage asks once)
# the node has fewer GPUs, other GPUs, or another machine-id.
case " $FAULTS" in
*" later_"*)
    node=${0%/bin/*}
    looks=$(cat "$node/looks" 2>/dev/null || echo 0)
    case "${0##*/} $*" in "nvidia-smi -q -x" | "amd-smi static --json") looks=$((looks + 1)); echo $looks >"$node/looks" ;; esac
    if [ "$looks" -ge 2 ]; then
        if fault later_gpus; then GPUS=$value; fi
        if fault later_identity; then IDENTITY=$((IDENTITY + 5000)); fi
        if fault later_machine; then printf '%032x\n' $((IDENTITY + 5000)) >"$node/root/etc/machine-id"; fi
    fi ;;
esac
# between:FAULT and after:FAULT: the fault is there from the second or third look at all GPUs on, which are those before and after the first
# test of the second stage.
case " $FAULTS" in
*" after:"* | *" between:"*)
    node=${0%/bin/*}
    seen=$(cat "$node/seen" 2>/dev/null || echo 0)
    case "${0##*/} $*" in "nvidia-smi -q -x" | "amd-smi static --json") seen=$((seen + 1)); echo $seen >"$node/seen" ;; esac
    words=""
    for word in $FAULTS; do
        case $word in
        between:*) if [ "$seen" -ge 2 ]; then words="$words ${word#between:}"; fi ;;
        after:*) if [ "$seen" -ge 3 ]; then words="$words ${word#after:}"; fi ;;
        *) words="$words $word" ;;
        esac
    done
    FAULTS=$words ;;
esac
# xid=TEXT, with _ for blanks: the driver logs an Xid of the last GPU while the first test of nccl-tests, or a leg of a soak, runs, of a process that is older;
# xid_own=TEXT: of the test itself.
case ${0##*/} in
all_reduce_perf | python3-soak)
    text="" pid=1
    if fault xid; then text=$value; elif fault xid_own; then text=$value pid=$$; fi
    if [ -n "$text" ]; then
        printf '4,9,99000000,-;NVRM: Xid (PCI:0000:%02x:00): %s, pid=%d, name=python3, %s\n' $((26 + 7 * (GPUS - 1))) "${text%%_*}" $pid \
            "$(echo "${text#*_}" | tr _ ' ')" >>"${0%/bin/*}/root/dev/kmsg"
    fi
    # amd_log=TEXT: the same of amdgpu, about the last GPU.
    if fault amd_log; then
        printf '3,9,99000000,-;amdgpu 0000:%02x:00.0: amdgpu: %s\n' $((5 + 32 * (GPUS - 1))) "$(echo "$value" | tr _ ' ')" >>"${0%/bin/*}/root/dev/kmsg"
    fi ;;
esac
