/* SPDX-License-Identifier: Apache-2.0 */
/* The methods of Python's strings, mappings and lists. */
#include "text/jinja/impl.h"

#include <string.h>

#include "text/unicode/unicode.h"

typedef struct weft_jvalue (*method_fn)(struct weft_jstate *st,
                                        struct weft_jvalue self,
                                        struct weft_str name,
                                        const struct weft_jargs *args);

/* ---- Strings ---------------------------------------------------------- */

static struct weft_jvalue s_strip(struct weft_jstate *st,
                                  struct weft_jvalue self,
                                  struct weft_str name,
                                  const struct weft_jargs *args)
{
    struct weft_str chars = {0};
    bool given = args->n > 0 && args->item[0].kind != WEFT_J_NONE;
    if (given)
        chars = weft_j_arg_text(st, args, 0, "chars", "");
    weft_j_step(st, self.text.n / 64);
    return weft_j_text(weft_j_strip(self.text, given ? &chars : NULL,
                                    name.s[0] != 'r', name.s[0] != 'l'));
}

static void push_part(struct weft_jstate *st, struct weft_jvalue list,
                      struct weft_str s, size_t from, size_t to)
{
    weft_j_push(st, list, weft_j_string(s.s + from, to - from));
}

/* split() on white space; the last part keeps what most leaves. */
static struct weft_jvalue split_space(struct weft_jstate *st,
                                      struct weft_str s, int64_t most)
{
    struct weft_jvalue out = weft_j_list(st, WEFT_J_LIST);
    size_t at = weft_j_space(s.s, s.n), start;
    uint32_t c;
    while (at < s.n && most != 0) {
        int n;
        for (start = at; at < s.n; at += (size_t) n) {
            n = weft_utf8_next(s.s + at, s.n - at, &c);
            n = n < 0 ? -n : n;
            if (weft_j_is_space(c))
                break;
        }
        push_part(st, out, s, start, at);
        most -= most > 0;
        at += weft_j_space(s.s + at, s.n - at);
    }
    if (at < s.n)
        push_part(st, out, s, at, s.n);
    return out;
}

/* The last place of b in the first n bytes of a, or SIZE_MAX. */
static size_t search_back(struct weft_str a, struct weft_str b, size_t n)
{
    for (size_t i = n >= b.n ? n - b.n + 1 : 0; i-- > 0;)
        if (memcmp(a.s + i, b.s, b.n) == 0)
            return i;
    return SIZE_MAX;
}

static struct weft_jvalue split_back(struct weft_jstate *st,
                                     struct weft_str s, struct weft_str by,
                                     int64_t most)
{
    struct weft_jvalue parts = weft_j_list(st, WEFT_J_LIST);
    struct weft_jvalue out = weft_j_list(st, WEFT_J_LIST);
    size_t end = s.n, at;
    while (most != 0 && (at = search_back(s, by, end)) != SIZE_MAX) {
        push_part(st, parts, s, at + by.n, end);
        end = at;
        most -= most > 0;
    }
    push_part(st, parts, s, 0, end);
    for (size_t i = parts.list->n; i-- > 0;)
        weft_j_push(st, out, parts.list->item[i]);
    return out;
}

static struct weft_jvalue s_split(struct weft_jstate *st,
                                  struct weft_jvalue self,
                                  struct weft_str name,
                                  const struct weft_jargs *args)
{
    const struct weft_jvalue *by = weft_j_arg(st, args, 0, "sep");
    int64_t most = weft_j_arg_int(st, args, 1, "maxsplit", -1);
    struct weft_jvalue out = weft_j_list(st, WEFT_J_LIST);
    struct weft_str s = self.text, sep;
    size_t at = 0, next;
    weft_j_step(st, s.n / 64);
    if (!by || by->kind == WEFT_J_NONE) {
        if (name.s[0] == 'r' && most >= 0)
            weft_j_fail(st, WEFT_EUNSUPPORTED,
                        "rsplit() on white space with a limit");
        return split_space(st, s, most);
    }
    sep = weft_j_arg_text(st, args, 0, "sep", "");
    if (sep.n == 0)
        weft_j_fail(st, WEFT_EINVAL, "split() by an empty string");
    if (name.s[0] == 'r')
        return split_back(st, s, sep, most);
    while (most != 0 && (next = weft_j_search(s, sep, at)) != SIZE_MAX) {
        push_part(st, out, s, at, next);
        at = next + sep.n;
        most -= most > 0;
    }
    push_part(st, out, s, at, s.n);
    return out;
}

