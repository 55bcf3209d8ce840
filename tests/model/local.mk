# SPDX-License-Identifier: Apache-2.0
# check_PROGRAMS += %D%/test_x
# %C%_test_x_LDADD = $(model_libs)
check_PROGRAMS += %D%/test_arch
%C%_test_arch_LDADD = $(model_libs)
check_PROGRAMS += %D%/test_safetensors
%C%_test_safetensors_LDADD = $(model_libs)
check_PROGRAMS += %D%/test_weights
%C%_test_weights_LDADD = $(model_libs)
check_PROGRAMS += %D%/test_init
%C%_test_init_LDADD = $(model_libs)
check_PROGRAMS += %D%/test_tokenizer
%C%_test_tokenizer_LDADD = $(model_libs)
