# shellcheck shell=bash
# For scripts with programs that print nothing for a minute: sourced, it prints a line every ten seconds until the script ends.
(while sleep 10 &>/dev/null; do echo "  still at work, $SECONDS s"; done) &
beat=$!
trap 'kill "$beat" 2>/dev/null || true' EXIT
