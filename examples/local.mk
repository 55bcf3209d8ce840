# SPDX-License-Identifier: Apache-2.0
# Examples use installed headers and the shared library alone;
# tests/examples.sh runs them.
example_libs = libweft.la -lm
example_programs = \
	%D%/01_score \
	%D%/02_generate \
	%D%/03_layer_graph \
	%D%/04_reward \
	%D%/05_ppo_loop
noinst_PROGRAMS += $(example_programs)
%C%_01_score_LDADD = $(example_libs)
%C%_02_generate_LDADD = $(example_libs)
%C%_03_layer_graph_LDADD = $(example_libs)
%C%_04_reward_LDADD = $(example_libs)
%C%_05_ppo_loop_LDADD = $(example_libs)
EXTRA_DIST += %D%/check.h %D%/04_reward.yaml %D%/quickstart \
	%D%/layouts %D%/verify.yaml
EXTRA_DIST += %D%/schedules
