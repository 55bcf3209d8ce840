# SPDX-License-Identifier: Apache-2.0
base_sources = \
	%D%/alloc.c %D%/alloc.h \
	%D%/children.c %D%/children.h \
	%D%/clock.c %D%/clock.h \
	%D%/compiler.h \
	%D%/dtype.c %D%/dtype.h \
	%D%/edit_distance.c %D%/edit_distance.h \
	%D%/err.c %D%/err.h \
	%D%/file.c %D%/file.h \
	%D%/file_hash.c %D%/file_hash.h \
	%D%/file_remove.c \
	%D%/hash.c %D%/hash.h \
	%D%/json.c %D%/json.h \
	%D%/limits.h \
	%D%/log.c %D%/log.h \
	%D%/min_tree.c %D%/min_tree.h \
	%D%/philox.h \
	%D%/rng.c %D%/rng.h \
	%D%/shape.c %D%/shape.h \
	%D%/str.c %D%/str.h \
	%D%/string.c %D%/string.h \
	%D%/svg.c %D%/svg.h \
	%D%/threads.c %D%/threads.h \
	%D%/topology.c %D%/topology.h \
	%D%/utf8.c %D%/utf8.h \
	%D%/version.c \
	%D%/yaml.c %D%/yaml.h
