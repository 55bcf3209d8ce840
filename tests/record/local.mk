# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_metrics
%C%_test_metrics_LDADD = $(record_libs)
check_PROGRAMS += %D%/test_progress
%C%_test_progress_LDADD = $(record_libs) -lutil
check_PROGRAMS += %D%/test_report
%C%_test_report_LDADD = $(record_libs)
check_PROGRAMS += %D%/test_tensorboard
%C%_test_tensorboard_LDADD = $(record_libs)
check_PROGRAMS += %D%/test_manifest
%C%_test_manifest_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_timeline
%C%_test_timeline_LDADD = $(record_libs)
EXTRA_DIST += %D%/read_svg.h
