# SPDX-License-Identifier: Apache-2.0
# Read by tests of several ranks: $weft, on_ranks, a folder $dir of their own,
# which is the current one and goes when they end, decisions that are the same in
# every run, and what they say of runs whose words are in the file log. They end with `exit $failed`, and are skipped
# without MPI.
weft=$WEFT_BUILDDIR/weft
if [ -z "${WEFT_MPIEXEC:-}" ] ||
    ! "$WEFT_BUILDDIR/tests/rt/test_ranks" --has-mpi; then
    echo "skipped: built without MPI"
    exit 77
fi
. "$WEFT_SRCDIR/tests/on_ranks.sh"
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0

# in_turn REMAINING INSTANCES [further keys]: decisions for rollout.decisions that
# act on statuses in an order that is said, instance by instance in turn. Where a
# test wants samples to move, or to end before others do, that must not depend on
# how far a busy machine lets each rank come.
in_turn()
{
    for i in 1 2 3 4; do
        echo "{\"iteration\": $i, \"call\": \"actor_generate\"," \
            "\"remaining\": $1, \"instances\": $2, \"most_batch\": 0," \
            "${3:-}\"order\": [0]}"
    done
}

complain()
{
    echo "FAILED: $1"
    cat log
    tail err.* 2>/dev/null
    failed=1
}

bits() # RUN: checksums of the last checkpoint's tensors
{
    last=$(find "$1/checkpoints" -name 'iteration-*' -prune | sort | tail -n 1)
    find "$last" -name '*.safetensors' | sort | while read -r file; do
        echo "${file#"$1"} $(cksum <"$file")"
    done
}
