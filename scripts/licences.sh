#!/bin/sh
# Holds what is built into Wirescope against deny.toml (licences, sources, bans), and the notices of the package,
# packaging/THIRD-PARTY.txt, against Cargo.lock: by cargo-deny and cargo-about, which are built from crates.io the first time.
# fuzz/ and models/ are never shipped: there only the sources count, since their code runs on our machines.
#
# usage: licences.sh check | write       write: makes the notices anew
# The tools are kept in $TOOLS_DIR, else target/tools.
set -u
cd "$(dirname "$0")/.." || exit 2
tools=$(realpath -m "${TOOLS_DIR:-target/tools}")
notices=packaging/THIRD-PARTY.txt
made=$(mktemp)
trap 'rm -f "$made"' EXIT

# Not optimised, since they are built on two cores; but for what compares the texts of licences.
export CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
export CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_STRIP=none CARGO_PROFILE_RELEASE_PANIC=unwind

quick=
for crate in spdx regex regex-automata aho-corasick memchr unicode-normalization rayon-core; do
    quick="$quick --config profile.release.package.$crate.opt-level=2"
done

# tool NAME VERSION [OPTION...]: builds it unless that version is there.
tool() {
    name=$1
    version=$2
    shift 2
    "$tools/bin/$name" --version 2>/dev/null | grep -qF " $version" && return
    echo "building $name $version (some minutes, once)"
    # shellcheck disable=SC2086 # a list of options
    CARGO_TARGET_DIR=$tools/build cargo install --quiet --locked $quick --root "$tools" --version "$version" "$@" "$name" || exit 2
}

# deny MANIFEST CHECK...: one line for each fault.
deny() {
    manifest=$1
    shift
    "$tools/bin/cargo-deny" --manifest-path "$manifest" --config deny.toml --locked check --hide-inclusion-graph "$@" || {
        echo "$manifest: not allowed by deny.toml, see above"
        exit 1
    }
}

tool cargo-deny 0.20.2
deny Cargo.toml licenses bans sources
deny fuzz/Cargo.toml sources
deny models/Cargo.toml sources

tool cargo-about 0.9.3 --features cli
"$tools/bin/cargo-about" generate --locked --fail --config packaging/about.toml --manifest-path crates/wirescope/Cargo.toml \
    --output-file "$made" packaging/about.hbs || exit 1

# Of a crate that brings no text of its licence, the holder as its repository names him: one line for each such crate.
named=$(mktemp)
awk '/^=====/ { crates = "" } /^  [^ ]+ [0-9][^ ]* / { crates = crates $1 " " }
    $0 == "Copyright (c) <year> <copyright holders>" && crates == "chrono etherparse mlua-sys rcgen " {
        $0 = "Copyright (c) 2014--2026, Kang Seonghoon and contributors\nCopyright (c) 2024 Julian Schmid\nCopyright (c) 2019-2021 A. Orlenko\nCopyright (c) 2017 rlua\nCopyright (c) 2019-2026 est31 and contributors"
    }
    $0 ~ "^Copyright .c. <year> <owner>" && crates == "sha1_smol " {
        $0 = "Copyright (c) 2018, the respective contributors, as shown by the AUTHORS file: Armin Ronacher, Koka El Kiwi\nCopyright (c) 2006-2009 Graydon Hoare\nCopyright (c) 2009-2013 Mozilla Foundation"
    }
    { print }' "$made" >"$named" && mv "$named" "$made" || exit 1
case ${1:-check} in
write)
    cp "$made" "$notices"
    chmod 644 "$notices"
    echo "$notices is written"
    ;;
*)
    if ! diff -u "$notices" "$made"; then
        echo "$notices is not what Cargo.lock asks for; make licences WRITE=1 writes it anew"
        exit 1
    fi
    echo "licences and sources are allowed, and $notices is up to date"
    ;;
esac
