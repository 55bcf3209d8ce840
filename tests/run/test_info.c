/* SPDX-License-Identifier: Apache-2.0 */
#include "run/info.h"

#include <jansson.h>

#include "harness.h"
#include "kern/kern.h"
#include "rt/graph.h"

static struct weft_err err;

static json_t *info(void)
{
    struct weft_string text = {0};
    REQUIRE_OK(weft_info(true, &text, &err), err);
    json_t *o = json_loadb(text.data, text.n, JSON_REJECT_DUPLICATES, NULL);
    REQUIRE(o != NULL);
    CHECK(text.data[text.n - 1] == '\n');
    CHECK(strchr(text.data, '\n') == text.data + text.n - 1);
    weft_string_release(&text);
    return o;
}

static const char *word(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "(none)";
}

static void test_info_json(void)
{
    unsetenv("WEFT_ISA");
    json_t *o = info();
    CHECK_STR(word(o, "version"), weft_version());
    CHECK(strstr(word(o, "build"), "compiler") != NULL);
    CHECK(strstr(word(o, "starpu"), "StarPU 1.") != NULL);
    json_t *m = json_object_get(o, "machine");
    CHECK(json_integer_value(json_object_get(m, "cores")) >= 1);
    CHECK(json_integer_value(json_object_get(m, "memory_bytes")) > 1 << 20);
    CHECK(json_array_size(json_object_get(m, "numa_bytes")) >= 1);
    CHECK(json_is_array(json_object_get(o, "cuda_devices")));
    CHECK(json_is_boolean(json_object_get(o, "cuda_graph_loops")));
    CHECK(json_is_integer(json_object_get(o, "cublaslt")));
    json_t *k = json_object_get(o, "kernels");
    CHECK_STR(word(k, "best"), weft_k_isa_name(weft_k_isa_detect()));
    CHECK_STR(word(k, "chosen"), word(k, "best"));
    CHECK_INT(json_integer_value(
                  json_object_get(json_object_get(o, "limits"), "devices")),
              weft_rt_max_devices());
    json_decref(o);
}

static void test_info_environment(void)
{
    setenv("WEFT_ISA", "c", 1);
    json_t *o = info();
    CHECK_STR(word(json_object_get(o, "environment"), "WEFT_ISA"), "c");
    CHECK_STR(word(json_object_get(o, "kernels"), "chosen"), "c");
    json_decref(o);
    setenv("WEFT_ISA", "mmx\"", 1);
    o = info();
    CHECK(strstr(word(json_object_get(o, "kernels"), "error"), "mmx\"")
          != NULL);
    json_decref(o);
    unsetenv("WEFT_ISA");
}

static void test_info_text(void)
{
    static const char *const part[] = {
        "build\n",        "runtime\n  StarPU",
        "machine\n  CPU", "cores",
        "CUDA devices\n", "kernels\n  best here",
        "limits\n",       "environment\n  WEFT_ISA     not set"};
    struct weft_string text = {0};
    REQUIRE_OK(weft_info(false, &text, &err), err);
    for (size_t i = 0; i < WEFT_COUNT(part); i++)
        CHECK(strstr(text.data, part[i]) != NULL);
    weft_string_release(&text);
}

WEFT_TESTS("run/info", {"test_info_json", test_info_json},
           {"test_info_environment", test_info_environment},
           {"test_info_text", test_info_text})
