#!/bin/bash
# Runs the test programs that are built, several at a time: many of them wait more than they compute. What one prints comes out
# whole, when it has ended. Exit code: 0 where all passed, else 101, as of `cargo test`.
#
# usage: run-tests.sh [RUNNER]      RUNNER: a program that runs them, such as as-root.sh
set -u -o pipefail
runner=${1:-}
at_once=$((2 * $(nproc) + 1))

work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

# One line each: the folder of its package, where it runs, and the program.
programs() {
    cargo test --release --locked --workspace --no-run --message-format=json 2>/dev/null |
        sed -n '/"profile":{[^}]*"test":true}/s/.*"manifest_path":"\([^"]*\)\/Cargo\.toml".*"executable":"\([^"]*\)".*/\1 \2/p'
}

# Runs one of them. A program that ends without a result is a failure that says so.
run_one() {
    folder=$1 program=$2
    output=$(mktemp "$WORK/output.XXXXXX")
    (cd "$folder" && CARGO_MANIFEST_DIR=$folder exec ${RUNNER:+"$RUNNER"} "$program") >"$output" 2>&1
    code=$?
    [ "$code" -eq 0 ] || echo "${folder##*/}/${program##*/}: exit code $code" >>"$WORK/failed"
    {
        flock 9
        echo "     Running ${folder##*/}: ${program##*/}"
        cat "$output"
        if ! grep -q '^test result:' "$output"; then
            echo "test ${program##*/} ... FAILED"
            echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored; it ended without a result'
        fi
    } 9>"$WORK/lock"
    rm -f "$output"
}
export -f run_one
export WORK=$work RUNNER=$runner

programs >"$work/list"
if [ ! -s "$work/list" ]; then
    echo 'no test program was built' >&2
    exit 101
fi
# shellcheck disable=SC2016 # the shell that xargs starts expands these
xargs -P "$at_once" -L 1 bash -c 'run_one "$1" "$2"' run_one <"$work/list" || exit
cargo test --release --locked --workspace --doc --no-fail-fast || echo 'doc tests: failed' >>"$work/failed"
if [ -s "$work/failed" ]; then
    echo 'failed:'
    cat "$work/failed"
    exit 101
fi
