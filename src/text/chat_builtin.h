/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates by name, as Jinja; only chat.c includes this.
 *
 * text() joins a content that is a list of parts. What the assistant writes,
 * with the end of its turn, is marked by {% generation %}. */
#ifndef WEFT_TEXT_CHAT_BUILTIN_H
#define WEFT_TEXT_CHAT_BUILTIN_H

#define WEFT_CHAT_TEXT                                                       \
    "{%- macro text(content) -%}"                                            \
    "{%- if content is string -%}{{ content }}"                              \
    "{%- else -%}{%- for part in content -%}{{ part.text }}{%- endfor -%}"   \
    "{%- endif -%}{%- endmacro -%}"

static const char WEFT_CHAT_CHATML[] = WEFT_CHAT_TEXT
    "{%- for m in messages -%}"
    "{{ '<|im_start|>' ~ m.role ~ '\\n' }}"
    "{%- if m.role == 'assistant' -%}"
    "{%- generation -%}{{ text(m.content) ~ '<|im_end|>\\n' }}"
    "{%- endgeneration -%}"
    "{%- else -%}{{ text(m.content) ~ '<|im_end|>\\n' }}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}"
    "{{ '<|im_start|>assistant\\n' }}"
    "{%- endif -%}";

static const char WEFT_CHAT_LLAMA3[] = WEFT_CHAT_TEXT
    "{{- '<|begin_of_text|>' -}}"
    "{%- for m in messages -%}"
    "{{ '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\\n\\n' }}"
    "{%- if m.role == 'assistant' -%}"
    "{%- generation -%}{{ text(m.content)|trim ~ '<|eot_id|>' }}"
    "{%- endgeneration -%}"
    "{%- else -%}{{ text(m.content)|trim ~ '<|eot_id|>' }}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
    "{%- endif -%}";

/* The format of 7B-Instruct-v0.3: the system message is put before the last
 * question. */
static const char WEFT_CHAT_MISTRAL[] = WEFT_CHAT_TEXT
    "{%- set ns = namespace(system='', turns=messages) -%}"
    "{%- if messages and messages[0].role == 'system' -%}"
    "{%- set ns.system = text(messages[0].content) ~ '\\n\\n' -%}"
    "{%- set ns.turns = messages[1:] -%}"
    "{%- endif -%}"
    "{{- '<s>' -}}"
    "{%- for m in ns.turns -%}"
    "{%- if m.role != ('assistant' if loop.index0 % 2 else 'user') -%}"
    "{{ raise_exception(\"after the system's, messages must be the user's \" "
    "~ \"and the assistant's in turn, the user's first\") }}"
    "{%- endif -%}"
    "{%- if m.role == 'user' -%}"
    "{{ '[INST] ' ~ (ns.system if loop.last else '') ~ text(m.content) ~ "
    "'[/INST]' }}"
    "{%- else -%}"
    "{%- generation -%}{{ ' ' ~ text(m.content)|trim ~ '</s>' }}"
    "{%- endgeneration -%}"
    "{%- endif -%}"
    "{%- endfor -%}";

#endif
