#!/bin/sh
# Runs scope-ring's concurrent tests under ThreadSanitizer, after a race on purpose that it must find. The standard library is
# not instrumented: what it synchronises out of sight would be reported though it is right, hence the two exceptions below.
#
# scope-ring's locks wait in a form that the sanitizer sees (`--cfg sanitized`), and its lanes write by ordinary stores: the
# sanitizer doesn't see the others.
#
# usage: tsan.sh       target folder: $TSAN_TARGET_DIR, else target/tsan
set -u
cd "$(dirname "$0")/.." || exit 2
target=x86_64-unknown-linux-gnu
case $(rustc -vV | sed -n 's/^host: //p') in
$target) ;;
*) echo "skipped: ThreadSanitizer is set up for $target only"; exit 0 ;;
esac

export CARGO_TARGET_DIR="${TSAN_TARGET_DIR:-target/tsan}"
export RUSTC_BOOTSTRAP=1 # the sanitizer's switch is unstable; the compiler is the same
export RUSTFLAGS='-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg sanitized'
export WIRESCOPE_RING_FORM=plain
tests='stress known_defects follow readers search shares'
log=$(mktemp)
suppressions=$(mktemp)
trap 'rm -f "$log" "$suppressions"' EXIT
# Out of the standard library: the test harness's own channel and closures, and the end of an Arc, which rests on a fence that the sanitizer
# doesn't know.
printf 'race:test::event::CompletedTest\nrace:core::option::Option<test::run_test\nrace:alloc::sync::Arc*drop_slow\n' >"$suppressions"
export TSAN_OPTIONS="halt_on_error=1 exitcode=66 suppressions=$suppressions"

run() { cargo test --release --locked --target $target -p scope-ring --test "$@"; }

echo 'building scope-ring and its tests for ThreadSanitizer'
run sanitizer >"$log" 2>&1
if ! grep -q 'WARNING: ThreadSanitizer: data race' "$log"; then
    cat "$log"
    echo 'sanitizer: the race on purpose was not found'
    exit 1
fi
echo 'the race on purpose is found'

for test in $tests; do
    run "$test" -- --test-threads 1 >"$log" 2>&1 || { cat "$log"; echo "sanitizer: $test failed"; exit 1; }
    grep '^test result:' "$log"
done
echo "sanitizer: the race on purpose found, none in $tests"
