#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In place of the tests of kernels for GPUs.
echo "skipped: no C++ compiler: kernels for GPUs are not run on the CPU"
exit 77
