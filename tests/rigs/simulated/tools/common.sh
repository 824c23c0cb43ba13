# Sourced by the simulated tools: which node they play, and with which faults.
# A tool at NODE/bin/TOOL reads NODE/node.conf; without one it plays a healthy node of eight H200.
NAME="NVIDIA H200" GPUS=8 MEMORY=143771 DRIVER=580.159.04 CUDA=13.0 VBIOS=96.00.A5.00.1A IDENTITY=1
BUSBW=478 TFLOPS=705 FAULTS="" SLEEP=0
here=${0%/*}
if [ -r "${0%/bin/*}/node.conf" ]; then . "${0%/bin/*}/node.conf"; fi
MARK="simulated by gpufleet.acceptance"
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
