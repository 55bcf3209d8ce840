# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_reward
%C%_test_reward_LDADD = $(reward_libs)
check_PROGRAMS += %D%/test_program
%C%_test_program_LDADD = $(reward_libs)
