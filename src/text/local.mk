# SPDX-License-Identifier: Apache-2.0
text_sources = \
	%D%/chat.c %D%/chat.h \
	%D%/chat_builtin.h \
	%D%/dataset.c %D%/dataset.h \
	%D%/dataset_impl.h \
	%D%/dataset_message.c \
	%D%/dataset_row.c \
	%D%/jinja/call.c \
	%D%/jinja/case.c \
	%D%/jinja/case_table.h \
	%D%/jinja/eval.c \
	%D%/jinja/expr.c \
	%D%/jinja/filter.c \
	%D%/jinja/impl.h \
	%D%/jinja/jinja.h \
	%D%/jinja/lex.c \
	%D%/jinja/list.c \
	%D%/jinja/method.c \
	%D%/jinja/op.c \
	%D%/jinja/parse.c \
	%D%/jinja/run.c \
	%D%/jinja/test.c \
	%D%/jinja/text.c \
	%D%/jinja/value.c \
	%D%/pattern.c %D%/pattern.h \
	%D%/pretokenize.c %D%/pretokenize.h \
	%D%/renderer.c %D%/renderer.h \
	%D%/tokenizer.c %D%/tokenizer.h \
	%D%/tokenizer_added.c \
	%D%/tokenizer_bpe.c \
	%D%/tokenizer_impl.h \
	%D%/tokenizer_load.c %D%/tokenizer_load.h \
	%D%/tokenizer_place.c \
	%D%/tokenizer_table.c \
	%D%/tokenizer_write.c \
	%D%/unicode/category.c \
	%D%/unicode/charset.c %D%/unicode/charset.h \
	%D%/unicode/normal.c \
	%D%/unicode/script.c \
	%D%/unicode/tables.h \
	%D%/unicode/unicode.c %D%/unicode/unicode.h
