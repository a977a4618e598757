#!/bin/sh
# Builds and runs every test: as root directly, else the test programs by sudo where that needs no question. Without either,
# the live tests say that they were skipped. Exit code: the test runner's.
set -u
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.." || exit 2
PATH="$PATH:/usr/sbin:/sbin"
export PATH

if [ -n "${CAPTURES:-}" ]; then
    CAPTURES=$(cd "$CAPTURES" && pwd) || exit 2 # the tests run in other folders
    export CAPTURES
else
    unset CAPTURES
fi

echo 'building Wirescope and its tests (about 5 minutes the first time, seconds later)'
cargo test --release --locked --workspace --no-run || exit

runner=
if [ "$(id -u)" -ne 0 ]; then
    if sudo -n true 2>/dev/null; then
        echo 'the test programs run by sudo: the live tests need root'
        runner=$here/as-root.sh
    else
        echo 'not root, and sudo needs a password: the live tests will be skipped'
    fi
fi
echo "running the tests (some 6 minutes on 2 cores)${CAPTURES:+; capture files from $CAPTURES}"
exec "$here/run-tests.sh" $runner
