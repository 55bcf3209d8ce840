/* SPDX-License-Identifier: Apache-2.0 */
/* The pictures of doc/layouts.md, one function each. */
#ifndef WEFT_DOC_DRAW_H
#define WEFT_DOC_DRAW_H

void draw_mesh(void);
void draw_blocks(void);
void draw_layer(void);
void draw_groups(void);
void draw_zero(void);
void draw_moves(void);
/* Scores of n runs, "LABEL=metrics.jsonl". Returns an exit status. */
int draw_curves(int n, char **run);
/* The shortest iteration of a run's trace.json. Returns an exit status. */
int draw_timeline(const char *path);

#endif
