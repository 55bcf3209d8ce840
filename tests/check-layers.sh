#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tree keeps its layers; and the checker sees what it must see in a
# small tree with one offence of each kind.
set -eu

src=${WEFT_SRCDIR:-$(cd "$(dirname "$0")/.." && pwd)}
"$src/tools/check-layers" "${WEFT_BUILDDIR:-}"
python=$(command -v python3 || true)
if [ -n "$python" ]; then "$python" "$src/tools/check-names"; fi

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/tools" "$tree/src/plan" "$tree/src/schedule/search" "$tree/src/base" "$tree/src/kern" \
    "$tree/src/rt" \
    "$tree/codelets" "$tree/graphs" "$tree/examples" "$tree/build/src/plan/.libs" \
    "$tree/tests/kern"
cp "$src/tools/check-layers" "$tree/tools/"
spdx='/* SPDX-License-Identifier: Apache-2.0 */'

put() { f=$tree/$1; shift; printf '%s\n' "$@" >"$f"; }
put src/plan/cost.c "$spdx" '#include <starpu.h>' '#include "rt/tile.h"' \
    '#include "base/err.h"' 'void abort(void);' 'int starpu_init(void *);' \
    'int weft_x(void);' \
    'int weft_x(void) { if (starpu_init(0)) abort(); return 0; }'
put src/plan/local.mk 'plan_sources ='
put src/schedule/search/rule.c "$spdx" '#include "plan/layout.h"'
put src/schedule/local.mk 'schedule_sources = %D%/rule.c'
put src/kern/add_cpu.c "$spdx" '#include "base/err.h"' \
    '#include "model/hf.h"' '#include "../base/err.h"' \
    'void weft_k_add(void);' 'void weft_k_add(void)' '{' '}'
put tests/extra.h "$spdx"
put tests/local.mk 'EXTRA_DIST ='
put src/base/file.c "$spdx" 'void f(void) {' 'rmdir("a");' '}'
put src/base/file_remove.c "$spdx" 'void g(void) {' 'rmdir("a");' '}'
put src/kern/add_cuda.cu "$spdx" 'void weft_k_add_cuda(void)' '{' \
    '    asm volatile("nop;");' '#ifdef __CUDA_ARCH__' '#endif' '}'
put src/kern/loop_cuda.cu "$spdx" '__global__ void add(void) {}' \
    '__global__ void again(void) { cudaGraphSetConditional(0, 1); }'
put src/kern/mma_cuda.h "$spdx" '#ifdef WEFT_CUDA_TWIN' '    x = 1;' '#else' \
    '    asm("a");' '#endif' '    asm("b");' '#ifdef WEFT_CUDA_TWIN' '#else' \
    '    asm("c");' '#endif'
put src/rt/tile.h "$spdx" 'struct starpu_task;'
put graphs/ppo.c "$spdx" '#include "kern/kern.h"' '#include "rt/graph.h"'
put codelets/gemm.c '#include <starpu.h>' '#include "model/hf.h"'
put examples/01.c "$spdx" '#include "run/trainer.h"'

sed -e '/#include/d' "$tree/src/plan/cost.c" >"$tree/bare.c"
if command -v "${CC:-cc}" >/dev/null; then
    "${CC:-cc}" -c -o "$tree/build/src/plan/.libs/libplan_la-cost.o" "$tree/bare.c"
fi
if "$tree/tools/check-layers" "$tree/build" >"$tree/out"; then
    echo "check-layers accepts a tree full of offences"
    exit 1
fi
missed=0
expect()
{
    grep -qF "$1" "$tree/out" && return
    echo "check-layers does not say: $1"
    missed=1
}
expect 'src/plan/cost.c:2: plan must not know <starpu.h>'
expect 'src/plan/cost.c:3: plan must not know "rt/tile.h"'
expect 'src/schedule/search/rule.c:2: schedule must not know "plan/layout.h"'
expect 'src/schedule/search/rule.c: not in src/schedule/local.mk'
expect 'src/kern/add_cpu.c:3: kern must not know "model/hf.h"'
expect 'src/kern/add_cpu.c:4: includes "../base/err.h"'
expect 'src/kern/add_cpu.c: no test'
expect 'src/kern/add_cuda.cu:4: is for kern/mma_cuda.h, with a twin'
expect 'src/kern/add_cuda.cu:5: is for kern/mma_cuda.h, with a twin'
expect 'src/kern/mma_cuda.h:7: has no twin before it'
expect 'src/kern/mma_cuda.h:10: has no twin before it'
expect 'src/kern/loop_cuda.cu: has 2 kernels'
expect 'tests/extra.h: not in tests/local.mk'
expect 'src/base/file.c:3: removes folders'
expect 'src/rt/tile.h:2: names StarPU or MPI'
expect 'graphs/ppo.c:2: graphs must not know "kern/kern.h"'
expect 'codelets/gemm.c:2: codelets must not know "model/hf.h"'
expect 'codelets/gemm.c:1: the first line is'
expect 'examples/01.c:2: examples must not know "run/trainer.h"'
expect 'src/plan/cost.c: not in src/plan/local.mk'
if command -v "${CC:-cc}" >/dev/null; then
    expect 'plan must not call starpu_init'
    expect 'plan must not call abort'
    expect 'weft_x: nobody calls it'
fi
for good in plan/cost.c:4 kern/add_cpu.c:2 graphs/ppo.c:3 \
    base/file_remove.c:3 kern/mma_cuda.h:5; do
    if grep -q "$good" "$tree/out"; then
        echo "check-layers refuses $good, which is allowed"
        missed=1
    fi
done
[ "$missed" = 0 ] || { cat "$tree/out"; exit 1; }

# Names of algorithms, roles and calls, in code but not in comments.
[ -n "$python" ] || { echo "no python3: names are not checked"; exit 0; }
rm -rf "$tree/src" "$tree/graphs"
mkdir -p "$tree/src/run" "$tree/src/plan"
cp -r "$src/graphs" "$tree/graphs"
cp "$src/tools/check-names" "$tree/tools/"
put src/run/a.c "$spdx" '/* as for the critic' ' * of ppo */' \
    'int critic_steps;' 'const char *call = "actor_generate";' \
    'extern int weft_grpo;' 'int factor, reactor_x; /* no actor */'
put src/plan/b.h 'enum { WEFT_SFT_STEP };'
if "$python" "$tree/tools/check-names" >"$tree/out"; then
    echo "check-names accepts a tree full of offences"
    exit 1
fi
expect 'src/run/a.c:4: names critic'
expect 'src/run/a.c:5: names actor_generate'
expect 'src/run/a.c:6: names grpo'
expect 'src/plan/b.h:1: names SFT'
if grep -qE 'a.c:[237]' "$tree/out"; then
    echo "check-names refuses what is allowed"
    missed=1
fi
[ "$missed" = 0 ] || { cat "$tree/out"; exit 1; }
