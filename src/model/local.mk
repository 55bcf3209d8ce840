# SPDX-License-Identifier: Apache-2.0
model_sources = \
	%D%/arch.c %D%/arch.h \
	%D%/arch_check.c \
	%D%/arch_read.c \
	%D%/arch_write.c \
	%D%/init.c %D%/init.h \
	%D%/safetensors.c %D%/safetensors.h \
	%D%/safetensors_write.c \
	%D%/tensors.c %D%/tensors.h \
	%D%/weights.c %D%/weights.h \
	%D%/weights_write.c