static struct weft_jvalue s_partition(struct weft_jstate *st,
                                      struct weft_jvalue self,
                                      struct weft_str name,
                                      const struct weft_jargs *args)
{
    struct weft_jvalue out = weft_j_list(st, WEFT_J_TUPLE);
    struct weft_str s = self.text,
                    sep = weft_j_arg_text(st, args, 0, "sep", "");
    bool back = name.s[0] == 'r';
    if (sep.n == 0)
        weft_j_fail(st, WEFT_EINVAL, "partition() by an empty string");
    size_t at = back ? search_back(s, sep, s.n) : weft_j_search(s, sep, 0);
    size_t none = back ? 0 : s.n;
    bool found = at != SIZE_MAX;
    push_part(st, out, s, 0, found ? at : none);
    weft_j_push(st, out, weft_j_string(sep.s, found ? sep.n : 0));
    push_part(st, out, s, found ? at + sep.n : none, s.n);
    return out;
}

static struct weft_jvalue s_splitlines(struct weft_jstate *st,
                                       struct weft_jvalue self,
                                       struct weft_str name,
                                       const struct weft_jargs *args)
{
    bool keep = weft_j_arg_bool(st, args, 0, "keepends", false);
    struct weft_jvalue out = weft_j_list(st, WEFT_J_LIST);
    struct weft_str s = self.text;
    size_t start = 0;
    (void) name;
    for (size_t i = 0; i < s.n;) {
        uint32_t c = 0;
        int n = weft_utf8_next(s.s + i, s.n - i, &c);
        size_t end = i, length = (size_t) (n < 0 ? -n : n);
        i += length;
        if (!((c >= 0xa && c <= 0xd) || (c >= 0x1c && c <= 0x1e) || c == 0x85
              || c == 0x2028 || c == 0x2029))
            continue;
        if (c == '\r' && i < s.n && s.s[i] == '\n')
            i++;
        push_part(st, out, s, start, keep ? i : end);
        start = i;
    }
    if (start < s.n)
        push_part(st, out, s, start, s.n);
    return out;
}

static struct weft_jvalue s_replace(struct weft_jstate *st,
                                    struct weft_jvalue self,
                                    struct weft_str name,
                                    const struct weft_jargs *args)
{
    (void) name;
    weft_j_step(st, self.text.n / 64);
    return weft_j_replace(st, self.text,
                          weft_j_arg_text(st, args, 0, "old", ""),
                          weft_j_arg_text(st, args, 1, "new", ""),
                          weft_j_arg_int(st, args, 2, "count", -1));
}

static bool has_end(struct weft_str s, struct weft_str part, bool front)
{
    return part.n <= s.n
        && memcmp(front ? s.s : s.s + s.n - part.n, part.s, part.n) == 0;
}

static struct weft_jvalue s_starts(struct weft_jstate *st,
                                   struct weft_jvalue self,
                                   struct weft_str name,
                                   const struct weft_jargs *args)
{
    bool front = name.s[0] == 's', found = false;
    if (args->item[0].kind != WEFT_J_TUPLE)
        return weft_j_bool(has_end(
            self.text, weft_j_arg_text(st, args, 0, "prefix", ""), front));
    const struct weft_jlist *any = args->item[0].list;
    for (size_t i = 0; i < any->n && !found; i++) {
        if (!weft_j_is_string(any->item[i]))
            weft_j_fail(st, WEFT_EINVAL, "startswith() takes no list with %s",
                        weft_j_type(any->item[i]));
        found = has_end(self.text, any->item[i].text, front);
    }
    return weft_j_bool(found);
}

