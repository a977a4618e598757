#!/bin/sh
# Fetches the programs that read what statistics write, and compares: nfdump unpacked, DuckDB and pandas in a virtual environment,
# all below FOLDER; nothing is installed. With CAPTURES=DIR also capture files of a folder are sent. Exit code: the test's;
# 2: a program can't be had.
#
# usage: test-peers.sh FOLDER
set -u
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:?usage: test-peers.sh FOLDER}" || exit 2
folder=$(cd "$1" && pwd) || exit 2
say() { echo "$*" >&2; }

if [ -n "${CAPTURES:-}" ]; then
    CAPTURES=$(cd "$CAPTURES" && pwd) || exit 2 # the test runs in another folder
    export CAPTURES
else
    unset CAPTURES
fi

nfdump() {
    "$here/fetch-peers.sh" "$folder" nfdump usr/bin/nfcapd
    [ -x "$folder/usr/bin/nfcapd" ]
}
# A new machine has no package lists.
if ! nfdump && ! { "$here/as-root.sh" apt-get -q update >&2 && nfdump; }; then
    say "nfdump can't be fetched: is there a way to Debian's packages?"
    exit 2
fi

# Other versions than those that are written down make another environment.
wanted=$here/test-peers.txt
if ! cmp -s "$wanted" "$folder/python/made-of.txt"; then
    say "fetching DuckDB and pandas (about a minute)"
    rm -rf "$folder/python"
    { python3 -m venv "$folder/python" && "$folder/python/bin/pip" install --quiet --requirement "$wanted"; } >&2 || {
        say "DuckDB and pandas can't be fetched; is there a way to a Python package index?"
        exit 2
    }
    cp "$wanted" "$folder/python/made-of.txt" || exit 2
fi

cd "$here/.." || exit 2
WIRESCOPE_PEERS=$folder cargo test --release --locked -p wirescope --test peers -- --nocapture
