# SPDX-License-Identifier: Apache-2.0
rt_sources = \
	%D%/acquire.c \
	%D%/blocks.c \
	%D%/card.c %D%/card.h \
	%D%/codelet.h \
	%D%/copier.c \
	%D%/copy.c \
	%D%/direct.c \
	%D%/events.c \
	%D%/exec.c \
	%D%/external.c \
	%D%/fxt.c %D%/fxt.h \
	%D%/gang.c \
	%D%/graph.h \
	%D%/hidden.c \
	%D%/insert.c \
	%D%/interface.c \
	%D%/internal.h \
	%D%/limits.c \
	%D%/modes.c \
	%D%/moves.c %D%/moves.h \
	%D%/nap.c \
	%D%/parts.c \
	%D%/paje.c \
	%D%/policy.h \
	%D%/pool.c %D%/pool.h \
	%D%/ran.c \
	%D%/record.c %D%/record.h \
	%D%/profile.c \
	%D%/seq.c \
	%D%/environment.c %D%/environment.h \
	%D%/start.c \
	%D%/task.c \
	%D%/tile.c %D%/tile.h %D%/tile_inside.h \
	%D%/trace.h \
	%D%/transfer.c %D%/transfer.h \
	%D%/wake.c \
	%D%/watchdog.c %D%/watchdog.h \
	%D%/world.c %D%/world.h
EXTRA_DIST += %D%/README
