# SPDX-License-Identifier: Apache-2.0
#
# WEFT_CHECK_UTF8PROC: Unicode normalisation (NFC).
#
# 2.3 knows Unicode 12 (2019); Debian 12 has 2.8 (Unicode 15).
AC_DEFUN([WEFT_CHECK_UTF8PROC],
    [WEFT_PKG([utf8proc], [libutf8proc], [2.3], [utf8proc.h], [utf8proc_map], [libutf8proc-dev])])