static struct weft_jvalue s_remove(struct weft_jstate *st,
                                   struct weft_jvalue self,
                                   struct weft_str name,
                                   const struct weft_jargs *args)
{
    bool front = weft_j_is(name, "removeprefix");
    struct weft_str part = weft_j_arg_text(st, args, 0, "part", "");
    struct weft_str s = self.text;
    if (!has_end(s, part, front))
        return weft_j_text(s);
    return weft_j_string(front ? s.s + part.n : s.s, s.n - part.n);
}

static struct weft_jvalue s_case(struct weft_jstate *st,
                                 struct weft_jvalue self,
                                 struct weft_str name,
                                 const struct weft_jargs *args)
{
    (void) args;
    return weft_j_case(st, self.text,
                       name.s[0] == 'l'   ? WEFT_JCASE_LOWER
                       : name.s[0] == 'u' ? WEFT_JCASE_UPPER
                       : name.s[0] == 'c' ? WEFT_JCASE_CAPITAL
                                          : WEFT_JCASE_TITLE);
}

static struct weft_jvalue s_join(struct weft_jstate *st,
                                 struct weft_jvalue self,
                                 struct weft_str name,
                                 const struct weft_jargs *args)
{
    struct weft_jlist all = weft_j_items(st, args->item[0]);
    struct weft_jout out = {0};
    (void) name;
    for (size_t i = 0; i < all.n; i++) {
        if (!weft_j_is_string(all.item[i]))
            weft_j_fail(st, WEFT_EINVAL, "join() of %s, not a string",
                        weft_j_type(all.item[i]));
        if (i > 0)
            weft_j_add_text(st, &out, self.text);
        weft_j_add_text(st, &out, all.item[i].text);
    }
    return weft_j_taken(&out);
}

/* find, rfind, index, rindex: in characters. */
static struct weft_jvalue s_find(struct weft_jstate *st,
                                 struct weft_jvalue self,
                                 struct weft_str name,
                                 const struct weft_jargs *args)
{
    struct weft_str s = self.text,
                    part = weft_j_arg_text(st, args, 0, "sub", "");
    int64_t n = (int64_t) weft_j_chars(s);
    int64_t from = weft_j_arg_int(st, args, 1, "start", 0);
    int64_t to = weft_j_arg_int(st, args, 2, "end", n);
    from = from < 0 ? from + n < 0 ? 0 : from + n : from;
    to = to < 0 ? to + n < 0 ? 0 : to + n : to > n ? n : to;
    size_t at = SIZE_MAX;
    weft_j_step(st, s.n / 64);
    if (from <= to) {
        size_t start = weft_j_char_offset(s, (size_t) from);
        struct weft_str in = {s.s + start,
                              weft_j_char_offset(s, (size_t) to) - start};
        at = name.s[0] == 'r' ? search_back(in, part, in.n)
                              : weft_j_search(in, part, 0);
        if (at != SIZE_MAX)
            at = weft_j_chars((struct weft_str){s.s, start + at});
    }
    if (at == SIZE_MAX && name.s[name.n - 1] == 'x')
        weft_j_fail(st, WEFT_EINVAL, "%.*s(): the string is not there",
                    (int) name.n, name.s);
    return weft_j_int(at == SIZE_MAX ? -1 : (int64_t) at);
}

static struct weft_jvalue s_count(struct weft_jstate *st,
                                  struct weft_jvalue self,
                                  struct weft_str name,
                                  const struct weft_jargs *args)
{
    struct weft_str part = weft_j_arg_text(st, args, 0, "sub", "");
    int64_t n = 0;
    (void) name;
    weft_j_step(st, self.text.n / 64);
    if (part.n == 0)
        return weft_j_int((int64_t) weft_j_chars(self.text) + 1);
    for (size_t at = 0; (at = weft_j_search(self.text, part, at)) != SIZE_MAX;
         at += part.n)
        n++;
    return weft_j_int(n);
}

