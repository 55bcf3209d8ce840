# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_config
%C%_test_config_LDADD = libweft_graphs.la libweft_config.la $(plan_libs)
check_PROGRAMS += %D%/test_config_length
%C%_test_config_length_LDADD = libweft_graphs.la libweft_config.la $(plan_libs)
EXTRA_DIST += %D%/config_fixture.h
