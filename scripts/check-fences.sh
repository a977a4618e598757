#!/bin/sh
# Disassembles scope-ring's release build and checks what a commit and a seal do last. On x86-64 a release store is an ordinary
# one, so that what can be seen is the order of the stores, and the `sfence` that non-temporal stores need before it.
#
# commit, seal   the committed word (8 bytes at offset 8 of the segment's record) is stored after all else; in seal, only the
#                locked give-back of the owner's pin follows
# with NT stores somewhere in scope-ring: `sfence`, or a call of a function that has one, comes before that store, and no NT
#                store between the two
#
# usage: check-fences.sh [libscope_ring.rlib]       without it, the release build in the target folder is made and taken
set -u
cd "$(dirname "$0")/.." || exit 2
library=${1:-}
if [ "$(uname -m)" != x86_64 ]; then
    echo 'skipped: the check reads x86-64 only'
    exit 0
fi
command -v objdump >/dev/null 2>&1 || { echo 'no objdump: install binutils' >&2; exit 2; }
if [ -z "$library" ]; then
    cargo build --release --locked -p scope-ring >&2 || exit 2
    library=${CARGO_TARGET_DIR:-target}/release/libscope_ring.rlib
fi
[ -f "$library" ] || { echo "no $library: build scope-ring first" >&2; exit 2; }

objdump -d -r --no-show-raw-insn -C "$library" 2>/dev/null | awk '
    # A function begins; its name is what stands between the outer < and >.
    /^[0-9a-f]+ <.*>:$/ { name = $0; sub(/^[0-9a-f]+ </, "", name); sub(/>:$/, "", name); lines = 0; next }
    name == "" { next }
    {
        text = $0
        sub(/^ *[0-9a-f]+:[ \t]*/, "", text)
        body[name, ++count[name]] = text
        if (text ~ /^v?movnt(dq|i|ps|pd|q)/) { nt[name] = 1; nt_stores++ }
        if (text ~ /^sfence/) fences[name] = 1
    }
    # Stores the committed word, as far as form tells: a 64-bit register to offset 8 of something that is not the stack.
    function is_word(text) { return text ~ /^mov +%r[a-z0-9]+,0x8\(%r/ && text !~ /^mov +%r[a-z0-9]*[dwb],/ && text !~ /\(%rsp/ }
    function is_store(text) { return text ~ /^v?mov[a-z0-9]* .*,-?(0x[0-9a-f]+)?\(%r[^)]*\)( .*)?$/ && text !~ /\(%r[sb]p/ }
    function is_fence(text, other) {
        if (text ~ /^sfence/) return 1
        for (other in fences) if (index(text, other) && text ~ /R_X86_64|call/) return 1
        return 0
    }
    function calls(own, other, at) {
        for (at = 1; at <= count[own]; at++) if (index(body[own, at], other) && body[own, at] ~ /R_X86_64|call/) return 1
        return 0
    }
    # Where the step stores the word: in the writer, unless that calls the protocol. A copy that nobody calls may stand beside.
    function place_of(step) {
        return calls("scope_ring::writer::LaneWriter::" step, "scope_ring::protocol::" step) ? "^scope_ring::protocol::" step "$" : "^scope_ring::writer::LaneWriter::" step "$"
    }
    # Not inlined: protocol::seal is called by LaneWriter::seal, which fences first.
    function fenced_by_caller(own, caller, at, fence, call) {
        if (own !~ /^scope_ring::protocol::/) return 0
        caller = own
        sub(/protocol::/, "writer::LaneWriter::", caller)
        for (at = 1; at <= count[caller]; at++) {
            if (is_fence(body[caller, at])) fence = at
            else if (body[caller, at] ~ /^v?movnt(dq|i|ps|pd|q)/) fence = 0
            if (index(body[caller, at], own) && !call) { call = at; break }
        }
        return call && fence && fence < call
    }
    function check(wanted, own, end, at, word, fence, late, text, last_nt) {
        for (own in count) {
            if (own !~ wanted) continue
            end = count[own]
            word = 0; fence = 0; late = ""; last_nt = 0
            for (at = 1; at <= end; at++) {
                text = body[own, at]
                if (word && text ~ /^lock xadd %r[a-z0-9]+,\(%r/) break # the pin is given back: offset 0 of the record
                if (is_word(text)) { word = at; late = "" }
                else if (is_store(text) && word) late = text
                if (text ~ /^v?movnt(dq|i|ps|pd|q)/) last_nt = at
                if (is_fence(text)) fence = at
            }
            if (!word) return 0
            checked++
            if (late != "") { print own ": stores after the committed word: " late; wrong++ }
            if (nt_stores && (!fence || fence > word) && !fenced_by_caller(own)) {
                print own ": no sfence before the committed word"; wrong++
            } else if (nt_stores && last_nt > fence && last_nt < word) {
                print own ": a non-temporal store after the sfence"; wrong++
            } else print own ": the committed word is stored last" (nt_stores ? ", after sfence" : "")
            return 1
        }
        return 0
    }
    END {
        if (!check(place_of("commit"))) { print "no commit with a committed word was found"; wrong++ }
        if (!check(place_of("seal"))) { print "no seal with a committed word was found"; wrong++ }
        if (!nt_stores) print "no non-temporal stores found"
        else print nt_stores " non-temporal stores found"
        exit wrong > 0
    }'