/* isdigit, isalpha, ...: of ASCII. */
static struct weft_jvalue s_is(struct weft_jstate *st,
                               struct weft_jvalue self, struct weft_str name,
                               const struct weft_jargs *args)
{
    struct weft_str s = self.text;
    bool all = s.n > 0, cased = false;
    char kind = name.s[2];
    (void) args;
    if (weft_j_is(name, "isspace"))
        return weft_j_bool(all && weft_j_space(s.s, s.n) == s.n);
    for (size_t i = 0; i < s.n && all; i++) {
        unsigned char c = (unsigned char) s.s[i];
        bool lower = c >= 'a' && c <= 'z', upper = c >= 'A' && c <= 'Z';
        bool digit = c >= '0' && c <= '9';
        if (c >= 128)
            weft_j_fail(st, WEFT_EUNSUPPORTED,
                        "%.*s() of characters beyond ASCII", (int) name.n,
                        name.s);
        cased = cased || lower || upper;
        all = weft_j_is(name, "isalnum") ? lower || upper || digit
            : kind == 'a'                ? lower || upper
            : kind == 'l'                ? !upper
            : kind == 'u'                ? !lower
                                         : digit;
    }
    return weft_j_bool(all && (cased || (kind != 'l' && kind != 'u')));
}

/* "{} {0} {name}".format(...), without conversions. */
static struct weft_jvalue s_format(struct weft_jstate *st,
                                   struct weft_jvalue self,
                                   struct weft_str name,
                                   const struct weft_jargs *args)
{
    struct weft_str s = self.text;
    struct weft_jout out = {0};
    int64_t next = 0;
    (void) name;
    for (size_t i = 0; i < s.n; i++) {
        const struct weft_jvalue *v = NULL;
        bool twice = i + 1 < s.n && s.s[i + 1] == s.s[i];
        if ((s.s[i] != '{' && s.s[i] != '}') || twice) {
            weft_j_add(st, &out, s.s + i, 1);
            i += twice && (s.s[i] == '{' || s.s[i] == '}');
            continue;
        }
        size_t end = weft_j_search(s, WEFT_JSTR("}"), i + 1);
        struct weft_str field = {s.s + i + 1,
                                 end == SIZE_MAX ? 0 : end - i - 1};
        bool number = field.n > 0 && field.n < 4;
        int64_t at = 0;
        if (s.s[i] == '}' || end == SIZE_MAX)
            weft_j_fail(st, WEFT_EINVAL, "format() with a single brace");
        for (size_t k = 0; k < field.n; k++) {
            number = number && field.s[k] >= '0' && field.s[k] <= '9';
            at = number ? 10 * at + field.s[k] - '0' : at;
            if (memchr("!:.[", field.s[k], 4))
                weft_j_fail(st, WEFT_EUNSUPPORTED,
                            "format() with the field '{%.*s}'",
                            field.n > 20 ? 20 : (int) field.n, field.s);
        }
        if (field.n == 0)
            at = next++;
        if (number || field.n == 0)
            v = at < (int64_t) args->n ? &args->item[at] : NULL;
        else
            v = weft_j_find(st, args->named, weft_j_text(field));
        if (!v)
            weft_j_fail(st, WEFT_EINVAL, "format() has no value for '{%.*s}'",
                        field.n > 20 ? 20 : (int) field.n, field.s);
        weft_j_add_value(st, &out, *v);
        i = end;
    }
    return weft_j_taken(&out);
}

/* ---- Mappings and lists ----------------------------------------------- */

static struct weft_jvalue d_view(struct weft_jstate *st,
                                 struct weft_jvalue self,
                                 struct weft_str name,
                                 const struct weft_jargs *args)
{
    struct weft_jvalue out = weft_j_list(st, WEFT_J_VIEW);
    (void) args;
    for (size_t i = 0; i < self.dict->n; i++) {
        struct weft_jpair *pair = &self.dict->pair[i];
        weft_j_push(st, out,
                    name.s[0] == 'k' ? pair->key
                    : name.s[0] == 'v'
                        ? pair->value
                        : weft_j_pair(st, pair->key, pair->value));
    }
    return out;
}

