# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_deal
%C%_test_deal_LDADD = $(plan_libs)
