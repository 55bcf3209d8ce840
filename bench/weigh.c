/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `weft plan --check` takes for many devices: seconds of the processor and
 * memory. The plan is of the configuration's `layout`, the cluster of as many
 * nodes, whatever its file says.
 *
 *     weigh CLUSTER.yaml NODES 1 CONFIG.yaml layout=TEXT [key=value ...]
 */
#include <sys/resource.h>
#include <time.h>

#include "bench/opened.h"
#include "run/predict/weigh.h"

static double cpu_s(void)
{
    return (double) clock() / CLOCKS_PER_SEC;
}

int main(int argc, char **argv)
{
    static struct opened o;
    struct weft_plan plan;
    struct weft_simulated v;
    struct rusage usage;
    opened_open(argc, argv, &o);
    o.cluster.n_nodes = o.cluster.kind[0].n_nodes = atoi(argv[2]);
    CHECK(weft_plan_uniform(o.config.layout, &o.needs.plan, &plan, &err));
    CHECK(weft_plan_check(&plan, &o.needs.plan, &err));
    CHECK(weft_run_weigh(&o.config, &o.needs.plan, &o.simulate, &plan, &v,
                         &err));
    getrusage(RUSAGE_SELF, &usage);
    printf(
        "%s on %d nodes of %d devices: %.4g s an iteration, %.4g GiB of the "
        "fullest device; checked in %.2f s (bar: 1), %ld MiB (bar: 1,024)\n",
        o.config.layout, (int) plan.n_nodes, (int) plan.n_devices,
        v.iteration_s, v.device_bytes / 0x1p30, cpu_s(),
        usage.ru_maxrss / 1024);
    weft_plan_release(&plan);
    opened_close(&o);
    return 0;
}
