# SPDX-License-Identifier: Apache-2.0
config_sources = \
	%D%/check.c \
	%D%/config.h \
	%D%/keys.h \
	%D%/names.c \
	%D%/read.c \
	%D%/schema.c %D%/schema.h \
	%D%/set.c \
	%D%/table.c \
	%D%/write.c
