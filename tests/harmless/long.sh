#!/bin/sh
# The watch's promise to change nothing, tried at length on every Python that is named: random programs, leaks
# by the million, and threads that do everything at once. An hour on two cores for each of them.
#
#   tests/harmless/long.sh PART LOGS PYTHON...
#
# PART is programs, memory, threads or all; LOGS a folder for what each wrote. SEEDS (100000), LEAKS
# (3000000), RUNS (100) and JOBS (all cores) say how much. Each Python needs NumPy, and pytest for the threads.
set -u
cd "$(dirname "$0")/../.."
part=$1 logs=$2
shift 2
seeds=${SEEDS:-100000} leaks=${LEAKS:-3000000} runs=${RUNS:-100} jobs=${JOBS:-$(nproc)}
mkdir -p "$logs"
failed=$logs/failed
: >"$failed"
export PYTHONPATH="${PYTHONPATH:-$PWD/python}" RUNS="$runs"

# Runs a command, its output in a log, and notes if it failed.
try() {
    log=$logs/$1.log
    shift
    "$@" >"$log" 2>&1 || echo "$log" >>"$failed"
}

version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }
has_torch() { "$1" -c 'import torch' 2>/dev/null; }

programs() {
    for python; do
        try "programs-$(version "$python")" \
            "$python" tests/harmless/compare.py --seeds "$seeds" --jobs "$jobs"
        if has_torch "$python"; then
            try "programs-$(version "$python")-torch" \
                "$python" tests/harmless/compare.py --seeds "$((seeds / 5))" --torch --jobs "$jobs"
        fi
    done
}

memory() {
    for python; do
        kinds="array view bytearray unpickled subclass"
        ! has_torch "$python" || kinds="$kinds tensor tensor-view parameter graph storage"
        for kind in $kinds; do
            try "memory-$(version "$python")-$kind" \
                "$python" tests/harmless/memory.py --kind "$kind" --count "$leaks" &
        done
        for kind in class distinct; do
            try "memory-$(version "$python")-$kind" \
                "$python" tests/harmless/memory.py --kind "$kind" --count 100000 &
        done
    done
    wait
}

threads() {
    for python; do
        for name in sixteen_threads interrupts finalizers the_end; do
            try "threads-$(version "$python")-$name" \
                "$python" -m pytest tests/harmless/test_threads.py -q -p no:cacheprovider -k "$name" &
        done
    done
    wait
}

case $part in
programs | memory | threads) "$part" "$@" ;;
all) programs "$@"; memory "$@"; threads "$@" ;;
*) echo "long.sh: no part is called $part: programs, memory, threads or all" >&2 && exit 2 ;;
esac
for log in "$logs"/*.log; do
    echo "== $(basename "$log" .log)"
    grep -vE '^ *$|^[.]+ |^==' "$log" | tail -12
done
test ! -s "$failed" || { echo "failed:" && cat "$failed" && exit 1; }
