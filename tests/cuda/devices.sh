#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Machines with emulated cards, usable or not: what weft info lists, and the
# one sentence that weft train says before a run begins.
set -u
weft=$WEFT_BUILDDIR/weft
quick=$WEFT_SRCDIR/examples/quickstart
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0

fail()
{
    echo "FAIL: $*"
    sed 's/^/    /' out err
    failed=1
}

refused() # VARIABLES 'sentence' words
{
    variables=$1 sentence=$2
    shift 2
    # shellcheck disable=SC2086
    env $variables "$weft" train -q "$quick/ppo.yaml" run_dir=run \
        iterations=1 runtime.devices=gpu "$@" >out 2>err
    [ $? = 1 ] || fail "$variables $*: status"
    [ "$(wc -l <err)" = 1 ] || fail "$variables $*: not one sentence"
    grep -qF -- "$sentence" err || fail "$variables $*: not '$sentence'"
    [ ! -s out ] || fail "$variables $*: output"
    [ ! -e run ] || fail "$variables $*: a run directory"
    rm -rf run
}

cpus="runtime.devices=0 runs on this machine's CPUs instead"
refused WEFT_CARDS=none "no GPU here: no CUDA driver; $cpus"
refused WEFT_CARDS=old "the driver serves CUDA 12.0, and this build needs 13.0; $cpus"
refused WEFT_CARDS=0 "no GPU here: no CUDA device; $cpus"
refused WEFT_CARDS=2 "'runtime.gpus' is 3, but this machine has 2" \
    runtime.gpus=3
refused WEFT_CARDS_CAPABILITY=7.5 \
    "has compute capability 7.5, and Weft's kernels need 8.0 or later; $cpus"

info() # VARIABLES 'line'
{
    # shellcheck disable=SC2086
    env $1 "$weft" info >out 2>err || fail "info $1"
    grep -qF -- "$2" out || fail "info $1: not '$2'"
}
info WEFT_CARDS=none "none: no CUDA driver"
info "WEFT_CARDS=2 WEFT_CARDS_MEMORY=2048" \
    "1: Emulated card, compute capability 9.0, 1 multiprocessors, 2 GiB; usable"
info WEFT_CARDS_CAPABILITY=7.5 "too old: Weft's kernels need compute capability 8.0"
exit "$failed"
