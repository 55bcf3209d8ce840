/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the two files of a model folder that describe its architecture. */
#include "model/arch.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

static const size_t MAX_CONFIG_BYTES = (size_t) 4 << 20;

int weft_arch_read(const char *dir, struct weft_arch *out,
                   struct weft_err *err)
{
    struct weft_arch a;
    char *text = NULL;
    size_t n;
    char *config = weft_path_join(dir, "config.json");
    char *generation = weft_path_join(dir, "generation_config.json");
    int rc = config && generation ? 0
                                  : weft_err_nomem(err, dir, 2 * strlen(dir));
    if (!rc && !weft_dir_exists(dir))
        rc = weft_err_set(err, WEFT_ENOTFOUND,
                          "there is no model folder '%s'", dir);
    else if (!rc && !weft_file_exists(config))
        rc = weft_err_set(err, WEFT_ENOTFOUND,
                          "'%s' is no model folder: it has no config.json",
                          dir);
    if (!rc)
        rc = weft_file_read(config, MAX_CONFIG_BYTES, &text, &n, err);
    if (!rc)
        rc = weft_arch_parse(text, n, config, &a, err);
    if (!rc && weft_path_exists(generation)) {
        weft_free(text);
        text = NULL;
        rc = weft_file_read(generation, MAX_CONFIG_BYTES, &text, &n, err);
        if (!rc)
            rc = weft_arch_parse_generation(text, n, generation, &a, err);
    }
    weft_free(text);
    weft_free(config);
    weft_free(generation);
    if (!rc)
        *out = a;
    return rc;
}
