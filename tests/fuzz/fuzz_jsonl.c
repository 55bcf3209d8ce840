/* SPDX-License-Identifier: Apache-2.0 */
/* JSON lines; the first byte says what every row must have. Messages that
 * come out are rendered. */
#include <stdlib.h>

#include "base/alloc.h"
#include "text/chat.h"
#include "text/dataset.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

static void render(const struct weft_row *row)
{
    static const char *const names[] = {"chatml", "llama3", "mistral",
                                        "{role}: {content}\n"};
    const struct weft_date day = {2024, 7, 26};
    for (size_t i = 0; i < 4; i++) {
        struct weft_err err = {0};
        struct weft_chat *chat = NULL;
        struct weft_str text = {0};
        if (weft_chat_open(names[i], NULL, &day, &chat, &err))
            abort();
        if (weft_chat_render(chat, row->messages, row->variables, i & 1,
                             &text, &err)
            == 0)
            weft_str_release(&text);
        weft_chat_free(chat);
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    struct weft_err err = {0};
    struct weft_dataset *d = NULL;
    struct weft_dataset_keys keys = {0};
    if (n == 0)
        return 0;
    keys.need = data[0] & 31;
    keys.prompt = data[0] & 32 ? "a.b" : NULL;
    keys.label = data[0] & 64 ? "label" : NULL;
    if (weft_dataset_parse((const char *) data + 1, n - 1, "fuzz", &keys, &d,
                           &err)) {
        if (!err.text[0])
            abort(); /* an error without a sentence */
        return 0;
    }
    for (size_t i = 0; i < weft_dataset_size(d) && i < 16; i++) {
        struct weft_row row = {0};
        if (weft_dataset_row(d, i, &row, &err))
            abort(); /* opening has checked it */
        render(&row);
        weft_row_release(&row);
    }
    weft_dataset_close(d);
    return 0;
}
