# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_tokenizer
%C%_test_tokenizer_LDADD = $(text_libs)
check_PROGRAMS += %D%/test_tokenizer_bad
%C%_test_tokenizer_bad_LDADD = $(text_libs)
check_PROGRAMS += %D%/test_chat
%C%_test_chat_LDADD = $(text_libs)
check_PROGRAMS += %D%/test_dataset
%C%_test_dataset_LDADD = $(text_libs)
check_PROGRAMS += %D%/test_unicode
%C%_test_unicode_LDADD = $(text_libs)
check_PROGRAMS += %D%/test_jinja
%C%_test_jinja_LDADD = $(text_libs)
# Not a test: tests/data/chat/compare_published.py runs it.
EXTRA_PROGRAMS += %D%/render_jinja
%C%_render_jinja_LDADD = $(text_libs)
check_PROGRAMS += %D%/test_pretokenize
%C%_test_pretokenize_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
%C%_test_pretokenize_LDADD = $(text_libs)
check_PROGRAMS += %D%/test_renderer
%C%_test_renderer_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
%C%_test_renderer_LDADD = $(text_libs)
