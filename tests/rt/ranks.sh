#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# test_rank_moves, test_rank_programs and test_ranks as 2, 3 and 4 processes; what ends a job.

set -u
. "$WEFT_SRCDIR/tests/begin_ranks.sh"
failed=0

# job RANKS PROGRAM arguments...: its status; 124 when it did not end
job()
{
    n=$1
    program=$2
    shift 2
    on_ranks "$n" "$WEFT_BUILDDIR/tests/rt/$program" "$@" >log 2>&1
}

complain()
{
    cat log
    echo "FAILED: $1"
    failed=1
}

for n in 2 3 4; do
    job $n test_rank_programs || complain "programs, $n ranks: status $?"
    job $n test_rank_moves || complain "moves, $n ranks: status $?"
    job $n test_ranks || complain "$n ranks: status $?"
    grep -h 'foreign' log
done

# Each rank's device has a core, whether mpirun binds or not.
nobind=$STARPU_WORKERS_NOBIND
unset STARPU_WORKERS_NOBIND
for ranks_bind in core:overload-allowed none; do
    job 2 test_ranks --cores || complain "cores, $ranks_bind: status $?"
done
# Of a machine of 2 sockets with 4 cores each, which hwloc makes up, ranks have
# both.
on_ranks 2 env -u HWLOC_COMPONENTS HWLOC_SYNTHETIC='pack:2 core:4 pu:2' \
    "$WEFT_BUILDDIR/tests/rt/test_ranks" --spread >log 2>&1 ||
    complain "ranks of two sockets: status $?"
export STARPU_WORKERS_NOBIND="$nobind"

# Those of one job share all cores: who does not sleep has to say so.
"$weft" info --json | grep -q '"messages_nap": true'
naps=$?
grep -q 'does not sleep while it waits for messages' log
[ $? = $naps ] && complain "naps of messages: info says otherwise"

# What ends a job, or would stand still: said by whom.
said()
{
    grep -q "$1" log || complain "nobody says '$1'"
}
job 3 rank_ends --kill && complain "a killed rank goes unnoticed"
[ $? = 124 ] && complain "a killed rank leaves the others"
said 'rank 1 .*signal 9'
job 3 rank_ends --abort && complain "an aborted job succeeds"
said 'weft: rank 1: error: the end of rank 1'
job 2 rank_ends --step && complain "ranks out of step go on"
said 'the ranks are out of step (rank [01]): copies inserted 0 to 1'
job 2 rank_ends --late log || complain "a late message: status $?"
said "waits for 'm x' from rank 0 since [0-9.]* s"
said 'rank 1: 1 messages to receive, 0 to send'

# A rank that stands still is named, and the others go on when it does.
job 3 rank_ends --stop pid &
waiter=$!
until grep -qs 'has not answered' log; do
    kill -0 $waiter 2>/dev/null || break
    sleep 0.1
done
kill -CONT "$(cat pid)" || complain "rank 1 has not stopped"
wait $waiter || complain "a stopped rank: status $?"
said 'rank [02] waits for the other ranks to come to the same point since'
said 'rank [02]: warning:   rank 1 has not answered for [0-9.]* s'
exit $failed
