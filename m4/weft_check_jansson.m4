# SPDX-License-Identifier: Apache-2.0
#
# WEFT_CHECK_JANSSON: JSON: configurations, tokenizers, plans, metrics.
#
# 2.10 rejects a NUL byte in an object key and has json_object_foreach_safe;
# Debian 10 has 2.12, RHEL 8 has 2.14, Ubuntu 20.04 has 2.12.
AC_DEFUN([WEFT_CHECK_JANSSON],
    [WEFT_PKG([jansson], [jansson], [2.10], [jansson.h], [json_loadb], [libjansson-dev])])