static struct weft_jvalue d_get(struct weft_jstate *st,
                                struct weft_jvalue self, struct weft_str name,
                                const struct weft_jargs *args)
{
    struct weft_jvalue *found = weft_j_find(st, self, args->item[0]);
    (void) name;
    return found ? *found : args->n > 1 ? args->item[1] : weft_j_none();
}

static struct weft_jvalue copy(struct weft_jstate *st,
                               struct weft_jvalue self, struct weft_str name,
                               const struct weft_jargs *args)
{
    (void) st;
    (void) name;
    (void) args;
    return self; /* nothing can change it */
}

static struct weft_jvalue l_count(struct weft_jstate *st,
                                  struct weft_jvalue self,
                                  struct weft_str name,
                                  const struct weft_jargs *args)
{
    int64_t n = 0;
    weft_j_step(st, self.list->n);
    for (size_t i = 0; i < self.list->n; i++) {
        bool equal = weft_j_equal(st, self.list->item[i], args->item[0]);
        if (equal && name.s[0] == 'i')
            return weft_j_int((int64_t) i);
        n += equal;
    }
    if (name.s[0] == 'i')
        weft_j_fail(st, WEFT_EINVAL, "index(): the value is not in the list");
    return weft_j_int(n);
}

static struct weft_jvalue changes(struct weft_jstate *st,
                                  struct weft_jvalue self,
                                  struct weft_str name,
                                  const struct weft_jargs *args)
{
    (void) args;
    weft_j_fail(st, WEFT_EINVAL,
                "%.*s() would change %s, which a chat template must not",
                (int) name.n, name.s, weft_j_type(self));
}

/* ---- Loops ------------------------------------------------------------ */

static struct weft_jvalue o_cycle(struct weft_jstate *st,
                                  struct weft_jvalue self,
                                  struct weft_str name,
                                  const struct weft_jargs *args)
{
    (void) st;
    (void) name;
    return args->item[self.loop->at % args->n];
}

static struct weft_jvalue o_changed(struct weft_jstate *st,
                                    struct weft_jvalue self,
                                    struct weft_str name,
                                    const struct weft_jargs *args)
{
    struct weft_jloop *l = self.loop;
    bool same = l->changed && l->n_changed == args->n;
    (void) name;
    for (size_t i = 0; same && i < args->n; i++)
        same = weft_j_equal(st, l->changed[i], args->item[i]);
    l->changed = args->item;
    l->n_changed = args->n;
    return weft_j_bool(!same);
}

/* ---- All -------------------------------------------------------------- */

enum owner { STRINGS = 1, DICTS = 2, LISTS = 4, TUPLES = 8, LOOPS = 16 };

