/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of emulated cards. A card has two ranges of addresses as large as
 * whatever a test may allocate: the window, whose addresses are handed out,
 * and where nobody may read or write, and its twin, where allocations are. No
 * address is handed out twice, so one that was freed is noticed.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "emulator.h"

enum {
    POISON = 0xff, /* a NaN of every format */
    RIM = 0x11,    /* what lies around memory */
    ALIGN = 256    /* of cudaMalloc() */
};
static const size_t WINDOW_BYTES = (size_t) 256 << 30;
/* More is not poisoned, or large arenas would fill the host's memory. */
static const size_t POISON_BYTES = (size_t) 64 << 20;

/* What a card holds for an allocation: whole pages, or units of a page that it
 * shares with others (nothing is said of how CUDA does it, but that pages are
 * this large, and that small allocations have parts of them). */
enum { CARD_PAGE = 2 << 20, UNIT = 512, UNITS = CARD_PAGE / UNIT };
static const size_t SHARES_UP_TO = CARD_PAGE / 2;

struct shared_page {
    bool is_used[UNITS];
    int n_used; /* 0: the card does not hold it */
};

struct memory {
    char *window, *twin;
    size_t next; /* bytes */
    size_t held, peak; /* bytes of the card's pages */
    struct shared_page *shared;
    size_t n_shared;
    struct weft_emu_span *block; /* at addresses of the window, ascending */
    size_t n_blocks, max_blocks;
};
static struct memory memories[WEFT_EMU_CARDS];

/* ---- Spans -------------------------------------------------------------- */

static size_t up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static size_t page_bytes(void)
{
    return (size_t) sysconf(_SC_PAGESIZE);
}

size_t weft_emu_span_bytes(size_t n_bytes, size_t align)
{
    return up(up(n_bytes, align) + 64, page_bytes());
}

void weft_emu_span_fill(struct weft_emu_span *s, char *page, size_t n_bytes,
                        size_t align)
{
    static unsigned char n_made;
    size_t bytes = weft_emu_span_bytes(n_bytes, align);
    s->page = page;
    s->at = page + bytes - up(n_bytes, align);
    s->pages_bytes = bytes;
    s->n_bytes = n_bytes;
    s->rim = (unsigned char) (RIM + n_made++ % 128);
    memset(page, s->rim, (size_t) (s->at - page));
    memset(s->at, POISON, n_bytes < POISON_BYTES ? n_bytes : POISON_BYTES);
    memset(s->at + n_bytes, s->rim, (size_t) (page + bytes - s->at) - n_bytes);
}

static bool is_filled(const char *from, const char *to, unsigned char with)
{
    while (from < to)
        if ((unsigned char) *from++ != with)
            return false;
    return true;
}

bool weft_emu_span_is_intact(const struct weft_emu_span *s)
{
    return is_filled(s->page, s->at, s->rim)
        && is_filled(s->at + s->n_bytes, s->page + s->pages_bytes, s->rim);
}

/* ---- Accesses that are wrong -------------------------------------------- */

static struct sigaction before;

static bool lies_in(const char *p, const char *range)
{
    return range && p >= range && p < range + WINDOW_BYTES;
}

/* Says what happened; the access is then made again, and ends the process. */
static void on_fault(int, siginfo_t *info, void *)
{
    static const char host[] =
        "emulated card: the host reads or writes device memory; a copy to "
        "it, or from it, is missing\n";
    static const char kernel[] =
        "emulated card: a kernel or a copy reads or writes outside of device "
        "memory, or in memory that was freed\n";
    const char *p = (const char *) info->si_addr;
    for (int i = 0; i < WEFT_EMU_CARDS; i++) {
        ssize_t n = 0;
        if (lies_in(p, memories[i].window))
            n = write(2, host, sizeof host - 1);
        else if (lies_in(p, memories[i].twin))
            n = write(2, kernel, sizeof kernel - 1);
        (void) n;
    }
    sigaction(SIGSEGV, &before, NULL);
}

static void watch_faults(void)
{
    static bool is_watched;
    struct sigaction act;
    if (is_watched)
        return;
    is_watched = true;
    memset(&act, 0, sizeof act);
    act.sa_sigaction = on_fault;
    act.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &act, &before);
}

/* ---- Device memory ------------------------------------------------------ */

