# SPDX-License-Identifier: Apache-2.0
#
# WEFT_CHECK_PCRE2: the pre-tokenizers' regular expressions.
#
# 10.30 is the first whose matcher keeps its state on the heap: a long text
# cannot overflow the stack. Debian 10 has 10.32.
AC_DEFUN([WEFT_CHECK_PCRE2],
    [WEFT_PKG([pcre2], [libpcre2-8], [10.30], [pcre2.h], [pcre2_match_8], [libpcre2-dev])])
