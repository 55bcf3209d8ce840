/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaded into a rank in front of MPI (LD_PRELOAD): what the rank would still do
 * when it has left MPI comes too late, as another has failed by then and the
 * launcher kills who is left. Without such a launcher it goes on after a
 * minute.
 */
#include <dlfcn.h>
#include <unistd.h>

int MPI_Finalize(void);

int MPI_Finalize(void)
{
    int (*finalize)(void);
    *(void **) &finalize = dlsym(RTLD_NEXT, "MPI_Finalize");
    int rc = finalize ? finalize() : 1;
    sleep(60);
    return rc;
}
