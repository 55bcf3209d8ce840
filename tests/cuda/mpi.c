/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lets MPI send and receive what lies on emulated cards, as one that was built
 * with CUDA does: to be loaded before it (LD_PRELOAD), by programs on emulated
 * cards. A file that WEFT_CARDS_MESSAGES names gets a line for each process at its
 * end: messages from cards, and to cards.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

static atomic_long n_sent, n_received;

int MPIX_Query_cuda_support(void);
int MPIX_Query_cuda_support(void)
{
    return 1;
}

static void *reach(const void *p, int n, atomic_long *count)
{
    static void *(*of_cards)(const void *, size_t);
    if (!of_cards)
        *(void **) &of_cards = dlsym(RTLD_DEFAULT, "weft_cards_reach");
    void *at = of_cards ? of_cards(p, (size_t) n) : (void *) (size_t) p;
    if (!at) {
        fprintf(stderr,
                "MPI on emulated cards: a message's memory is not one "
                "allocation of the thread's card\n");
        abort();
    }
    if (at != p)
        atomic_fetch_add(count, 1);
    return at;
}

/* Other types than bytes are the host's. */
static int bytes_of(int n, MPI_Datatype type)
{
    return type == MPI_BYTE ? n : 1;
}

int MPI_Issend(const void *p, int n, MPI_Datatype type, int to, int tag,
               MPI_Comm comm, MPI_Request *request)
{
    return PMPI_Issend(reach(p, bytes_of(n, type), &n_sent), n, type, to, tag,
                       comm, request);
}

int MPI_Irecv(void *p, int n, MPI_Datatype type, int from, int tag,
              MPI_Comm comm, MPI_Request *request)
{
    return PMPI_Irecv(reach(p, bytes_of(n, type), &n_received), n, type, from,
                      tag, comm, request);
}

static void __attribute__((destructor)) count(void)
{
    const char *name = getenv("WEFT_CARDS_MESSAGES");
    FILE *f = name ? fopen(name, "a") : NULL;
    if (!f)
        return;
    fprintf(f, "%ld %ld\n", atomic_load(&n_sent), atomic_load(&n_received));
    fclose(f);
}
