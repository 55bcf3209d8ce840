#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# weft plan --search on several ranks finds what one process finds, to the last
# byte of the plan and of what is printed, with more restarts than ranks and with
# fewer; rank 0 alone prints and writes. Who is asked to stop on any rank stops
# all. What does not search is refused.
set -u
. "$WEFT_SRCDIR/tests/begin_ranks.sh"
. "$WEFT_SRCDIR/tests/watched.sh"
quick=$WEFT_SRCDIR/examples/quickstart
printf '%s\n' 'name: some' "kinds: [{name: node, nodes: 1, devices: 4," \
    'memory_gib: 8, tflops: {f32: 0.1}, memory_gbs: 20, task_us: 4,' \
    'inside: {gbs: 10, us: 1}, network: {rails: 1, gbs: 1, us: 20}}]' \
    >cluster.yaml

search() # words...
{
    echo "plan $quick/ppo.yaml --search --cluster cluster.yaml --branches 100"
    echo "$* runtime.place=device"
}

# same RANKS words...: as one process, whose plan and words are in plan and alone
same()
{
    n=$1
    shift
    # shellcheck disable=SC2046
    on_ranks "$n" "$weft" $(search "$@") -o plan.ranks >ranks 2>log ||
        complain "$n ranks $*: status $?"
    cmp -s plan plan.ranks || complain "$n ranks $*: another plan"
    cmp -s alone ranks || complain "$n ranks $*: other words"
    [ "$(grep -c 'prices layouts' log)" = 1 ] && ! grep -q 'rank [1-9]' log ||
        complain "$n ranks $*: it is not rank 0 alone that says something"
    rm -f plan.ranks ranks
}

while read -r ranks words; do
    # shellcheck disable=SC2046,SC2086
    "$weft" $(search $words) -o plan >alone 2>log ||
        complain "$words: status $?"
    for n in $(echo "$ranks" | tr , ' '); do
        # shellcheck disable=SC2086
        same "$n" $words
    done
done <<'WORDS'
1,2,3,4 --evaluations 100
3 --evaluations 100 --restarts 1 --json
2,3 --evaluations 300 --restarts 7 --seed 9 --threads 2
WORDS
# Another number of restarts is another search.
# shellcheck disable=SC2046
"$weft" $(search --evaluations 300 --restarts 6 --seed 9) >ranks 2>log ||
    complain "six restarts: status $?"
cmp -s alone ranks && complain "restarts change nothing"

# What one rank fails with is said once, and is the end of all.
fails() # 'part of the sentence' words...
{
    part=$1
    shift
    on_ranks 3 "$weft" plan "$@" >out 2>log && complain "$*: it succeeds"
    [ "$(grep -c "^weft plan: .*$part" log)" = 1 ] ||
        complain "$*: '$part' is not said once"
    [ ! -s out ] || complain "$*: it prints something"
}
fails "no.yaml" no.yaml --search
fails "none.yaml" "$quick/ppo.yaml" --search --cluster none.yaml
sed 's/memory_gib: 8/memory_gib: 0.01/' cluster.yaml >short.yaml
fails "no plan fits" "$quick/ppo.yaml" --search --cluster short.yaml \
    --evaluations 100 -o plan.none
fails "start it without mpirun" "$quick/ppo.yaml" -o plan.none
fails "start it without mpirun" "$quick/ppo.yaml" --compare --no-search \
    --cluster cluster.yaml
[ ! -e plan.none ] || complain "it writes a plan all the same"

# SIGUSR1 to mpirun is passed on to all. A search that would take hours.
OMPI_MCA_orte_tmpdir_base=$dir
export OMPI_MCA_orte_tmpdir_base
# shellcheck disable=SC2046
start nice -n 19 "$WEFT_MPIEXEC" --oversubscribe --bind-to none -n 3 \
    "$weft" $(search --evaluations 2000000000) -o plan.stopped
until_said "layouts priced; the search begins" || exit 1
kill -USR1 $pid
ended 0
grep -q "; stopped before the end" out || complain "it does not say so"
"$weft" plan --check plan.stopped "$quick/ppo.yaml" --nodes 1 --devices 4 \
    runtime.place=device >checked 2>>log || complain "the plan is none"
# So is a signal to one rank alone, while rank 0 prices layouts: otherwise it would
# not be heard, as greedy descent has no restarts.
cat >rank.sh <<'SH'
echo $$ >"pid.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"
exec "$@"
SH
# shellcheck disable=SC2046
start nice -n 19 "$WEFT_MPIEXEC" --oversubscribe --bind-to none -n 2 \
    sh rank.sh "$weft" $(search --method greedy) rollout.prompts=512 \
    numerics.gradient_groups=16 ppo.mini_batches=8 ppo.epochs=2
until_said "prices layouts" || exit 1
kill -INT "$(cat pid.1)"
ended
if [ $status = 0 ]; then
    grep -q "; stopped before the end" out || complain "rank 1 is not heard"
else
    [ "$(grep -c "stopped before it had a layout for" log)" = 1 ] ||
        complain "rank 1: status $status"
fi
# A time limit ends all, which rank 0 has.
# shellcheck disable=SC2046
on_ranks 3 "$weft" $(search --evaluations 2000000000 --time-limit 5) >out 2>log ||
    complain "time limit: status $?"
grep -q "; stopped before the end" out || complain "it has no time limit"
exit $failed
