# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_device_cuda
%C%_test_device_cuda_LDADD = $(kern_libs)
check_PROGRAMS += %D%/test_embed
%C%_test_embed_LDADD = $(kern_libs)
check_PROGRAMS += %D%/test_gae
%C%_test_gae_LDADD = $(kern_libs)
%C%_test_gae_SOURCES = %D%/test_gae.c %D%/ppo_golden.h
check_PROGRAMS += %D%/test_policy_loss
%C%_test_policy_loss_LDADD = $(kern_libs)
%C%_test_policy_loss_SOURCES = %D%/test_policy_loss.c %D%/ppo_golden.h
check_PROGRAMS += %D%/test_value
%C%_test_value_LDADD = $(kern_libs)
%C%_test_value_SOURCES = %D%/test_value.c %D%/ppo_golden.h
check_PROGRAMS += %D%/test_head
%C%_test_head_LDADD = $(kern_libs)
check_PROGRAMS += %D%/test_sample
%C%_test_sample_LDADD = $(kern_libs)
