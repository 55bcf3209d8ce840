# SPDX-License-Identifier: Apache-2.0
# What stands beside the runtime needs none of it to be tested.
service_libs = libweft_run.la $(model_deps) $(base_libs)

check_PROGRAMS += %D%/test_config
%C%_test_config_LDADD = $(service_libs)
check_PROGRAMS += %D%/test_reward
%C%_test_reward_LDADD = $(service_libs)
check_PROGRAMS += %D%/test_reward_program
%C%_test_reward_program_LDADD = $(service_libs)
check_PROGRAMS += %D%/test_metrics
%C%_test_metrics_LDADD = $(service_libs)
check_PROGRAMS += %D%/test_digest
%C%_test_digest_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
%C%_test_digest_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_progress
%C%_test_progress_LDADD = $(service_libs) -lutil
check_PROGRAMS += %D%/test_report
%C%_test_report_LDADD = $(service_libs)
check_PROGRAMS += %D%/test_tensorboard
%C%_test_tensorboard_LDADD = $(service_libs)
check_PROGRAMS += %D%/test_invariance
%C%_test_invariance_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_resume
%C%_test_resume_LDADD = $(all_libs)
sh_tests += %D%/gsm8k.sh
EXTRA_DIST += %D%/run_fixture.h
check_PROGRAMS += %D%/test_info
%C%_test_info_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_gsm8k
%C%_test_gsm8k_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
%C%_test_gsm8k_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_plan_needs
%C%_test_plan_needs_LDADD = $(all_libs)
