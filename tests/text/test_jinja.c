/* SPDX-License-Identifier: Apache-2.0 */
/* The Jinja interpreter against Jinja: tests/data/jinja. */
#include "harness.h"

#include "base/alloc.h"
#include "base/json.h"
#include "text/jinja/jinja.h"

static const struct weft_date DAY = {2024, 7, 26};

/* Parses and renders; the rest as weft_jinja_render(). */
static int render(const char *text, const json_t *context,
                  const struct weft_jinja_limits *limits,
                  struct weft_str *out, struct weft_err *err)
{
    struct weft_jinja *jinja = NULL;
    int rc = weft_jinja_parse(text, strlen(text), "t.jinja", &jinja, err);
    if (!rc)
        rc = weft_jinja_render(jinja, context, &DAY, limits, out, NULL, err);
    weft_jinja_free(jinja);
    return rc;
}

/* Goldens hold a zero character, which weft_json_read() refuses. */
static json_t *goldens(void)
{
    json_error_t error;
    json_t *root = json_load_file(weft_test_data("jinja/goldens.json"),
                                  JSON_ALLOW_NUL, &error);
    REQUIRE(root != NULL);
    return root;
}

static void check_case(const char *template, const json_t *wanted,
                       const json_t *context)
{
    struct weft_err err = {0};
    struct weft_str text = {0};
    int rc = render(template, context, NULL, &text, &err);
    bool same = json_is_string(wanted)
                  ? rc == 0 && weft_str_equal(text, weft_json_str(wanted))
                  : rc != 0 && strncmp(err.text, "t.jinja:", 8) == 0;
    if (!same)
        printf("\n    %s\n      gives %s\n      not   %s\n", template,
               rc ? err.text : text.s,
               json_is_string(wanted) ? json_string_value(wanted)
                                      : "an error");
    CHECK(same);
    weft_str_release(&text);
}

static void test_jinja_render_goldens(void)
{
    json_t *root = goldens(), *one;
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, one)
        check_case(json_string_value(json_array_get(one, 0)),
                   json_array_get(one, 1), json_object_get(root, "context"));
    CHECK(i > 700);
    json_decref(root);
}

/* What Jinja has and Weft has not is refused as such. */
static void test_jinja_render_unsupported(void)
{
    json_t *root = goldens(), *one;
    size_t i;
    json_array_foreach(json_object_get(root, "unsupported"), i, one)
    {
        struct weft_err err = {0};
        struct weft_str text = {0};
        int rc = render(json_string_value(one),
                        json_object_get(root, "context"), NULL, &text, &err);
        if (rc != WEFT_EUNSUPPORTED)
            printf("\n    %s: %s\n", json_string_value(one), err.text);
        CHECK_INT(rc, WEFT_EUNSUPPORTED);
        CHECK(strncmp(err.text, "t.jinja:1: ", 11) == 0);
        weft_str_release(&text);
    }
    CHECK(i > 15);
    json_decref(root);
}

static void fails(const char *template,
                  const struct weft_jinja_limits *limits, int code,
                  const char *part)
{
    struct weft_err err = {0};
    json_t *context = json_pack("{s:i, s:[i, i], s:{s:i}}", "n", 3, "list", 1,
                                2, "d", "a", 1);
    struct weft_str text = {0};
    CHECK_FAILS(render(template, context, limits, &text, &err), code, err,
                part);
    json_decref(context);
}

static void test_jinja_errors_name_the_line(void)
{
    fails("a\n{{ n", NULL, WEFT_EFORMAT, "t.jinja:2: the tag has no '}}'");
    fails("{% if n %}\n\n{% for %}", NULL, WEFT_EFORMAT,
          "t.jinja:3: expected a name to set, not '%}'");
    fails("\n{% if n %}\nx\n", NULL, WEFT_EFORMAT,
          "t.jinja:2: this tag has no 'endif'");
    fails("\n\n{% include 'x' %}", NULL, WEFT_EUNSUPPORTED,
          "t.jinja:3: Weft does not run the statement '{% include %}'");
    fails("{% foo %}", NULL, WEFT_EFORMAT, "'{% foo %}' is no statement");
    fails("{{ n }}\n{{ missing.x }}", NULL, WEFT_EINVAL,
          "t.jinja:2: 'missing' is undefined");
    fails("{{ d.b.c }}", NULL, WEFT_EINVAL,
          "t.jinja:1: 'b' of a mapping is undefined");
    fails("{% for x in list %}\n{{ x + 'a' }}{% endfor %}", NULL, WEFT_EINVAL,
          "t.jinja:2: '+' has no meaning between an integer and a string");
    fails("\n{% macro f() %}\n{{ n|nosuch }}\n{% endmacro %}\n{{ f() }}",
          NULL, WEFT_EUNSUPPORTED, "t.jinja:3: Weft has no filter 'nosuch'");
    fails("{{ n is nosuch }}", NULL, WEFT_EUNSUPPORTED,
          "t.jinja:1: Weft has no test 'nosuch'");
    fails("{{ raise_exception('two\nlines') }}", NULL, WEFT_EINVAL,
          "t.jinja:1: the template refuses these messages: two lines");
    fails("{{ list.append(1) }}", NULL, WEFT_EINVAL,
          "append() would change a list");
    fails("{% set d.a = 2 %}", NULL, WEFT_EINVAL,
          "'d.a' cannot be set: only a namespace");
    fails("\xff", NULL, WEFT_EFORMAT, "t.jinja:1: the template is not UTF-8");
}

