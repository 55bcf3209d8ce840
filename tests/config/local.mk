# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_config
%C%_test_config_LDADD = $(config_libs)
