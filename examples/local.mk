# SPDX-License-Identifier: Apache-2.0
# Examples use the installed header and the shared library alone.
#
#     check_PROGRAMS += %D%/01-score
#     %C%_01_score_LDADD = $(example_libs)
example_libs = libweft.la
