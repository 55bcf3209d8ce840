# SPDX-License-Identifier: Apache-2.0
# A command is one file, %D%/cmd_<name>.c; the table of commands and the man
# page weft-<name>.1 follow from its name.
cli_commands = \
	%D%/cmd_generate.c \
	%D%/cmd_info.c \
	%D%/cmd_init.c \
	%D%/cmd_plan.c \
	%D%/cmd_profile.c \
	%D%/cmd_report.c \
	%D%/cmd_schedule.c \
	%D%/cmd_score.c \
	%D%/cmd_simulate.c \
	%D%/cmd_tokenize.c \
	%D%/cmd_train.c \
	%D%/cmd_verify.c
cli_sources = \
	%D%/cli.c %D%/cli.h \
	%D%/command.h \
	%D%/lm_devices.c %D%/lm_devices.h \
	%D%/main.c \
	%D%/plan_found.c %D%/plan_found.h \
	%D%/plan_told.c %D%/plan_told.h \
	%D%/planned.c %D%/planned.h \
	%D%/verify_table.c %D%/verify_table.h

noinst_PROGRAMS += weft
weft_SOURCES = $(cli_sources) $(cli_commands)
nodist_weft_SOURCES = %D%/commands.c
weft_LDADD = $(weft_libs)

bin_PROGRAMS += installed/weft
installed_weft_SOURCES = $(weft_SOURCES)
nodist_installed_weft_SOURCES = $(nodist_weft_SOURCES)
installed_weft_LDADD = $(installed_libs)
installed_weft_LDFLAGS = $(AM_LDFLAGS) $(installed_bin_rpath)

CLEANFILES += %D%/commands.c
%D%/commands.c: $(cli_commands) tools/gen-cmds Makefile
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)sh $(srcdir)/tools/gen-cmds $(cli_commands) >$@.new && \
	    mv $@.new $@
