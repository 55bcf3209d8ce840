# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_least %D%/test_play
%C%_test_least_LDADD = $(all_libs)
%C%_test_play_LDADD = $(all_libs)
