# SPDX-License-Identifier: Apache-2.0
# Measurements are built by `make bench`, never run by `make check`.
bench_programs = %D%/model %D%/kern
%C%_kern_SOURCES = %D%/kern.c %D%/probe.h
%C%_kern_CFLAGS = $(KERN_CFLAGS)
%C%_kern_LDADD = $(kern_libs)
EXTRA_PROGRAMS += $(bench_programs)
CLEANFILES += $(bench_programs)
bench: $(bench_programs)
.PHONY: bench
