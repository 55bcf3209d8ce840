# SPDX-License-Identifier: Apache-2.0
# check_PROGRAMS += %D%/test_x
# %C%_test_x_LDADD = $(model_libs)
check_PROGRAMS += %D%/test_arch
%C%_test_arch_LDADD = $(model_libs)
check_PROGRAMS += %D%/test_safetensors
%C%_test_safetensors_LDADD = $(model_libs)
check_PROGRAMS += %D%/test_weights
%C%_test_weights_SOURCES = %D%/test_weights.c %D%/weights_fixture.h
%C%_test_weights_LDADD = $(model_libs)
check_PROGRAMS += %D%/test_weights_refused
%C%_test_weights_refused_SOURCES = %D%/test_weights_refused.c \
	%D%/weights_fixture.h
%C%_test_weights_refused_LDADD = $(model_libs)
