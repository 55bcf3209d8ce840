/* SPDX-License-Identifier: Apache-2.0 */
/* What benchmarks of the search for plans open: a configuration on some nodes
 * of a cluster, and how it is simulated. A failure ends the program. */
#ifndef WEFT_BENCH_OPENED_H
#define WEFT_BENCH_OPENED_H

#include <stdio.h>
#include <stdlib.h>

#include "bench/check.h"
#include "job/plan_needs.h"
#include "job/run_config.h"
#include "plan/lengths.h"
#include "run/predict/options_inside.h"

struct opened {
    struct weft_config config;
    struct weft_cluster cluster;
    struct weft_run_needs needs;
    struct weft_lengths lengths;
    struct weft_simulate_options simulate;
    struct weft_find find;
};

/* argv: CLUSTER.yaml NODES another CONFIG.yaml [key=value ...]; nodes of unlike
 * size count as several, as in `weft plan`. Responses are
 * as long as WEFT_BENCH_LENGTHS says (`weft simulate --lengths`), else the
 * longest. */
static void opened_open(int argc, char **argv, struct opened *o)
{
    if (argc < 5) {
        fprintf(stderr,
                "usage: %s CLUSTER.yaml NODES N CONFIG.yaml "
                "[key=value ...]\n",
                argv[0]);
        exit(2);
    }
    CHECK(weft_cluster_read(argv[1], &o->cluster, &err));
    CHECK(weft_run_config_read(
        argv[4], argc - 5, (const char *const *) argv + 5, &o->config, &err));
    const char *lengths = getenv("WEFT_BENCH_LENGTHS");
    CHECK(weft_lengths_read(lengths ? lengths : "max", &o->lengths, &err));
    CHECK(weft_run_needs_read(&o->config, atoi(argv[2]),
                              weft_cluster_common(&o->cluster), 0, &o->needs,
                              &err));
    if (o->cluster.n_kinds > 1)
        o->needs.plan.cluster = &o->cluster;
    o->needs.plan.device_bytes = (int64_t) weft_cluster_device_bytes(
        &o->cluster);
    o->simulate = (struct weft_simulate_options){
        .cluster = &o->cluster,
        .lengths = &o->lengths,
        .iterations = 3,
        .gangs = o->config.runtime.place == WEFT_PLACE_DEVICE};
    o->find = (struct weft_find){.simulate = &o->simulate,
                                 .how = {.seed = 1}};
}

static void opened_close(struct opened *o)
{
    weft_lengths_release(&o->lengths);
    weft_config_release(&o->config);
}

#endif
