# SPDX-License-Identifier: Apache-2.0
fuse_sources = \
	%D%/fuse.c %D%/fuse.h \
	%D%/inside.h \
	%D%/least.c %D%/least.h \
	%D%/measure.c \
	%D%/play.c %D%/play.h \
	%D%/schedule_job.c %D%/schedule_job.h