/* Each bound by a template that would run for ever, or nearly. */
static void test_jinja_limits(void)
{
    const struct weft_jinja_limits few = {.steps = 1000},
                                   small = {.memory_bytes = 1 << 16},
                                   flat = {.nesting = 20};
    fails("{% set r = range(99999) %}{% for a in r %}{{ -1 in r }}"
          "{% endfor %}",
          NULL, WEFT_EINVAL, "takes more than 20000000 steps");
    fails("{% for a in range(100) %}{% for b in range(100) %}{% endfor %}"
          "{% endfor %}",
          &few, WEFT_EINVAL, "takes more than 1000 steps");
    fails("{{ 'abcdefgh' * 999999 * 999999 }}", &small, WEFT_EINVAL,
          "needs more than 65536 bytes");
    fails("{% set ns = namespace(s='x') %}{% for a in range(30) %}"
          "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
          &small, WEFT_EINVAL, "needs more than 65536 bytes");
    fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", NULL,
          WEFT_EINVAL, "nested deeper than 500");
    fails("{% macro f(x) %}{% if x %}{{ f(x - 1) }}{% endif %}{% endmacro %}"
          "{{ f(10) }}",
          &flat, WEFT_EINVAL, "nested deeper than 20");
    char deep[2000];
    memset(deep, '(', sizeof deep);
    memcpy(deep, "{{", 2);
    deep[sizeof deep - 1] = 0;
    fails(deep, NULL, WEFT_EINVAL, "more than 256 brackets");
    for (size_t i = 2; i + 1 < sizeof deep; i++)
        deep[i] = '-';
    memcpy(deep + sizeof deep - 4, "1}}", 3);
    fails(deep, NULL, WEFT_EINVAL, "nested deeper than 500");
}

/* A value nested too deep is found when it is read, compared or printed. */
static void test_jinja_deep_values(void)
{
    struct weft_err err = {0};
    json_t *value = json_array();
    for (int i = 0; i < 1000; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, value);
        value = outer;
    }
    json_t *context = json_pack("{s:o}", "v", value);
    struct weft_str text = {0};
    CHECK_FAILS(render("x", context, NULL, &text, &err), WEFT_EINVAL, err,
                "nested deeper than 500");
    json_decref(context);
}

static void test_date_read(void)
{
    static const char *const wrong[] = {
        "",           "2024",       "2024-7-26",  "2024-13-01", "2024-00-01",
        "2024-01-32", "2023-02-29", "1900-02-29", "2024-04-31", "2024-07-26 ",
        "0000-01-01", "2024/07/26", "--------10", "2024-07-2x"};
    struct weft_date d = {0};
    struct weft_err err = {0};
    REQUIRE_OK(weft_date_read("2024-02-29", &d, &err), err);
    CHECK(d.year == 2024 && d.month == 2 && d.day == 29);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_FAILS(weft_date_read(wrong[i], &d, &err), WEFT_EINVAL, err,
                    "is no date; write YYYY-MM-DD");
}

WEFT_TESTS("text/jinja",
           {"test_jinja_render_goldens", test_jinja_render_goldens},
           {"test_jinja_render_unsupported", test_jinja_render_unsupported},
           {"test_jinja_errors_name_the_line",
            test_jinja_errors_name_the_line},
           {"test_jinja_limits", test_jinja_limits},
           {"test_jinja_deep_values", test_jinja_deep_values},
           {"test_date_read", test_date_read})
