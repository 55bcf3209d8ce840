# SPDX-License-Identifier: Apache-2.0
# What stands beside the runtime needs none of it to be tested.
service_libs = libweft_run.la libweft_job.la libweft_fuse.la libweft_lm.la libweft_graphs.la libweft_plan.la \
	libweft_reward.la libweft_record.la \
	libweft_config.la libweft_model.la $(text_libs)
check_PROGRAMS += %D%/test_find
%C%_test_find_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_find_options
%C%_test_find_options_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_weigh
%C%_test_weigh_LDADD = $(all_libs)

check_PROGRAMS += %D%/test_plan_again
%C%_test_plan_again_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_times
%C%_test_times_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_behind
%C%_test_behind_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_window
%C%_test_window_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_preference
%C%_test_preference_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_packing
%C%_test_packing_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_algorithms
%C%_test_algorithms_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_refills
%C%_test_refills_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_rewards
%C%_test_rewards_CPPFLAGS = $(STARPU_CPPFLAGS) $(JANSSON_CFLAGS)
%C%_test_rewards_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_recorded
%C%_test_recorded_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_recorded_work
%C%_test_recorded_work_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_published_bytes
%C%_test_published_bytes_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_open
%C%_test_open_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_gangs
%C%_test_gangs_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_places_left_out
%C%_test_places_left_out_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_digest
%C%_test_digest_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
%C%_test_digest_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_iterations
%C%_test_iterations_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
%C%_test_iterations_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_broken_numbers
%C%_test_broken_numbers_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_invariance
%C%_test_invariance_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_checkpoint
%C%_test_checkpoint_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
%C%_test_checkpoint_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_staleness
%C%_test_staleness_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
%C%_test_staleness_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_as_completed
%C%_test_as_completed_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_shares
%C%_test_shares_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_resume
%C%_test_resume_LDADD = $(all_libs)
sh_tests += %D%/plan_again.sh
sh_tests += %D%/ranks.sh
sh_tests += %D%/ranks_algorithms.sh
sh_tests += %D%/random.sh
sh_tests += %D%/reward_ranks.sh
sh_tests += %D%/tail_ranks.sh
sh_tests += %D%/trace.sh
sh_tests += %D%/gsm8k.sh
EXTRA_DIST += %D%/find_fixture.h %D%/recorded_run.h %D%/run_fixture.h %D%/second_costs.h
check_PROGRAMS += %D%/test_info
%C%_test_info_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_gsm8k
%C%_test_gsm8k_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
%C%_test_gsm8k_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_plan_needs
%C%_test_plan_needs_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_batch
%C%_test_batch_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_strategies
%C%_test_strategies_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_plans
%C%_test_plans_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_fuse
%C%_test_fuse_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
%C%_test_fuse_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_memory
%C%_test_memory_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_follow
%C%_test_follow_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_offload
%C%_test_offload_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_zero_bytes
%C%_test_zero_bytes_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
%C%_test_zero_bytes_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_run_config
%C%_test_run_config_LDADD = $(service_libs)
check_PROGRAMS += %D%/test_deal
%C%_test_deal_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_prefix
%C%_test_prefix_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_tail
%C%_test_tail_LDADD = $(all_libs)
%C%_test_tail_LDFLAGS = -Wl,--wrap=weft_migration_decide
# What control does is counted in code of its own.
check_LTLIBRARIES = %D%/libcount_blocks.la
%C%_libcount_blocks_la_SOURCES = %D%/count_blocks.c %D%/count_blocks.h
check_PROGRAMS += %D%/test_control
%C%_test_control_SOURCES = %D%/test_control.c src/base/min_tree.c \
	src/lm/migration.c src/lm/rollout.c src/lm/rollout_turns.c \
	src/run/iteration_deal.c src/run/iteration_early.c \
	src/run/iteration_infer.c
%C%_test_control_CFLAGS = $(AM_CFLAGS) -fsanitize-coverage=trace-pc
%C%_test_control_LDADD = %D%/libcount_blocks.la $(all_libs)
