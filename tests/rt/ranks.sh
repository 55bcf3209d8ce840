#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# test_ranks as 2, 3 and 4 processes.

set -u
test=$WEFT_BUILDDIR/tests/rt/test_ranks
if [ -z "${WEFT_MPIEXEC:-}" ] || ! "$test" --has-mpi; then
    echo "skipped: built without MPI"
    exit 77
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

# ranks arguments: the status of the job; 124 when it did not end.
job()
{
    n=$1
    shift
    timeout 100 "$WEFT_MPIEXEC" --oversubscribe --bind-to none -n "$n" \
        "$test" "$@" >"$log" 2>&1 </dev/null
}

complain()
{
    cat "$log"
    echo "FAILED: $1"
    failed=1
}

for n in 2 3 4; do
    job $n || complain "$n ranks: status $?"
    grep -h 'foreign' "$log"
done
exit $failed
