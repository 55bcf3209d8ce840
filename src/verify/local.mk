# SPDX-License-Identifier: Apache-2.0
verify_sources = \
	%D%/builtin.c %D%/builtin.h \
	%D%/child.c %D%/child.h \
	%D%/compare.c %D%/compare.h \
	%D%/job.c %D%/job.h \
	%D%/rows.c %D%/rows.h
