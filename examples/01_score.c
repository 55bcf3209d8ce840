/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads a model folder and says how likely a text is, token by token.
 *
 *     $ examples/01_score examples/quickstart/model 'sort 30754: 03457'
 *
 * With "gpu" behind it, on a GPU of this machine.
 */
#include <math.h>
#include <string.h>

#include "check.h"

int main(int argc, char **argv)
{
    struct weft_err err = {0};
    struct weft_context *context;
    struct weft_model *model;
    int32_t *token;
    float *logprob;
    size_t n;
    double sum = 0;

    bool gpu = argc == 4 && strcmp(argv[3], "gpu") == 0;
    if (argc != 3 && !gpu) {
        fprintf(stderr, "usage: %s MODEL TEXT [gpu]\n", argv[0]);
        return 2;
    }
    if (gpu)
        CHECK(weft_context_open_gpus(1, &context, &err));
    else
        CHECK(weft_context_open(1, &context, &err));
    CHECK(weft_model_open(context, argv[1], "f32", &model, &err));
    CHECK(weft_model_logprobs(model, argv[2], strlen(argv[2]), &token,
                              &logprob, &n, &err));
    for (size_t i = 0; i < n; i++) {
        printf("%3zu  token %5d  log p %8.4f\n", i, token[i],
               (double) logprob[i]);
        if (!isnan(logprob[i]))
            sum += (double) logprob[i];
    }
    printf("log p of the text after its first token: %.4f\n", sum);
    weft_array_free(token);
    weft_array_free(logprob);
    weft_model_close(model);
    weft_context_close(context);
    return 0;
}
