# SPDX-License-Identifier: Apache-2.0
plan_sources = \
	%D%/card_memory.c %D%/card_memory.h \
	%D%/cluster.c %D%/cluster.h \
	%D%/costs.c %D%/costs.h \
	%D%/costs_file.c %D%/costs_file.h \
	%D%/costs_json.c \
	%D%/dataflow.c %D%/dataflow.h \
	%D%/deal.c %D%/deal.h \
	%D%/engine/data.c \
	%D%/engine/engine.c %D%/engine/engine.h \
	%D%/engine/insert.c \
	%D%/engine/inside.h \
	%D%/engine/lanes.c \
	%D%/engine/links.c \
	%D%/engine/memory.c \
	%D%/engine/moves.c \
	%D%/engine/played.c %D%/engine/played.h \
	%D%/engine/played_svg.c \
	%D%/engine/played_text.c \
	%D%/engine/played_trace.c \
	%D%/engine/slices.c \
	%D%/engine/timers.c %D%/engine/timers.h \
	%D%/fusion/bound.c %D%/fusion/bound.h \
	%D%/fusion/choose.c %D%/fusion/generate.c %D%/fusion/infer.c \
	%D%/fusion/inside.h \
	%D%/fusion/migrate.c %D%/fusion/migrate.h \
	%D%/fusion/overlap.c %D%/fusion/overlap.h %D%/fusion/trial.c \
	%D%/layout.c %D%/layout.h \
	%D%/layout_check.c \
	%D%/layout_idle.c \
	%D%/lengths.c %D%/lengths.h \
	%D%/shares.c %D%/shares.h \
	%D%/mesh.c \
	%D%/moves.c \
	%D%/order.c \
	%D%/plan_explain.c \
	%D%/plan_json.c \
	%D%/plan_svg.c \
	%D%/recording.c %D%/recording.h \
	%D%/recording/apart.c %D%/recording/apart.h \
	%D%/recording/before.c \
	%D%/recording/follow.c \
	%D%/recording/gang.c %D%/recording/gang.h \
	%D%/recording/heaviest.c %D%/recording/heaviest.h \
	%D%/recording/memory.c \
	%D%/recording/near.c \
	%D%/recording/order.c \
	%D%/recording/pattern.c \
	%D%/recording/ran.c \
	%D%/recording/reach.c %D%/recording/reach.h \
	%D%/recording/stretch.c \
	%D%/recording/waits.c \
	%D%/search/anneal.c %D%/search/branch.c %D%/search/every.c \
	%D%/search/inside.h %D%/search/mirror.c %D%/search/play.c \
	%D%/search/problem.c %D%/search/prune.c \
	%D%/search/search.h %D%/search/value.c \
	%D%/stages.c \
	%D%/divide.c %D%/divide.h \
	%D%/fixed.c %D%/fixed.h \
	%D%/strategy.c %D%/strategy.h \
	%D%/task.c %D%/task.h

