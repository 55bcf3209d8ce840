# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_child
%C%_test_child_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_compare
%C%_test_compare_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_rows
%C%_test_rows_LDADD = $(all_libs)
