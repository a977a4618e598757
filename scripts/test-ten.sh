#!/bin/sh
# Builds a fresh clone of what is committed, then runs `make test` in it ten times in a row beside two busy loops. The last line says how many passed:
# `test_passes N`. Of each run the end of its output is kept, in target/test-ten/N.log. Exit code: 0 where all passed, else 1; 2: refused.
#
# usage: test-ten.sh [RUNS]
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/.." && pwd)
runs=${1:-10}
log_bytes_max=200000 # of one run
busy_loops=2

case $runs in
'' | *[!0-9]* | 0) echo "test-ten.sh: '$runs' is no number of runs; write e.g. test-ten.sh 10" >&2 && exit 2 ;;
esac
if [ -n "$(git -C "$root" status --porcelain)" ]; then
    echo "what isn't committed is not tested: $(git -C "$root" status --porcelain | head -n 3 | tr '\n' ' ')"
fi
logs=${CARGO_TARGET_DIR:-$root/target}/test-ten
unset CARGO_TARGET_DIR # the clone builds into a folder of its own
if [ -n "${CAPTURES:-}" ]; then
    CAPTURES=$(cd "$CAPTURES" && pwd) || exit 2
    export CAPTURES
fi
clone=$(mktemp -d "${TMPDIR:-/tmp}/test-ten.XXXXXX") || exit 2
loops=
finish() {
    # shellcheck disable=SC2086 # a list of numbers
    [ -n "$loops" ] && kill $loops 2>/dev/null
    rm -rf "$clone"
}
trap finish EXIT
trap 'exit 2' INT TERM HUP

mkdir -p "$logs" && rm -f "$logs"/*.log
git clone -q --no-hardlinks "$root" "$clone/wirescope" || exit 2
echo 'building (about 5 minutes)'
(cd "$clone/wirescope" && cargo test --quiet --release --locked --workspace --no-run) || exit 2
while [ "$busy_loops" -gt 0 ]; do
    sh -c 'while :; do :; done' &
    loops="$loops $!"
    busy_loops=$((busy_loops - 1))
done

passed=0
number=0
while [ "$number" -lt "$runs" ]; do
    number=$((number + 1))
    echo "run $number of $runs, from $(date -u +%H:%M:%S)"
    # A pipe has the exit code of its last command, so that of make goes through a file.
    { make -C "$clone/wirescope" test 2>&1; echo $? >"$clone/code"; } | tail -c "$log_bytes_max" >"$logs/$number.log"
    code=$(cat "$clone/code")
    if [ "$code" -eq 0 ]; then
        passed=$((passed + 1))
    else
        echo "run $number failed with exit code $code; $logs/$number.log:"
        grep -aE '^test .* FAILED|^error|panicked at' "$logs/$number.log" | head -n 20
    fi
done
echo "test_passes $passed"
[ "$passed" -eq "$runs" ]
