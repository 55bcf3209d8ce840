/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: Jinja texts to recognise, and patterns. */
#include <stdlib.h>

#include "base/alloc.h"
#include "model/chat.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

static void use(struct weft_chat *chat, char *content)
{
    char system[] = "system", user[] = "user", assistant[] = "assistant";
    const struct weft_message m[] = {{system, content},
                                     {user, content},
                                     {assistant, content},
                                     {user, content},
                                     {assistant, content}};
    struct weft_err err = {0};
    char *text = NULL;
    for (size_t k = 1; k <= 5; k++)
        if (weft_chat_render(chat, m, k, k & 1, &text, &err) == 0)
            weft_free(text);
    weft_chat_free(chat);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    struct weft_err err = {0};
    struct weft_chat *chat = NULL;
    char *text = weft_strndup(n ? (const char *) data : "", n);
    if (!text)
        return 0;
    if (weft_chat_detect(text, "<s>", "</s>", "fuzz", &chat, &err) == 0)
        use(chat, text);
    else if (!err.text[0])
        abort(); /* an error without a sentence */
    if (weft_chat_open(text, NULL, &chat, &err) == 0)
        use(chat, text);
    weft_free(text);
    return 0;
}
