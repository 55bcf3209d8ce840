# SPDX-License-Identifier: Apache-2.0
#
# WEFT_CHECK_XXHASH: checksums of checkpoints, hashes of weights.
#
# 0.8.0 is the first whose XXH3 is frozen: hashes written to disk stay valid.
AC_DEFUN([WEFT_CHECK_XXHASH],
    [WEFT_PKG([xxhash], [libxxhash], [0.8.0], [xxhash.h], [XXH64], [libxxhash-dev])])
