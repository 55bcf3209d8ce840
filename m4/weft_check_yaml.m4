# SPDX-License-Identifier: Apache-2.0
#
# WEFT_CHECK_YAML: YAML: the configuration of a run.
#
# 0.1.6 is the first without CVE-2014-9130 (an assertion on bad input); every
# distribution alive has 0.2.
AC_DEFUN([WEFT_CHECK_YAML],
    [WEFT_PKG([yaml], [yaml-0.1], [0.1.6], [yaml.h], [yaml_parser_parse], [libyaml-dev])])
