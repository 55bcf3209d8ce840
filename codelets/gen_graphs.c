/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "codelets/gen.h"
#include "kern/kern_cuda.h"

enum { MOST = 64 };

struct weft_gen_graphs {
    int n;
    int oldest; /* of MOST */
    struct weft_gen_graph of[MOST];
};

struct weft_gen_graphs *weft_gen_graphs_create(void)
{
    return weft_alloc(1, sizeof(struct weft_gen_graphs));
}

static void drop(struct weft_gen_graph *graph)
{
#ifdef WEFT_HAVE_CUDA
    weft_k_graph_free_cuda(graph->graph);
#endif
    *graph = (struct weft_gen_graph){0};
}

void weft_gen_graphs_free(struct weft_gen_graphs *graphs)
{
    for (int i = 0; graphs && i < graphs->n; i++)
        drop(&graphs->of[i]);
    weft_free(graphs);
}

struct weft_gen_graph *weft_gen_graph_of(struct weft_gen_graphs *graphs,
                                         uint64_t key)
{
    for (int i = 0; i < graphs->n; i++)
        if (graphs->of[i].key == key)
            return &graphs->of[i];
    int at = graphs->n < MOST ? graphs->n++ : graphs->oldest++ % MOST;
    drop(&graphs->of[at]);
    graphs->of[at].key = key;
    return &graphs->of[at];
}
