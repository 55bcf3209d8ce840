#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds the fuzz targets tests/fuzz/fuzz_*.c with clang's libFuzzer and the
# address and undefined-behaviour sanitizers, and runs each for a short while
# on its corpus, tests/fuzz/corpus/<name>/. A target is linked with the rooms
# base, model and text and the sources it names in a line "fuzz-sources: a.c b.c";
# graphs/algorithms.c brings the files of its algorithms.
#
# WEFT_FUZZ_SECONDS (2) per target; 0 only builds them. The programs stay in
# the build folder's fuzz/ for longer runs: fuzz/fuzz_x CORPUS.
set -eu

src=${WEFT_SRCDIR:-$(cd "$(dirname "$0")/.." && pwd)}
build=${WEFT_BUILDDIR:-$src/build}
clang=${WEFT_CLANG:-$(command -v clang || true)}
seconds=${WEFT_FUZZ_SECONDS:-2}
flags="-std=c11 -D_GNU_SOURCE -g -O1 -fno-omit-frame-pointer
    -ffp-contract=off -fsanitize=address,undefined
    -fno-sanitize-recover=undefined -I$src/src -I$src -I$build
    ${WEFT_FUZZ_CFLAGS:-}"
work=$build/fuzz

skip() { echo "skipped: $*"; exit 77; }

[ -n "$clang" ] || skip "no clang (Debian: clang libclang-rt-dev)"
set -- "$src"/tests/fuzz/fuzz_*.c
[ -e "$1" ] || skip "no fuzz targets in tests/fuzz"
mkdir -p "$work/obj"
echo 'int LLVMFuzzerTestOneInput(const unsigned char *p, unsigned long n);
int LLVMFuzzerTestOneInput(const unsigned char *p, unsigned long n)
{ return p && n > 1u << 30; }' >"$work/probe.c"
"$clang" -fsanitize=fuzzer,address -o "$work/probe" "$work/probe.c" \
    2>"$work/probe.log" || skip "clang has no libFuzzer (libclang-rt-dev)"

# Compiles what is newer than its object, or includes something newer.
compile()
{
    obj=$work/obj/$(echo "${1#"$src"/}" | tr '/' '-' | sed 's/\.c$/.o/')
    if [ -e "$obj" ] && [ -z "$(find "$1" "$src/src" "$src/graphs" "$build/config.h" \
        \( -path "$1" -o -name '*.h' \) -newer "$obj" -print -quit)" ]; then
        return
    fi
    # shellcheck disable=SC2086
    "$clang" $flags $fuzzing -c -o "$obj.new" "$1"
    mv "$obj.new" "$obj"
}

fuzzing=-fsanitize=fuzzer-no-link
library=
for room in base model text; do
    for f in $(cd "$src/src/$room" && find . -name '*.c' | LC_ALL=C sort); do
        # Only what the build lists.
        f=${f#./}
        grep -qF "/$f" "$src/src/$room/local.mk" || continue
        compile "$src/src/$room/$f"
        library="$library $obj"
    done
done

failed=0
for f in "$src"/tests/fuzz/fuzz_*.c; do
    name=$(basename "$f" .c)
    compile "$f"
    objects=$obj
    sources=$(sed -n 's/.*fuzz-sources: *//p' "$f" | sed 's,\*/,,')
    case $sources in
    *graphs/algorithms.c*)
        sources="$sources $(sed -n 's,^ *A(\([a-z_]*\)).*,graphs/\1.c,p' \
            "$src/graphs/algorithms.h")" ;;
    esac
    for extra in $sources; do
        compile "$src/$extra"
        objects="$objects $obj"
    done
    # shellcheck disable=SC2086
    "$clang" -fsanitize=fuzzer,address,undefined -o "$work/$name" $objects \
        $library ${WEFT_FUZZ_LIBS:-} -lm -lpthread
    [ "$seconds" = 0 ] && continue
    corpus=$(mktemp -d) || exit 1
    seeds=$src/tests/fuzz/corpus/${name#fuzz_}
    [ -d "$seeds" ] || seeds=
    if "$work/$name" -max_total_time="$seconds" -timeout=300 -max_len=65536 \
        -rss_limit_mb=1024 -artifact_prefix="$work/$name-" -verbosity=0 \
        -print_final_stats=1 "$corpus" $seeds >"$work/$name.log" 2>&1; then
        echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' \
            "$work/$name.log") inputs, nothing found"
    else
        echo "$name: found something:"
        tail -n 60 "$work/$name.log"
        failed=1
    fi
    rm -rf "$corpus"
done
exit "$failed"
