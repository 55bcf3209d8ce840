# SPDX-License-Identifier: Apache-2.0
# Measurements are built by `make bench`, never run by `make check`.
bench_programs =
EXTRA_PROGRAMS += $(bench_programs)
CLEANFILES += $(bench_programs)
bench: $(bench_programs)
.PHONY: bench
