/* SPDX-License-Identifier: Apache-2.0 */
/* A pairing heap of tasks. It allocates nothing, so that adding never
 * fails. */
#ifndef WEFT_SCHED_HEAP_H
#define WEFT_SCHED_HEAP_H

#include "base/compiler.h"
#include "rt/policy.h"

/* True when a comes before b. Total order: no two tasks are equal. */
typedef bool (*weft_before_fn)(const struct weft_node *a,
                               const struct weft_node *b);

WEFT_INLINE struct weft_node *weft_heap_meld(struct weft_node *a,
                                             struct weft_node *b,
                                             weft_before_fn before)
{
    if (!a || !b)
        return a ? a : b;
    if (before(b, a)) {
        struct weft_node *t = a;
        a = b;
        b = t;
    }
    b->sibling = a->child;
    a->child = b;
    return a;
}

WEFT_INLINE void weft_heap_add(struct weft_node **top, struct weft_node *node,
                               weft_before_fn before)
{
    node->child = node->sibling = NULL;
    *top = weft_heap_meld(*top, node, before);
}

/* Removes and returns the first task; *top is not NULL. */
WEFT_INLINE struct weft_node *weft_heap_take(struct weft_node **top,
                                             weft_before_fn before)
{
    struct weft_node *first = *top;
    /* list of melded pairs, the last one first */
    struct weft_node *pairs = NULL;
    for (struct weft_node *a = first->child; a;) {
        struct weft_node *b = a->sibling;
        struct weft_node *rest = b ? b->sibling : NULL;
        a->sibling = NULL;
        if (b)
            b->sibling = NULL;
        a = weft_heap_meld(a, b, before);
        a->sibling = pairs;
        pairs = a;
        a = rest;
    }
    struct weft_node *merged = NULL;
    while (pairs) {
        struct weft_node *next = pairs->sibling;
        pairs->sibling = NULL;
        merged = weft_heap_meld(merged, pairs, before);
        pairs = next;
    }
    *top = merged;
    first->child = NULL;
    return first;
}

#endif
