#!/bin/sh
# Fuzzes the parsers of foreign bytes with libFuzzer: builds the targets, runs each on its kept corpus, then tries new inputs.
# The compiler is the stable one; without the address sanitizer, which isn't. The parsers are safe Rust,
# but for zstd: its C library is built without coverage and without checks of memory, so here only what it gives back is fuzzed.
#
# usage: fuzz.sh SECONDS [TARGET...]       seconds of new inputs for each target; 0: the kept corpus alone
#        fuzz.sh merge [TARGET...]         puts into the kept corpus what was found since and reaches something new
# Build and finds are kept in $FUZZ_TARGET_DIR, else target/fuzz: new/TARGET, and what fails in found/.
set -u
cd "$(dirname "$0")/.." || exit 2
what=${1:-10}
[ $# -gt 0 ] && shift
folder=$(realpath -m "${FUZZ_TARGET_DIR:-target/fuzz}")
corpus=$PWD/fuzz/corpus
targets=${*:-$(ls "$corpus")}
# A hit of a bound here is a failure: of an input's time, seconds, and of memory, MiB.
bounds='-timeout=20 -rss_limit_mb=2048 -max_len=4096 -verbosity=0 -print_final_stats=1'

export CARGO_TARGET_DIR="$folder" RUSTC_WRAPPER="$PWD/scripts/fuzz-rustc.sh" RUST_BACKTRACE=0
echo 'building the fuzz targets (about 3 minutes the first time)'
(cd fuzz && cargo build --release --locked) || exit 2
fuzz=$folder/release/fuzz

mkdir -p "$folder/found"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
for target in $targets; do
    [ -d "$corpus/$target" ] || { echo "there is no target '$target'; there are: $(ls "$corpus" | tr '\n' ' ')"; exit 2; }
    new=$folder/new/$target
    mkdir -p "$new"
    case $what in
    merge) set -- -merge=1 "$corpus/$target" "$new" ;;
    0) set -- -runs=0 "$corpus/$target" ;;
    *) set -- -max_total_time="$what" "$new" "$corpus/$target" ;;
    esac
    # shellcheck disable=SC2086 # a list of options
    if FUZZ_TARGET=$target "$fuzz" $bounds -artifact_prefix="$folder/found/$target-" "$@" >"$log" 2>&1; then
        executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
        echo "fuzz $target: $(ls "$corpus/$target" | wc -l) inputs kept, ${executed:-all} runs, no failure"
    else
        tail -n 40 "$log"
        echo "fuzz $target: FAILED; the input is the file named above; again: FUZZ_TARGET=$target $fuzz FILE"
        failed=1
    fi
done
exit $failed
