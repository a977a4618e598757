#!/bin/sh
# Cargo's compiler for the fuzz targets (RUSTC_WRAPPER): our own crates count how often each of their branches is passed, for
# libFuzzer; the crates that they use don't, since nobody looks for new ways through those.
#
# usage: fuzz-rustc.sh RUSTC ARGUMENT...
case " $* " in
*" --crate-name scope_"* | *" --crate-name fuzz "*)
    exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing
    ;;
*) exec "$@" ;;
esac
