# SPDX-License-Identifier: Apache-2.0
model_sources = \
	%D%/arch.c %D%/arch.h \
	%D%/arch_check.c \
	%D%/arch_read.c \
	%D%/arch_write.c \
	%D%/charset.c %D%/charset.h \
	%D%/chat.c %D%/chat.h \
	%D%/chat_builtin.h \
	%D%/dataset.c %D%/dataset.h \
	%D%/dataset_impl.h \
	%D%/dataset_message.c \
	%D%/dataset_row.c \
	%D%/init.c %D%/init.h \
	%D%/jinja.h \
	%D%/jinja_call.c \
	%D%/jinja_case.c \
	%D%/jinja_case_table.h \
	%D%/jinja_eval.c \
	%D%/jinja_expr.c \
	%D%/jinja_filter.c \
	%D%/jinja_impl.h \
	%D%/jinja_lex.c \
	%D%/jinja_list.c \
	%D%/jinja_method.c \
	%D%/jinja_op.c \
	%D%/jinja_parse.c \
	%D%/jinja_run.c \
	%D%/jinja_test.c \
	%D%/jinja_text.c \
	%D%/jinja_value.c \
	%D%/pattern.c %D%/pattern.h \
	%D%/pretokenize.c %D%/pretokenize.h \
	%D%/safetensors.c %D%/safetensors.h \
	%D%/safetensors_write.c \
	%D%/tensors.c %D%/tensors.h \
	%D%/tokenizer.c %D%/tokenizer.h \
	%D%/tokenizer_added.c \
	%D%/tokenizer_bpe.c \
	%D%/tokenizer_impl.h \
	%D%/tokenizer_load.c %D%/tokenizer_load.h \
	%D%/tokenizer_place.c \
	%D%/tokenizer_table.c \
	%D%/tokenizer_write.c \
	%D%/unicode.c %D%/unicode.h \
	%D%/unicode_category.c \
	%D%/unicode_normal.c \
	%D%/unicode_script.c \
	%D%/unicode_tables.h \
	%D%/weights.c %D%/weights.h \
	%D%/weights_write.c
