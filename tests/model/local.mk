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
check_PROGRAMS += %D%/test_tokenizer
%C%_test_tokenizer_LDADD = $(model_libs)
check_PROGRAMS += %D%/test_tokenizer_bad
%C%_test_tokenizer_bad_LDADD = $(model_libs)
check_PROGRAMS += %D%/test_chat
%C%_test_chat_LDADD = $(model_libs)
check_PROGRAMS += %D%/test_dataset
%C%_test_dataset_LDADD = $(model_libs)
check_PROGRAMS += %D%/test_unicode
%C%_test_unicode_LDADD = $(model_libs)
check_PROGRAMS += %D%/test_jinja
%C%_test_jinja_LDADD = $(model_libs)
# Not a test: tests/data/chat/compare_published.py runs it.
EXTRA_PROGRAMS += %D%/render_jinja
%C%_render_jinja_LDADD = $(model_libs)
check_PROGRAMS += %D%/test_pretokenize
%C%_test_pretokenize_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
%C%_test_pretokenize_LDADD = $(model_libs)
