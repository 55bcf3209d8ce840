# SPDX-License-Identifier: Apache-2.0
# Man pages are made from the program's own help texts.
EXTRA_DIST += %D%/help2man.sh %D%/formats.md %D%/hacking.md %D%/numerics.md

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
