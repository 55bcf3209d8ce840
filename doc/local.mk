# SPDX-License-Identifier: Apache-2.0
# Man pages are made from the program's own help texts.
EXTRA_DIST += %D%/help2man.sh
# Pages and examples are installed in the folders that their links mean.
nobase_dist_doc_DATA += \
	%D%/algorithms.md \
	%D%/chat.md \
	%D%/costs.md \
	%D%/formats.md \
	%D%/gpu.md \
	%D%/hacking.md \
	%D%/install.md \
	%D%/layouts.md \
	%D%/numerics.md \
	%D%/performance.md \
	%D%/planning.md \
	%D%/schedules.md \
	%D%/simulate.md \
	%D%/strategies.md
pictures = blocks compared generation graph groups layer mesh moves papers \
	papers_curves schedule schedule_greedy schedule_measured \
	schedule_planned simulate staleness \
	timeline trust zero
nobase_dist_doc_DATA += $(pictures:%=%D%/pictures/%.svg)
EXTRA_DIST += %D%/pictures/draw.sh %D%/pictures/timeline.json \
	%D%/pictures/timeline.yaml

command_mans = $(patsubst src/cli/cmd_%.c,%D%/weft-%.1,$(cli_commands))
man1_MANS += %D%/weft.1 $(command_mans)
CLEANFILES += $(man1_MANS)

%D%/weft.1: weft$(EXEEXT) %D%/help2man.sh
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)sh $(srcdir)/%D%/help2man.sh ./weft$(EXEEXT) >$@.new && \
	    mv $@.new $@
%D%/weft-%.1: weft$(EXEEXT) %D%/help2man.sh
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)sh $(srcdir)/doc/help2man.sh ./weft$(EXEEXT) $* >$@.new && \
	    mv $@.new $@

# All pictures, into the source tree: `make pictures`. The timeline is drawn from a
# run of its own, and the papers' numbers by their benchmark.
EXTRA_PROGRAMS += %D%/pictures/draw
%C%_pictures_draw_SOURCES = %D%/pictures/curves.c \
	%D%/pictures/draw.c %D%/pictures/draw.h \
	%D%/pictures/moves.c %D%/pictures/svg.h %D%/pictures/timeline.c
%C%_pictures_draw_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/%D% $(JANSSON_CFLAGS)
%C%_pictures_draw_LDADD = $(weft_libs)
CLEANFILES += %D%/pictures/draw$(EXEEXT)
pictures: %D%/pictures/draw$(EXEEXT) weft$(EXEEXT)
	@$(AM_TESTS_ENVIRONMENT) $(SHELL) $(srcdir)/doc/pictures/draw.sh
	$(MAKE) bench-papers
	cp bench/papers.svg bench/papers_curves.svg $(srcdir)/%D%/pictures
.PHONY: pictures
