/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tile is to StarPU: a handle that orders tasks and messages. A tile has
 * one copy, at its place, and its handle is at home there. The memory is the
 * pool's, within the place's budget, so that StarPU never has to find some: it
 * would evict, or hang, where there is none. Copies between places are tasks
 * (copy.c); so StarPU neither allocates nor moves a tile, and a task or message
 * that would make it do so is an error of ours, which ends the job. Host memory
 * is reached from everywhere, and there is nothing to be moved.
 *
 * StarPU-MPI asks for pointer and datatype when a message is posted, so that a
 * temporary tile gets its memory then.
 */
#include <stdio.h>

#include "rt/internal.h"
#include "rt/transfer.h"

#if STARPU_MAJOR_VERSION == 1 && STARPU_MINOR_VERSION < 4
/* the type in register_data_handle; it is int since 1.4 */
typedef unsigned home_node;
#else
typedef int home_node;
#endif

struct tile_interface {
    struct weft_tile *tile;
};

static struct weft_tile *tile_of(starpu_data_handle_t handle)
{
    struct tile_interface *itf = starpu_data_get_interface_on_node(
        handle, STARPU_MAIN_RAM);
    return itf->tile;
}

static void tile_register(starpu_data_handle_t handle, home_node home,
                          void *data_interface)
{
    (void) home;
    for (unsigned node = 0; node < STARPU_MAXNODES; node++) {
        struct tile_interface *itf = starpu_data_get_interface_on_node(handle,
                                                                       node);
        *itf = *(struct tile_interface *) data_interface;
    }
}

/* Ends the job unless a task on the node can use the tile as it is. */
static void check_reach(const struct weft_tile *tile, unsigned node)
{
    struct weft_err err;
    char label[160];
    if (weft_tile_node(tile) == STARPU_MAIN_RAM
        || weft_tile_node(tile) == node)
        return;
    weft_tile_label(tile, label, sizeof label);
    weft_err_set(&err, WEFT_EINTERNAL,
                 "'%s' lies in a GPU's memory, at place %d, and is wanted at "
                 "StarPU's node %u; copy it there first",
                 label, tile->id.place, node);
    weft_world_abort(&err);
}

static starpu_ssize_t tile_allocate(void *data_interface, unsigned node)
{
    const struct weft_tile *tile =
        ((struct tile_interface *) data_interface)->tile;
    check_reach(tile, node);
    return (starpu_ssize_t) tile->bytes;
}

static void tile_free(void *data_interface, unsigned node)
{
    (void) data_interface;
    (void) node;
}

static int tile_copy(void *from, unsigned from_node, void *to,
                     unsigned to_node, void *async_data)
{
    const struct weft_tile *tile = ((struct tile_interface *) from)->tile;
    (void) to;
    (void) async_data;
    check_reach(tile, from_node);
    check_reach(tile, to_node);
    return 0;
}

/* StarPU also asks when a handle is registered or unregistered; nobody uses
 * the tile then, and the answer is NULL. StarPU-MPI asks for the node of its
 * own thread, or of a GPU's worker whose task's end lets a message that came
 * early in, for memory of the host: it is the same. */
static void *tile_pointer(void *data_interface, unsigned node)
{
    struct weft_tile *tile = ((struct tile_interface *) data_interface)->tile;
    if (weft_tile_node(tile) != node
        && weft_tile_node(tile) != STARPU_MAIN_RAM)
        return NULL;
    return atomic_load(&tile->n_users) > 0 ? weft_tile_message(tile) : NULL;
}

static size_t tile_size(starpu_data_handle_t handle)
{
    return tile_of(handle)->bytes;
}

/* Only performance models tell tasks apart by the footprint, and codelets have
 * none. */
static uint32_t tile_footprint(starpu_data_handle_t handle)
{
    (void) handle;
    return 0;
}

static int tile_compare(void *a, void *b)
{
    return ((struct tile_interface *) a)->tile->bytes
        == ((struct tile_interface *) b)->tile->bytes;
}

static void tile_display(starpu_data_handle_t handle, FILE *f)
{
    fprintf(f, "tile\t%zu\t", tile_of(handle)->bytes);
}

static starpu_ssize_t tile_describe(void *data_interface, char *text,
                                    size_t size)
{
    struct weft_tile *tile = ((struct tile_interface *) data_interface)->tile;
    return snprintf(text, size, "%zu", tile->bytes);
}

static const struct starpu_data_copy_methods tile_copies = {
    .any_to_any = tile_copy};

static struct starpu_data_interface_ops tile_ops = {
    .register_data_handle = tile_register,
    .allocate_data_on_node = tile_allocate,
    .free_data_on_node = tile_free,
    .copy_methods = &tile_copies,
    .to_pointer = tile_pointer,
    .get_size = tile_size,
    .footprint = tile_footprint,
    .compare = tile_compare,
    .display = tile_display,
    .describe = tile_describe,
    .interfaceid = STARPU_UNKNOWN_INTERFACE_ID,
    .interface_size = sizeof(struct tile_interface),
    .dontcache = 1,
    .name = (char *) "WEFT_TILE"};

void weft_tile_register(struct weft_tile *tile)
{
    struct tile_interface itf = {tile};
    starpu_data_register(&tile->handle, (int) weft_tile_node(tile), &itf,
                         &tile_ops);
}

void weft_interface_start(void)
{
    if (tile_ops.interfaceid == STARPU_UNKNOWN_INTERFACE_ID)
        tile_ops.interfaceid = (enum starpu_data_interface_id)
            starpu_data_interface_get_next_id();
}

/* ---- Messages --------------------------------------------------------- */

#ifdef WEFT_HAVE_MPI

/* MPI counts in int, so a large tile is a number of GiB and a rest. */
static int tile_datatype(starpu_data_handle_t handle, MPI_Datatype *type)
{
    enum { GIB = 1 << 30 };
    size_t bytes = tile_of(handle)->bytes;
    if (bytes < GIB) {
        MPI_Type_contiguous((int) bytes, MPI_BYTE, type);
    } else {
        MPI_Datatype gib;
        MPI_Type_contiguous(GIB, MPI_BYTE, &gib);
        MPI_Type_create_struct(
            2, (int[]){(int) (bytes / GIB), (int) (bytes % GIB)},
            (MPI_Aint[]){0, (MPI_Aint) (bytes / GIB * GIB)},
            (MPI_Datatype[]){gib, MPI_BYTE}, type);
        MPI_Type_free(&gib);
    }
    MPI_Type_commit(type);
    return 0;
}

static void tile_datatype_free(MPI_Datatype *type)
{
    MPI_Type_free(type);
}

void weft_interface_messages(void)
{
    starpu_mpi_interface_datatype_register(tile_ops.interfaceid,
                                           tile_datatype, tile_datatype_free);
}

#endif
