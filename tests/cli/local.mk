# SPDX-License-Identifier: Apache-2.0
# check_PROGRAMS += %D%/test_x
# %C%_test_x_LDADD = $(all_libs)
sh_tests += %D%/init.sh
