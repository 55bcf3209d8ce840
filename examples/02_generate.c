/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generates from a prompt, and shows that the same seed gives the same text:
 * a token's draw depends on seed, sample and position, not on the clock.
 *
 *     $ examples/02_generate examples/quickstart/model 'sort 30754: '
 *
 * With "gpu" behind it, on a GPU of this machine.
 */
#include <string.h>

#include "check.h"

int main(int argc, char **argv)
{
    struct weft_err err = {0};
    struct weft_context *context;
    struct weft_model *model;
    struct weft_completion first, again;
    struct weft_generate_options options = {
        .max_new_tokens = 8, .temperature = 1, .top_p = 1, .seed = 7};

    bool gpu = argc == 4 && strcmp(argv[3], "gpu") == 0;
    if (argc != 3 && !gpu) {
        fprintf(stderr, "usage: %s MODEL PROMPT [gpu]\n", argv[0]);
        return 2;
    }
    if (gpu)
        CHECK(weft_context_open_gpus(1, &context, &err));
    else
        CHECK(weft_context_open(1, &context, &err));
    CHECK(weft_model_open(context, argv[1], "f32", &model, &err));
    size_t n = strlen(argv[2]);
    CHECK(weft_model_generate(model, argv[2], n, &options, &first, &err));
    CHECK(weft_model_generate(model, argv[2], n, &options, &again, &err));
    fputs(argv[2], stdout);
    fwrite(first.text.s, 1, first.text.n, stdout); /* any bytes */
    printf("  (%zu tokens, %s)\n", first.n,
           first.ended ? "ended by itself" : "cut at the limit");
    int same = first.n == again.n
            && memcmp(first.logprob, again.logprob,
                      first.n * sizeof *first.logprob)
                   == 0;
    printf("the same seed again: %s\n", same ? "the same bits" : "differs");
    weft_completion_clear(&first);
    weft_completion_clear(&again);
    weft_model_close(model);
    weft_context_close(context);
    return same ? 0 : 1;
}
