#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# weft verify: rows that agree, one that does not, those that fail or are
# skipped; and that nothing is left behind.
set -u
weft=$WEFT_BUILDDIR/weft
config=$WEFT_SRCDIR/examples/verify.yaml
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
mkdir tmp
failed=0
mpi=yes
"$weft" info --json | grep -q '"mpi": "none"' && mpi=no
# Open MPI's plug-ins are gone when leaks would be looked for.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
# Rows on GPUs have tests/cuda/verify.sh.
CUDA_VISIBLE_DEVICES='' WEFT_CARDS=none
export ASAN_OPTIONS CUDA_VISIBLE_DEVICES WEFT_CARDS

fail()
{
    echo "FAIL $*"
    sed 's/^/    /' out err
    failed=1
}

# expect STATUS 'part of the output' options...
expect()
{
    status=$1
    part=$2
    shift 2
    "$weft" verify --dir tmp "$@" >out 2>err
    got=$?
    says=out
    [ -s out ] || says=err
    [ "$got" = "$status" ] && grep -qF -- "$part" $says ||
        fail "weft verify $* (status $got): $part"
    [ -z "$(ls tmp)" ] || { fail "left: $(ls tmp)"; rm -rf tmp/*; }
}

# ---- Which rows -------------------------------------------------------------
expect 0 "bf16/ranks4-tp4" --list
[ "$(grep -c '/f32/' out)" = "$(grep -c '/bf16/' out)" ] || fail "--list"
algorithms=$(cut -d / -f 1 out | sort -u)
for a in $algorithms; do
    n=$(grep -c "^$a/f32/" out)
    [ "$n" -ge 12 ] && grep -q "^$a/f32/ranks4" out ||
        fail "$a has $n rows of f32"
done
grep -q '^dpo/bf16/ranks2' out || fail "other algorithms"
expect 0 "ppo/f32/reference" --list --quick
n=$(grep -c ppo out)
[ "$n" -ge 8 ] && [ "$n" -le 16 ] || fail "--quick has $n rows"
expect 0 "bf16/reference" --list --algorithm ppo --rows 'bf16/dp?'
[ "$(wc -l <out)" = 4 ] || fail "--rows"
expect 0 "sft/f32/reference" --list --algorithm sft
[ "$(cut -d / -f 1 out | sort -u)" = sft ] || fail "--algorithm"
expect 2 "no row matches 'pop'" --algorithm pop
expect 2 "leave out --algorithm" --algorithm ppo "$config"
expect 0 "ppo/f32/tp4" --list --dtype f32
! grep -q bf16 out || fail "--dtype"
expect 2 "no row matches 'dp9'" --rows dp9
expect 2 "must be f32, bf16 or both" --dtype f16
expect 2 "give a configuration file before 'seed=1'" seed=1
expect 2 "'more' is no key=value word" "$config" more
expect 2 "'--iterations' must be from 1" --iterations 0

# ---- The same bits ----------------------------------------------------------
expect 0 "6 rows of the same bits" --algorithm ppo --rows 'dp[23]' \
    --iterations 1
awk '/^ppo.f32/ { print $4, $5, $6, $7 }' out | sort -u >hashes
[ "$(wc -l <hashes)" = 1 ] || fail "f32 hashes"
[ "$(awk '/^ppo.bf16/ { print $4, $5, $6, $7 }' out | sort -u | cat hashes - |
    sort -u | wc -l)" = 2 ] || fail "bf16 hashes"
all=$("$weft" verify --list --quick --algorithm ppo | wc -l)
if [ $mpi = yes ]; then # nothing of the built-in job is skipped
    expect 0 "$all rows of the same bits" --quick --algorithm ppo \
        --mpiexec "$WEFT_MPIEXEC"
    ! grep -q skipped out || fail "--quick skips"
else
    expect 0 "$((all - 2)) rows of the same bits, 2 skipped" --quick \
        --algorithm ppo
fi
expect 0 "2 rows of the same bits" "$config" --rows f32/decode-steps
expect 0 '{"row": "ppo/f32/dp2", "ranks": 1, "devices": 2, "state": "ok"' \
    "$config" --rows f32/dp2 --json
# Behind the counts is why rows on GPUs are left out, where they are.
grep -q '^\], "ok": 2, "differs": 0, "failed": 0, "skipped": 0[,}]' out ||
    fail "--json"

# ---- Other bits -------------------------------------------------------------
# A reward that is another one in each run.
cat >reward.sh <<'END'
echo x >>count
n=$(wc -l <count)
while read -r line; do i=$((${i:-0} + 1)); echo $((n * i)); done
END
chance="reward=[{type: program, directory: $dir, command: [sh, reward.sh]}]"
expect 1 "1 DIFFER, 0 FAILED" "$config" "$chance" --rows f32/dp2
grep -q '^ppo/f32/dp2 .* DIFFERS$' out || fail "DIFFERS"
grep -q "^    iteration 1: advantages of sample 0 differ at 0: " out ||
    fail "the first number"
grep -q "^    actor model: tensor 'lm_head.weight' differs at element " out ||
    fail "the first tensor"
expect 1 '"state": "differs"' "$config" "$chance" --rows f32/dp2 --json
grep -q '"first_tensor": "actor model: tensor' out || fail "--json"

# ---- Not run ----------------------------------------------------------------
expect 1 "1 rows of the same bits, 1 skipped and not compared, the last one" \
    "$config" --rows f32/pp4
grep -q "^weft verify: no row could be compared with the reference: " err ||
    fail "a reference alone agrees with nothing"
expect 0 "2 rows of the same bits, 2 skipped and not compared, the last one" \
    "$config" --rows 'f32/pp*' --iterations 1
grep -q "^    layout 'pp4,.*\|^    .*pp 4 .*2 layers" out ||
    fail "why pp4 is skipped"
expect 1 "weft verify: argument 'seed=x': 'seed' must be" "$config" seed=x
expect 1 "cannot" nothing.yaml
expect 0 "2 rows of the same bits" "${config%/*}/quickstart/sft.yaml" \
    "model.actor=${config%/*}/quickstart/model" train.batch=4 --rows f32/dp2
if [ $mpi = no ]; then
    expect 1 "built without MPI" "$config" --rows f32/ranks2-dp2
else
    expect 1 "1 FAILED" "$config" --rows f32/ranks2-dp2 --mpiexec false
    expect 1 "cannot start 'nothing'" "$config" --rows f32/ranks2-dp2 \
        --mpiexec "nothing at all"
    # Numbers alone prove nothing: two ranks were asked for.
    printf '#!/bin/sh\nshift 2\nexec "$@"\n' >alone
    chmod +x alone
    expect 1 "the run followed another plan than the row's" "$config" \
        --rows f32/ranks2-dp2 --mpiexec ./alone
    PATH=nowhere "$weft" verify --dir tmp "$config" --rows f32/ranks2-dp2 \
        >out 2>err && fail "no mpiexec: status"
    grep -q "neither mpiexec nor mpirun is on PATH" out || fail "no mpiexec"
    mkdir bin # one that nobody asked for, and that can't start anything
    printf '#!/bin/sh\necho no daemon here\nexit 1\n' >bin/mpiexec
    chmod +x bin/mpiexec
    PATH=$dir/bin:$PATH
    expect 1 "no daemon here" "$config" --rows f32/ranks2-dp2
    # Open MPI's words to root; they name no remedy.
    printf '#!/bin/sh\necho -----\necho mpiexec has detected an %s. >&2\nexit 1\n' \
        "attempt to run as root" >bin/mpiexec
    root="run as root. Set OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
    expect 1 "$root" "$config" --rows f32/ranks2-dp2
    expect 1 "$root" "$config" --rows f32/ranks2-dp2 --mpiexec bin/mpiexec
fi

# ---- Stopped, kept ----------------------------------------------------------
"$weft" verify --dir tmp --keep --rows f32/dp2 "$config" >out 2>err ||
    fail "--keep"
kept=$(echo tmp/weft-verify-*)
[ -s "$kept/ppo/f32/dp2/digests/000002.json" ] && [ -e "$kept/ppo/f32/dp2.log" ] &&
    grep -qx "weft: the runs are in $kept" err || fail "--keep"
rm -rf tmp/*
"$weft" verify --dir tmp --dtype f32 iterations=1000 "$config" >out 2>err &&
    fail "a key before the configuration"
"$weft" verify --dir tmp --dtype f32 --iterations 1000 "$config" \
    >out 2>err &
pid=$!
until [ -e "$(echo tmp/weft-verify-*/ppo/f32/reference.log)" ]; do # a row runs
    kill -0 $pid || break
    sleep 0.1
done
kill -TERM $pid
wait $pid
[ $? = 143 ] && grep -q "weft verify: interrupted" err || fail "stopped"
[ -z "$(ls tmp)" ] || fail "stopped, left: $(ls tmp)"
exit $failed
