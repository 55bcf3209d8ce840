# SPDX-License-Identifier: Apache-2.0
# check_PROGRAMS += %D%/test_x
# %C%_test_x_LDADD = $(all_libs)
sh_tests += %D%/equal_scores.sh
sh_tests += %D%/init.sh
sh_tests += %D%/plan.sh
sh_tests += %D%/verify.sh
sh_tests += %D%/kill.sh
sh_tests += %D%/signals.sh
sh_tests += %D%/refused_start.sh
sh_tests += %D%/bad_input.sh
sh_tests += %D%/bad_layout.sh
sh_tests += %D%/full_disk.sh
sh_tests += %D%/usage.sh
sh_tests += %D%/tokenize.sh
sh_tests += %D%/lines.sh
sh_tests += %D%/schedule.sh
EXTRA_DIST += %D%/expect.sh