static char *reserve(size_t n_bytes)
{
    void *p = mmap(NULL, n_bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : (char *) p;
}

static bool has_room(struct memory *m, size_t n_bytes)
{
    if (!m->window) {
        m->window = reserve(WINDOW_BYTES);
        m->twin = m->window ? reserve(WINDOW_BYTES) : NULL;
        watch_faults();
    }
    if (m->n_blocks == m->max_blocks) {
        size_t more = m->max_blocks ? 2 * m->max_blocks : 64;
        void *p = realloc(m->block, more * sizeof *m->block);
        if (!p)
            return false;
        m->block = (struct weft_emu_span *) p;
        m->max_blocks = more;
    }
    return m->twin && n_bytes <= WINDOW_BYTES - m->next;
}

/* ---- What a card holds -------------------------------------------------- */

static bool hold(struct memory *m, size_t n_bytes)
{
    const struct weft_emu_setup *setup = weft_emu_setup();
    if (n_bytes > setup->memory_bytes - setup->others_bytes - m->held)
        return false;
    m->held += n_bytes;
    if (m->held > m->peak)
        m->peak = m->held;
    return true;
}

/* n free units one after another in a page, or -1. */
static int find_units(const struct shared_page *page, int n)
{
    int run = 0;
    for (int i = 0; i < UNITS; i++) {
        run = page->is_used[i] ? 0 : run + 1;
        if (run == n)
            return i - n + 1;
    }
    return -1;
}

static void set_units(struct shared_page *page, int first, int n, bool used)
{
    for (int i = first; i < first + n; i++)
        page->is_used[i] = used;
    page->n_used += used ? n : -n;
}

/* A page that is not held, or a new one. */
static struct shared_page *new_shared(struct memory *m)
{
    for (size_t i = 0; i < m->n_shared; i++)
        if (m->shared[i].n_used == 0)
            return &m->shared[i];
    void *more = realloc(m->shared, (m->n_shared + 1) * sizeof *m->shared);
    if (!more)
        return NULL;
    m->shared = (struct shared_page *) more;
    struct shared_page *page = &m->shared[m->n_shared++];
    memset(page, 0, sizeof *page);
    return page;
}

static int units_of(size_t n_bytes)
{
    return (int) (up(n_bytes, UNIT) / UNIT);
}

/* The first place that has room, as no more is known; false: the card is
 * full. */
static bool hold_block(struct memory *m, struct weft_emu_span *s)
{
    int n = units_of(s->n_bytes);
    s->shared = -1;
    if (s->n_bytes > SHARES_UP_TO)
        return hold(m, up(s->n_bytes, CARD_PAGE));
    struct shared_page *page = NULL;
    int first = -1;
    for (size_t i = 0; i < m->n_shared && first < 0; i++) {
        page = &m->shared[i];
        first = page->n_used > 0 ? find_units(page, n) : -1;
    }
    if (first < 0) {
        page = new_shared(m);
        if (!page || !hold(m, CARD_PAGE))
            return false;
        first = 0;
    }
    set_units(page, first, n, true);
    s->shared = (int) (page - m->shared);
    s->unit = first;
    return true;
}

static void give_block(struct memory *m, const struct weft_emu_span *s)
{
    if (s->shared < 0) {
        m->held -= up(s->n_bytes, CARD_PAGE);
        return;
    }
    struct shared_page *page = &m->shared[s->shared];
    set_units(page, s->unit, units_of(s->n_bytes), false);
    if (page->n_used == 0)
        m->held -= CARD_PAGE;
}

/* ---- Blocks ------------------------------------------------------------- */

bool weft_emu_memory_new(int card, size_t n_bytes, void **out)
{
    struct memory *m = &memories[card];
    size_t page = page_bytes(), bytes = weft_emu_span_bytes(n_bytes, ALIGN);
    if (n_bytes > WINDOW_BYTES / 2 || !has_room(m, n_bytes)
        || bytes + page > WINDOW_BYTES - m->next
        || mprotect(m->twin + m->next, bytes, PROT_READ | PROT_WRITE) != 0)
        return false;
    struct weft_emu_span *s = &m->block[m->n_blocks];
    s->n_bytes = n_bytes;
    if (!hold_block(m, s))
        return false;
    m->n_blocks++;
    weft_emu_span_fill(s, m->twin + m->next, n_bytes, ALIGN);
    *out = m->window + (s->at - m->twin);
    m->next += bytes + page;
    return true;
}

/* The block that begins last before p, or there. */
static struct weft_emu_span *block_of(const void *p)
{
    int card = weft_emu_memory_card(p);
    if (card < 0)
        return NULL;
    struct memory *m = &memories[card];
    const char *at = weft_emu_memory_twin(p);
    size_t from = 0, to = m->n_blocks;
    while (from < to) {
        size_t mid = (from + to) / 2;
        if (m->block[mid].at <= at)
            from = mid + 1;
        else
            to = mid;
    }
    return from > 0 ? &m->block[from - 1] : NULL;
}

static void release(struct weft_emu_span *s)
{
    mmap(s->page, s->pages_bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static void forget_blocks(struct memory *m)
{
    free(m->block);
    m->block = NULL;
    m->n_blocks = m->max_blocks = 0;
}

bool weft_emu_memory_free(void *p)
{
    struct weft_emu_span *s = block_of(p);
    if (!s || s->at != weft_emu_memory_twin(p))
        return false;
    struct memory *m = &memories[weft_emu_memory_card(p)];
    if (!weft_emu_span_is_intact(s))
        weft_emu_fail(cudaErrorLaunchFailure,
                      "device memory was written outside of an allocation");
    release(s);
    give_block(m, s);
    size_t behind = (size_t) (m->block + m->n_blocks - (s + 1));
    memmove(s, s + 1, behind * sizeof *s);
    if (--m->n_blocks == 0)
        forget_blocks(m);
    return true;
}

void weft_emu_memory_clear(int card)
{
    struct memory *m = &memories[card];
    for (size_t i = 0; i < m->n_blocks; i++)
        release(&m->block[i]);
    forget_blocks(m);
    free(m->shared);
    m->shared = NULL;
    m->n_shared = m->held = 0;
}

size_t weft_emu_memory_free_bytes(int card)
{
    const struct weft_emu_setup *setup = weft_emu_setup();
    return setup->memory_bytes - setup->others_bytes - memories[card].held;
}

size_t weft_emu_memory_peak(int card)
{
    return memories[card].peak;
}

void weft_emu_memory_new_peak(int card)
{
    memories[card].peak = memories[card].held;
}

int weft_emu_memory_card(const void *p)
{
    for (int i = 0; i < WEFT_EMU_CARDS; i++)
        if (lies_in((const char *) p, memories[i].window))
            return i;
    return -1;
}

bool weft_emu_memory_has(const void *p, size_t n_bytes)
{
    const struct weft_emu_span *s = block_of(p);
    if (!s)
        return false;
    size_t offset = (size_t) (weft_emu_memory_twin(p) - s->at);
    return offset <= s->n_bytes && n_bytes <= s->n_bytes - offset;
}

char *weft_emu_memory_twin(const void *p)
{
    const struct memory *m = &memories[weft_emu_memory_card(p)];
    return m->twin + ((const char *) p - m->window);
}

/* ---- Pinned memory of the host ------------------------------------------ */

struct range {
    char *at;
    size_t n_bytes;
    bool is_ours;
};
static struct range *pinned;
static size_t n_pinned, max_pinned, pinned_bytes; /* ours */

static bool add(void *p, size_t n_bytes, bool is_ours)
{
    if (n_pinned == max_pinned) {
        size_t more = max_pinned ? 2 * max_pinned : 16;
        void *q = realloc(pinned, more * sizeof *pinned);
        if (!q)
            return false;
        pinned = (struct range *) q;
        max_pinned = more;
    }
    pinned[n_pinned++] = range{(char *) p, n_bytes, is_ours};
    return true;
}

void *weft_emu_pinned_new(size_t n_bytes)
{
    if (n_bytes > weft_emu_setup()->pinned_bytes - pinned_bytes)
        return NULL;
    void *p = aligned_alloc(4096, up(n_bytes ? n_bytes : 1, 4096));
    if (p && add(p, n_bytes, true)) {
        pinned_bytes += n_bytes;
        return p;
    }
    free(p);
    return NULL;
}

bool weft_emu_pinned_add(void *p, size_t n_bytes)
{
    for (size_t i = 0; i < n_pinned; i++)
        if ((char *) p < pinned[i].at + pinned[i].n_bytes
            && pinned[i].at < (char *) p + n_bytes)
            return false;
    return add(p, n_bytes, false);
}

bool weft_emu_pinned_remove(void *p, bool is_ours)
{
    for (size_t i = 0; i < n_pinned; i++) {
        if (pinned[i].at != p || pinned[i].is_ours != is_ours)
            continue;
        pinned_bytes -= is_ours ? pinned[i].n_bytes : 0;
        pinned[i] = pinned[--n_pinned];
        if (n_pinned == 0) {
            free(pinned);
            pinned = NULL;
            max_pinned = 0;
        }
        if (is_ours)
            free(p);
        return true;
    }
    return false;
}

bool weft_emu_pinned_has(const void *p, size_t n_bytes)
{
    const char *at = (const char *) p;
    for (size_t i = 0; i < n_pinned; i++)
        if (at >= pinned[i].at && at <= pinned[i].at + pinned[i].n_bytes
            && n_bytes <= (size_t) (pinned[i].at + pinned[i].n_bytes - at))
            return true;
    return false;
}
