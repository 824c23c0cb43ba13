#!/bin/sh
# shellcheck disable=SC2154
# Simulated nvidia-bug-report.sh, as awkward as the real one: it wants root, writes nvidia-bug-report.log.gz into the current folder (an old
# one becomes .old.gz), adds .gz to the name that --output-file gives, appends gzip members as it goes, and hangs on a GPU that is lost,
# half way, unless --safe-mode leaves that part out.
# shellcheck source=tests/rigs/simulated/tools/common.sh disable=SC2154
. "${0%/*}/common.sh"
base=nvidia-bug-report.log safe=0 flags="$*"
usage() { echo "${0##*/} [OPTION]..."; echo "    --output-file <file>"; echo "    --safe-mode"; echo "    --extra-system-data"; }
while [ "$1" != "" ]; do
    case $1 in
    -o | --output-file) if [ -z "$2" ]; then usage; exit 1; fi; base=$2; shift ;;
    --safe-mode) safe=1 ;;
    --extra-system-data) ;;
    -h | --help) usage; exit ;;
    *) usage; exit 1 ;;
    esac
    shift
done
if [ "$(id -u)" -ne 0 ]; then echo "ERROR: Please run ${0##*/} as root."; exit 1; fi
log=$base.gz
if [ -f "$log" ]; then mv "$log" "$base.old.gz"; fi
touch "$log" 2>/dev/null || { echo "ERROR: Working directory is not writable"; exit 1; }
temporary=${TMPDIR:-/tmp}/nvbrtesttemp.$$
touch "$temporary" || { echo "ERROR: The directory ${TMPDIR:-/tmp} is not writable."; exit 1; }
add() { gzip -c >>"$log"; }
printf 'Running %s...' "${0##*/}"
printf 'Start of NVIDIA bug report log file. %s\ncommand line flags: %s\n' "$MARK" "$flags" | add
if fault bug_report_slow; then sleep "$value"; fi
if fault bug_report_large; then head -c "$((value << 20))" /dev/urandom | add; fi
if [ "$safe" = 0 ] && { fault gpu_lost || fault bug_report_hang; }; then
    trap '' TERM
    while :; do sleep 1000; done
fi
"${0%/*}/nvidia-smi" -q -x 2>&1 | add
printf 'End of NVIDIA bug report log file.\n' | add
echo " complete."
rm -f "$temporary"
