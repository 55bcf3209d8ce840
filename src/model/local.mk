# SPDX-License-Identifier: Apache-2.0
model_sources = \
	%D%/arch.c \
	%D%/arch.h \
	%D%/arch_check.c \
	%D%/arch_write.c \
	%D%/chat.c \
	%D%/chat.h \
	%D%/chat_detect.c \
	%D%/chat_impl.h \
	%D%/dataset.c \
	%D%/dataset.h \
	%D%/dataset_impl.h \
	%D%/dataset_row.c \
	%D%/init.c \
	%D%/init.h \
	%D%/pattern.c \
	%D%/pretokenize.c \
	%D%/pretokenize.h \
	%D%/safetensors.c \
	%D%/safetensors.h \
	%D%/safetensors_write.c \
	%D%/tensors.c \
	%D%/tensors.h \
	%D%/tokenizer.c \
	%D%/tokenizer.h \
	%D%/tokenizer_added.c \
	%D%/tokenizer_bpe.c \
	%D%/tokenizer_impl.h \
	%D%/tokenizer_load.c \
	%D%/tokenizer_load.h \
	%D%/tokenizer_table.c \
	%D%/tokenizer_write.c \
	%D%/unicode.c \
	%D%/unicode.h \
	%D%/weights.c \
	%D%/weights.h \
	%D%/weights_write.c
