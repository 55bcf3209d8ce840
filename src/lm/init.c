/* SPDX-License-Identifier: Apache-2.0 */
#include "lm/init.h"

#include "base/alloc.h"
#include "base/file.h"
#include "text/tokenizer.h"

/* Places the tokenizer, and takes vocabulary size and special ids from it. */
static int place_tokenizer(const struct weft_init_options *o, const char *dir,
                           struct weft_arch *a, struct weft_err *err)
{
    struct weft_tokenizer_ids ids;
    if (!o->tokenizer && a->shape.vocab == 0)
        return weft_err_set(err, WEFT_EINVAL,
                            "without a tokenizer the vocabulary's size must "
                            "be given");
    if (!o->tokenizer)
        return 0;
    int rc = weft_tokenizer_place(o->tokenizer, dir, &ids, err);
    if (rc)
        return rc;
    if (a->shape.vocab == 0)
        a->shape.vocab = ids.size;
    a->bos = ids.bos;
    a->pad = ids.pad;
    if (ids.eos >= 0)
        a->eos[a->n_eos++] = ids.eos;
    if (a->shape.vocab < ids.size)
        return weft_err_set(err, WEFT_EINVAL,
                            "a vocabulary of %d is smaller than the "
                            "tokenizer's %d tokens",
                            a->shape.vocab, ids.size);
    return 0;
}

int weft_init_model(const struct weft_init_options *o, const char *dir,
                    struct weft_arch *arch_out, struct weft_err *err)
{
    struct weft_arch a;
    char *stage;
    int rc = weft_init_arch(o, &a, err);
    if (!rc && !weft_path_is_free(dir))
        rc = weft_err_set(err, WEFT_EINVAL,
                          "'%s' exists already; remove it or choose another "
                          "name",
                          dir);
    if (!rc)
        rc = weft_dir_stage(dir, &stage, err);
    if (rc)
        return rc;
    rc = place_tokenizer(o, stage, &a, err);
    if (!rc)
        rc = weft_arch_check(&a, err);
    if (!rc)
        rc = weft_init_write(o, &a, stage, err);
    if (!rc)
        rc = weft_dir_commit(stage, dir, false, err);
    else
        (void) weft_dir_remove(stage, NULL);
    weft_free(stage);
    if (!rc && arch_out)
        *arch_out = a;
    return rc;
}