static const struct {
    const char *name;
    int owner;
    size_t least, most; /* arguments */
    const char *names;
    method_fn call;
} METHODS[] = {{"strip", STRINGS, 0, 1, "", s_strip},
               {"lstrip", STRINGS, 0, 1, "", s_strip},
               {"rstrip", STRINGS, 0, 1, "", s_strip},
               {"split", STRINGS, 0, 2, "sep maxsplit", s_split},
               {"rsplit", STRINGS, 0, 2, "sep maxsplit", s_split},
               {"partition", STRINGS, 1, 1, "", s_partition},
               {"rpartition", STRINGS, 1, 1, "", s_partition},
               {"splitlines", STRINGS, 0, 1, "keepends", s_splitlines},
               {"replace", STRINGS, 2, 3, "count", s_replace},
               {"startswith", STRINGS, 1, 1, "", s_starts},
               {"endswith", STRINGS, 1, 1, "", s_starts},
               {"removeprefix", STRINGS, 1, 1, "", s_remove},
               {"removesuffix", STRINGS, 1, 1, "", s_remove},
               {"lower", STRINGS, 0, 0, "", s_case},
               {"upper", STRINGS, 0, 0, "", s_case},
               {"capitalize", STRINGS, 0, 0, "", s_case},
               {"title", STRINGS, 0, 0, "", s_case},
               {"join", STRINGS, 1, 1, "", s_join},
               {"find", STRINGS, 1, 3, "", s_find},
               {"rfind", STRINGS, 1, 3, "", s_find},
               {"index", STRINGS, 1, 3, "", s_find},
               {"rindex", STRINGS, 1, 3, "", s_find},
               {"count", STRINGS, 1, 1, "", s_count},
               {"isdigit", STRINGS, 0, 0, "", s_is},
               {"isdecimal", STRINGS, 0, 0, "", s_is},
               {"isnumeric", STRINGS, 0, 0, "", s_is},
               {"isalpha", STRINGS, 0, 0, "", s_is},
               {"isalnum", STRINGS, 0, 0, "", s_is},
               {"islower", STRINGS, 0, 0, "", s_is},
               {"isupper", STRINGS, 0, 0, "", s_is},
               {"isspace", STRINGS, 0, 0, "", s_is},
               {"format", STRINGS, 0, SIZE_MAX, NULL, s_format},
               {"keys", DICTS, 0, 0, "", d_view},
               {"values", DICTS, 0, 0, "", d_view},
               {"items", DICTS, 0, 0, "", d_view},
               {"get", DICTS, 1, 2, "", d_get},
               {"copy", DICTS | LISTS, 0, 0, "", copy},
               {"count", LISTS | TUPLES, 1, 1, "", l_count},
               {"index", LISTS | TUPLES, 1, 1, "", l_count},
               {"pop", DICTS | LISTS, 0, SIZE_MAX, NULL, changes},
               {"clear", DICTS | LISTS, 0, SIZE_MAX, NULL, changes},
               {"update", DICTS, 0, SIZE_MAX, NULL, changes},
               {"setdefault", DICTS, 0, SIZE_MAX, NULL, changes},
               {"popitem", DICTS, 0, SIZE_MAX, NULL, changes},
               {"append", LISTS, 0, SIZE_MAX, NULL, changes},
               {"extend", LISTS, 0, SIZE_MAX, NULL, changes},
               {"insert", LISTS, 0, SIZE_MAX, NULL, changes},
               {"remove", LISTS, 0, SIZE_MAX, NULL, changes},
               {"reverse", LISTS, 0, SIZE_MAX, NULL, changes},
               {"sort", LISTS, 0, SIZE_MAX, NULL, changes},
               {"cycle", LOOPS, 1, SIZE_MAX, "", o_cycle},
               {"changed", LOOPS, 0, SIZE_MAX, "", o_changed}};

enum { N_METHODS = sizeof METHODS / sizeof *METHODS };

static size_t find_method(struct weft_jvalue self, struct weft_str name)
{
    int owner = weft_j_is_string(self)    ? STRINGS
              : self.kind == WEFT_J_DICT  ? DICTS
              : self.kind == WEFT_J_LIST  ? LISTS
              : self.kind == WEFT_J_TUPLE ? TUPLES
              : self.kind == WEFT_J_LOOP  ? LOOPS
                                          : 0;
    for (size_t i = 0; i < N_METHODS; i++)
        if (METHODS[i].owner & owner && weft_j_is(name, METHODS[i].name))
            return i;
    return N_METHODS;
}

bool weft_j_has_method(struct weft_jvalue self, struct weft_str name)
{
    return find_method(self, name) < N_METHODS;
}

struct weft_jvalue weft_j_call_method(struct weft_jstate *st,
                                      struct weft_jvalue self,
                                      struct weft_str name,
                                      const struct weft_jargs *args)
{
    size_t i = find_method(self, name);
    weft_assert(i < N_METHODS);
    if (METHODS[i].names)
        weft_j_check_args(st, args, METHODS[i].least, METHODS[i].most,
                          METHODS[i].names, "method", name);
    if (self.kind == WEFT_J_MARKUP)
        weft_j_fail(st, WEFT_EUNSUPPORTED,
                    "the method '%.*s' of a string that is marked as safe",
                    (int) name.n, name.s);
    return METHODS[i].call(st, self, name, args);
}
