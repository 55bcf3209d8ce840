/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a run's configuration, and its last line as a word of the
 * command line: refused with a sentence, or a configuration that may go on
 * with itself.
 *
 * fuzz-sources: src/config/read.c src/config/read_reward.c
 * fuzz-sources: src/config/given.c src/config/check.c src/config/set.c
 * fuzz-sources: src/config/names.c src/config/table.c src/config/write.c
 * fuzz-sources: src/config/schema.c src/job/run_config.c src/plan/dataflow.c
 * fuzz-sources: graphs/algorithms.c graphs/policy.c graphs/settings.c
 * fuzz-sources: graphs/metrics.c
 * fuzz-sources: graphs/keys_data.c graphs/preference.c
 * fuzz-sources: graphs/keys_policy.c graphs/keys_roles.c graphs/keys_values.c
 */
#include <stdlib.h>
#include <string.h>

#include "job/run_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(const char *text, size_t n, int n_words,
                  const char *const *word)
{
    struct weft_config c;
    struct weft_err err = {0};
    int rc = weft_config_parse(text, n, "run.yaml", "/", n_words, word,
                               &weft_run_schema, &c, &err);
    if (rc) {
        if (!err.text[0] || err.code != rc)
            abort();
        return;
    }
    if (!c.run_dir || c.run_dir[0] != '/' || c.iterations < 1
        || c.n_rewards > WEFT_MAX_REWARDS
        || weft_config_check_resume(&c, &c, &err) != 0)
        abort();
    weft_config_release(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *text = (const char *) data;
    check(text, n, 0, NULL);
    size_t start = n;
    while (start > 0 && text[start - 1] != '\n')
        start--;
    char *word = malloc(n - start + 1);
    if (!word)
        return 0;
    memcpy(word, text + start, n - start);
    word[n - start] = 0;
    const char *words[1] = {word};
    check(text, start, 1, words);
    free(word);
    return 0;
}
