#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In place of tests/plan/test_simgrid.
echo "skipped: StarPU was not built with SimGrid (Debian's libsimgrid-dev," \
    "then tools/build-starpu): graphs are not simulated by it, too"
exit 77
