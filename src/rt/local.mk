# SPDX-License-Identifier: Apache-2.0
rt_sources = \
	%D%/graph.h \
	%D%/tile.h
