# SPDX-License-Identifier: Apache-2.0
sh_tests += %D%/ranks.sh
check_PROGRAMS += \
	%D%/test_blocks \
	%D%/test_fxt \
	%D%/test_graph \
	%D%/test_hidden \
	%D%/test_moves \
	%D%/test_pool \
	%D%/test_profile \
	%D%/test_rank_moves \
	%D%/test_rank_programs \
	%D%/test_ranks \
	%D%/test_record \
	%D%/test_record_gpus \
	%D%/test_start \
	%D%/test_tile \
	%D%/test_watchdog
%C%_test_blocks_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_blocks_LDADD = $(rt_libs)
%C%_test_fxt_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_fxt_LDADD = $(rt_libs)
%C%_test_graph_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_graph_LDADD = $(rt_libs)
%C%_test_hidden_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_hidden_LDADD = $(rt_libs)
%C%_test_pool_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_pool_LDADD = $(rt_libs)
%C%_test_profile_CPPFLAGS = $(STARPU_CPPFLAGS) $(JANSSON_CFLAGS)
%C%_test_profile_LDADD = $(rt_libs)
%C%_test_moves_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_moves_LDADD = $(rt_libs)
%C%_test_rank_moves_SOURCES = %D%/test_rank_moves.c %D%/rank_fixture.h
%C%_test_rank_moves_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_rank_moves_LDADD = $(rt_libs)
%C%_test_rank_programs_SOURCES = %D%/test_rank_programs.c %D%/rank_fixture.h
%C%_test_rank_programs_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_rank_programs_LDADD = $(rt_libs)
%C%_test_ranks_SOURCES = %D%/test_ranks.c %D%/rank_fixture.h
%C%_test_ranks_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_ranks_LDADD = $(rt_libs)
%C%_test_record_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_record_LDADD = $(rt_libs)
%C%_test_record_gpus_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_record_gpus_LDADD = $(rt_libs)
%C%_test_start_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_start_LDADD = $(rt_libs)
%C%_test_tile_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_tile_LDADD = $(rt_libs)
%C%_test_watchdog_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_watchdog_LDADD = $(rt_libs)
# Jobs that end badly; only ranks.sh starts it.
noinst_PROGRAMS += %D%/rank_ends
%C%_rank_ends_LDADD = $(rt_libs)
