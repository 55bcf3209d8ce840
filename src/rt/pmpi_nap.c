/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of MPI in which StarPU-MPI's thread spins, through MPI's profiling
 * interface: they sleep while nothing comes. Without this, ranks that share
 * cores take 20 ms for a message (measured: shared cores, Open MPI 4.1.4).
 */
#include "config.h"
#include "rt/internal.h"

#ifdef WEFT_HAVE_MPI

static atomic_bool napping;

void weft_pmpi_nap(bool on)
{
    atomic_store(&napping, on);
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    static _Thread_local struct weft_nap nap;
    int rc = PMPI_Test(request, flag, status);
    if (*flag)
        nap = (struct weft_nap){0};
    else if (atomic_load(&napping))
        weft_nap(&nap);
    return rc;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    struct weft_nap nap = {0};
    int done = 0, rc;
    if (!atomic_load(&napping))
        return PMPI_Wait(request, status);
    while ((rc = PMPI_Test(request, &done, status)) == MPI_SUCCESS && !done)
        weft_nap(&nap);
    return rc;
}

int MPI_Barrier(MPI_Comm comm)
{
    MPI_Request request;
    if (!atomic_load(&napping))
        return PMPI_Barrier(comm);
    int rc = PMPI_Ibarrier(comm, &request);
    return rc == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : rc;
}

#endif
