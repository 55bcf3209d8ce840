# SPDX-License-Identifier: Apache-2.0
# Read by tests that start ranks.
# Open MPI's plug-ins are gone when leaks would be looked for.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
export ASAN_OPTIONS

# on_ranks N command...: its status. A job that stands still is ended, with 124,
# after an hour, so that the tests behind it run and its log is seen. No result
# depends on it: the longest job takes seconds on a quiet machine. Each has a
# folder of its own for Open MPI: all jobs of a user make and remove the same one,
# and one that begins as another ends may find it in between. mpirun binds ranks to
# $ranks_bind.
ranks_bind=none
on_ranks()
{
    n_ranks=$1
    shift
    ranks_folder=$(mktemp -d) || return
    OMPI_MCA_orte_tmpdir_base=$ranks_folder timeout 3600 "$WEFT_MPIEXEC" \
        --oversubscribe --bind-to "$ranks_bind" -n "$n_ranks" "$@" </dev/null
    ranks_status=$?
    rm -rf "$ranks_folder"
    return "$ranks_status"
}
