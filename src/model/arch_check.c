/* SPDX-License-Identifier: Apache-2.0 */
#include "model/arch.h"

#include <math.h>

/* Larger sizes are typing errors or attacks; the largest published models of
 * these families have about 16384, 126, 128 and 151936. */
enum {
    MAX_HIDDEN = 1 << 16,
    MAX_LAYERS = 1 << 10,
    MAX_HEADS = 1 << 10,
    MAX_HEAD_DIM = 1 << 10,
    MAX_INTERMEDIATE = 1 << 20,
    MAX_VOCAB = 1 << 22,
    MAX_POSITIONS = 1 << 28
};

static int check_range(const char *key, int32_t value, int32_t min,
                       int32_t max, struct weft_err *err)
{
    if (value >= min && value <= max)
        return 0;
    return weft_err_set(err, WEFT_EINVAL,
                        "'%s' is %d; it must be from %d to %d", key, value,
                        min, max);
}

static int check_even(const char *key, int32_t value, struct weft_err *err)
{
    if (value % 2 == 0)
        return 0;
    return weft_err_set(err, WEFT_EINVAL, "'%s' is %d; it must be even", key,
                        value);
}

static int check_sizes(const struct weft_shape *s, struct weft_err *err)
{
    const struct {
        const char *key;
        int32_t value, min, max;
    } size[] = {
        {"hidden_size", s->hidden, 2, MAX_HIDDEN},
        {"num_hidden_layers", s->n_layers, 1, MAX_LAYERS},
        {"num_attention_heads", s->n_heads, 1, MAX_HEADS},
        {"num_key_value_heads", s->n_kv_heads, 1, s->n_heads},
        {"head_dim", s->head_dim, 2, MAX_HEAD_DIM},
        {"intermediate_size", s->intermediate, 1, MAX_INTERMEDIATE},
        {"vocab_size", s->vocab, 2, MAX_VOCAB},
        {"max_position_embeddings", s->max_positions, 1, MAX_POSITIONS},
    };
    for (size_t i = 0; i < WEFT_COUNT(size); i++) {
        int rc = check_range(size[i].key, size[i].value, size[i].min,
                             size[i].max, err);
        if (rc)
            return rc;
    }
    int rc = check_even("hidden_size", s->hidden, err);
    if (!rc)
        rc = check_even("head_dim", s->head_dim, err);
    if (!rc && s->n_heads % s->n_kv_heads != 0)
        rc = weft_err_set(err, WEFT_EINVAL,
                          "'num_key_value_heads' %d does not divide the %d "
                          "'num_attention_heads'",
                          s->n_kv_heads, s->n_heads);
    return rc;
}

static int check_rope(const struct weft_shape *s, struct weft_err *err)
{
    if (!(s->rope_theta >= 1) || !isfinite(s->rope_theta))
        return weft_err_set(err, WEFT_EINVAL,
                            "'rope_theta' is %g; it must be 1 or more",
                            s->rope_theta);
    if (s->rope == WEFT_ROPE_DEFAULT)
        return 0;
    if (!(s->rope_factor >= 1) || !isfinite(s->rope_factor))
        return weft_err_set(err, WEFT_EINVAL,
                            "RoPE's 'factor' is %g or missing; it must be 1 "
                            "or more",
                            s->rope_factor);
    if (s->rope == WEFT_ROPE_LINEAR)
        return 0;
    if (!(s->rope_low > 0) || !(s->rope_high > s->rope_low)
        || !isfinite(s->rope_high))
        return weft_err_set(err, WEFT_EINVAL,
                            "RoPE's 'low_freq_factor' %g and "
                            "'high_freq_factor' %g must be there, above 0, "
                            "and the second larger",
                            s->rope_low, s->rope_high);
    if (s->rope_original < 1)
        return weft_err_set(err, WEFT_EINVAL,
                            "RoPE type llama3 needs "
                            "'original_max_position_embeddings'");
    return 0;
}

int weft_arch_check(const struct weft_arch *a, struct weft_err *err)
{
    const struct weft_shape *s = &a->shape;
    int rc = check_sizes(s, err);
    if (!rc)
        rc = check_rope(s, err);
    if (!rc && !(s->rms_eps > 0 && s->rms_eps <= 0.1f))
        rc = weft_err_set(err, WEFT_EINVAL,
                          "'rms_norm_eps' is %g; it must be above 0 and at "
                          "most 0.1",
                          (double) s->rms_eps);
    if (!rc && !(a->initializer_range >= 0 && a->initializer_range <= 1))
        rc = weft_err_set(err, WEFT_EINVAL,
                          "'initializer_range' is %g; it must be from 0 to 1",
                          a->initializer_range);
    return rc;
}
