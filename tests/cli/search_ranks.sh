#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SIGUSR1 to mpirun while rank 0 of two searches for the plan of a run: it is
# passed on to both, the search ends, and so does the run, which leaves nothing.
# The search is told to take far longer than a signal does.
set -u
. "$WEFT_SRCDIR/tests/begin_ranks.sh"
. "$WEFT_SRCDIR/tests/watched.sh"
printf '%s\n' 'name: some' "kinds: [{name: node, nodes: 2, devices: 4," \
    'memory_gib: 8, tflops: {f32: 0.1}, memory_gbs: 20, task_us: 4,' \
    'inside: {gbs: 10, us: 1}, network: {rails: 1, gbs: 1, us: 20}}]' \
    >cluster.yaml
OMPI_MCA_orte_tmpdir_base=$dir
export OMPI_MCA_orte_tmpdir_base
start nice -n 19 "$WEFT_MPIEXEC" --oversubscribe --bind-to none -n 2 \
    "$weft" train "$WEFT_SRCDIR/examples/quickstart/ppo.yaml" run_dir=run \
    plan=auto cluster=cluster.yaml runtime.place=device runtime.devices=4 \
    rollout.prompts=512 ppo.mini_batches=8 ppo.epochs=2 \
    numerics.gradient_groups=16
until_said "looks for a plan" || exit 1
kill -USR1 $pid
ended 138
[ "$(grep -c "weft train: stopped while it searched for a plan, before" \
    log)" = 1 ] || complain "it does not say once why it ends"
[ ! -e run ] || complain "it leaves something"
exit $failed
