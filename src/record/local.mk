# SPDX-License-Identifier: Apache-2.0
record_sources = \
	%D%/chart.c %D%/chart.h \
	%D%/timeline.c %D%/timeline.h \
	%D%/timeline_curves.c \
	%D%/timeline_lengths.c \
	%D%/timeline_picture.h \
	%D%/timeline_svg.c \
	%D%/lines.c %D%/lines.h \
	%D%/manifest.c %D%/manifest.h \
	%D%/manifest_state.c %D%/manifest_state.h \
	%D%/metrics.c %D%/metrics.h \
	%D%/metrics_file.c \
	%D%/metrics_share.c \
	%D%/progress.c %D%/progress.h \
	%D%/report.c %D%/report.h \
	%D%/report_samples.c %D%/report_samples.h \
	%D%/report_style.h \
	%D%/samples.c %D%/samples.h \
	%D%/tensorboard.c %D%/tensorboard.h \
	%D%/told.c %D%/told.h
