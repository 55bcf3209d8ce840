# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_generate
%C%_test_generate_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_train
%C%_test_train_LDADD = $(graphs_libs)
