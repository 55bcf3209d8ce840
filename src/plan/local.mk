# SPDX-License-Identifier: Apache-2.0
plan_sources = \
	%D%/deal.c %D%/deal.h \
	%D%/layout.h \
	%D%/task.h
