# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_device_cuda
%C%_test_device_cuda_LDADD = $(kern_libs)
check_PROGRAMS += %D%/test_embed
%C%_test_embed_LDADD = $(kern_libs)
check_PROGRAMS += %D%/test_gae
%C%_test_gae_LDADD = $(kern_libs)
%C%_test_gae_SOURCES = %D%/test_gae.c %D%/ppo_golden.h
check_PROGRAMS += %D%/test_group_advantage
%C%_test_group_advantage_LDADD = $(kern_libs)
%C%_test_group_advantage_SOURCES = %D%/test_group_advantage.c \
	%D%/ppo_golden.h
check_PROGRAMS += %D%/test_kl
%C%_test_kl_LDADD = $(kern_libs)
check_PROGRAMS += %D%/test_moments
%C%_test_moments_LDADD = $(kern_libs)
check_PROGRAMS += %D%/test_policy_loss
%C%_test_policy_loss_LDADD = $(kern_libs)
%C%_test_policy_loss_SOURCES = %D%/test_policy_loss.c %D%/ppo_golden.h
check_PROGRAMS += %D%/test_preference_loss
%C%_test_preference_loss_LDADD = $(kern_libs)
%C%_test_preference_loss_SOURCES = %D%/test_preference_loss.c \
	%D%/ppo_golden.h
check_PROGRAMS += %D%/test_value
%C%_test_value_LDADD = $(kern_libs)
%C%_test_value_SOURCES = %D%/test_value.c %D%/ppo_golden.h
check_PROGRAMS += %D%/test_head
%C%_test_head_LDADD = $(kern_libs)
%C%_test_head_SOURCES = %D%/test_head.c %D%/head_fixture.h \
	%D%/each_isa.h
check_PROGRAMS += %D%/test_head_backward
%C%_test_head_backward_LDADD = $(kern_libs)
%C%_test_head_backward_SOURCES = %D%/test_head_backward.c \
	%D%/head_fixture.h %D%/each_isa.h
check_PROGRAMS += %D%/test_sample
%C%_test_sample_LDADD = $(kern_libs)
%C%_test_sample_SOURCES = %D%/test_sample.c %D%/each_isa.h
check_PROGRAMS += %D%/test_gemm
%C%_test_gemm_LDADD = $(kern_libs)
%C%_test_gemm_SOURCES = %D%/test_gemm.c %D%/products.h
check_PROGRAMS += %D%/test_gemm_dw
%C%_test_gemm_dw_LDADD = $(kern_libs)
%C%_test_gemm_dw_SOURCES = %D%/test_gemm_dw.c %D%/products.h
check_PROGRAMS += %D%/test_mix
%C%_test_mix_LDADD = $(kern_libs)
%C%_test_mix_SOURCES = %D%/test_mix.c %D%/products.h

check_PROGRAMS += %D%/test_publish
%C%_test_publish_LDADD = $(kern_libs)
%C%_test_publish_SOURCES = %D%/test_publish.c %D%/products.h
check_PROGRAMS += %D%/test_parts
%C%_test_parts_LDADD = $(kern_libs)
%C%_test_parts_SOURCES = %D%/test_parts.c %D%/parts_fixture.h
check_PROGRAMS += %D%/test_parts_head
%C%_test_parts_head_LDADD = $(kern_libs)
%C%_test_parts_head_SOURCES = %D%/test_parts_head.c %D%/parts_fixture.h \
	%D%/each_isa.h
check_PROGRAMS += %D%/test_parts_layer
%C%_test_parts_layer_LDADD = $(kern_libs)
%C%_test_parts_layer_SOURCES = %D%/test_parts_layer.c %D%/parts_fixture.h \
	%D%/layer_fixture.h %D%/layer_reference.h %D%/each_isa.h
check_PROGRAMS += %D%/test_reduce
%C%_test_reduce_LDADD = $(kern_libs)
%C%_test_reduce_SOURCES = %D%/test_reduce.c %D%/products.h
check_PROGRAMS += %D%/test_adamw
%C%_test_adamw_LDADD = $(kern_libs)
%C%_test_adamw_SOURCES = %D%/test_adamw.c %D%/products.h
check_PROGRAMS += %D%/test_isa
%C%_test_isa_LDADD = $(kern_libs)
check_PROGRAMS += %D%/test_isa_bits
%C%_test_isa_bits_LDADD = $(kern_libs) -lm
check_PROGRAMS += %D%/test_softmax
%C%_test_softmax_LDADD = $(kern_libs)
%C%_test_softmax_SOURCES = %D%/test_softmax.c %D%/each_isa.h
check_PROGRAMS += %D%/test_layer
%C%_test_layer_LDADD = $(kern_libs)
%C%_test_layer_SOURCES = %D%/test_layer.c %D%/layer_fixture.h \
	%D%/layer_kinds.h \
	%D%/layer_reference.h %D%/each_isa.h
# Whole models: also reads and writes their folders.
check_PROGRAMS += %D%/test_golden
%C%_test_golden_LDADD = libweft_kern.la $(CUDA_LIBS) $(model_libs)
check_PROGRAMS += %D%/test_rmsnorm
%C%_test_rmsnorm_LDADD = $(kern_libs)
%C%_test_rmsnorm_SOURCES = %D%/test_rmsnorm.c %D%/layer_fixture.h \
	%D%/layer_reference.h %D%/each_isa.h
check_PROGRAMS += %D%/test_rope
%C%_test_rope_LDADD = $(kern_libs)
%C%_test_rope_SOURCES = %D%/test_rope.c %D%/layer_fixture.h \
	%D%/layer_reference.h %D%/each_isa.h
check_PROGRAMS += %D%/test_attention
%C%_test_attention_LDADD = $(kern_libs)
%C%_test_attention_SOURCES = %D%/test_attention.c %D%/layer_fixture.h \
	%D%/layer_reference.h %D%/each_isa.h

# Kernels for GPUs, on the CPU and on a card (see tests/cuda/local.mk).
if WEFT_HAVE_CXX
check_PROGRAMS += %D%/test_rows_cuda
%C%_test_rows_cuda_CPPFLAGS = $(cuda_test_flags)
%C%_test_rows_cuda_LDADD = $(cuda_test_libs)
check_PROGRAMS += %D%/test_weights_cuda
%C%_test_weights_cuda_CPPFLAGS = $(cuda_test_flags)
%C%_test_weights_cuda_LDADD = $(cuda_test_libs)
check_PROGRAMS += %D%/test_load_cuda
%C%_test_load_cuda_CPPFLAGS = $(cuda_test_flags)
%C%_test_load_cuda_LDADD = $(cuda_test_libs)
check_PROGRAMS += %D%/test_steps_cuda
%C%_test_steps_cuda_CPPFLAGS = $(cuda_test_flags)
%C%_test_steps_cuda_LDADD = $(cuda_test_libs)
check_PROGRAMS += %D%/test_meet_cuda
%C%_test_meet_cuda_CPPFLAGS = $(cuda_test_flags)
%C%_test_meet_cuda_LDADD = $(cuda_test_libs)
check_PROGRAMS += %D%/test_head_cuda
%C%_test_head_cuda_CPPFLAGS = $(cuda_test_flags)
%C%_test_head_cuda_LDADD = $(cuda_test_libs)
check_PROGRAMS += %D%/test_policy_loss_cuda
%C%_test_policy_loss_cuda_CPPFLAGS = $(cuda_test_flags)
%C%_test_policy_loss_cuda_LDADD = $(cuda_test_libs)
check_PROGRAMS += %D%/test_attention_cuda
%C%_test_attention_cuda_CPPFLAGS = $(cuda_test_flags)
%C%_test_attention_cuda_LDADD = $(cuda_test_libs)
check_PROGRAMS += %D%/test_head_products_cuda
%C%_test_head_products_cuda_CPPFLAGS = $(cuda_test_flags)
%C%_test_head_products_cuda_LDADD = $(cuda_test_libs)
check_PROGRAMS += %D%/test_layer_cuda
%C%_test_layer_cuda_CPPFLAGS = $(cuda_test_flags)
%C%_test_layer_cuda_LDADD = $(cuda_test_libs)
check_PROGRAMS += %D%/test_products_cuda
%C%_test_products_cuda_CPPFLAGS = $(cuda_test_flags)
%C%_test_products_cuda_LDADD = $(cuda_test_libs)
endif
if WEFT_HAVE_CUDA
check_PROGRAMS += %D%/card_rows_cuda
%C%_card_rows_cuda_SOURCES = %D%/test_rows_cuda.c
%C%_card_rows_cuda_CPPFLAGS = $(card_test_flags)
%C%_card_rows_cuda_LDADD = $(kern_libs)
check_PROGRAMS += %D%/card_weights_cuda
%C%_card_weights_cuda_SOURCES = %D%/test_weights_cuda.c
%C%_card_weights_cuda_CPPFLAGS = $(card_test_flags)
%C%_card_weights_cuda_LDADD = $(kern_libs)
check_PROGRAMS += %D%/card_meet_cuda
%C%_card_meet_cuda_SOURCES = %D%/test_meet_cuda.c
%C%_card_meet_cuda_CPPFLAGS = $(card_test_flags)
%C%_card_meet_cuda_LDADD = $(kern_libs)
check_PROGRAMS += %D%/card_load_cuda
%C%_card_load_cuda_SOURCES = %D%/test_load_cuda.c
%C%_card_load_cuda_CPPFLAGS = $(card_test_flags)
%C%_card_load_cuda_LDADD = $(kern_libs)
check_PROGRAMS += %D%/card_steps_cuda
%C%_card_steps_cuda_SOURCES = %D%/test_steps_cuda.c
%C%_card_steps_cuda_CPPFLAGS = $(card_test_flags)
%C%_card_steps_cuda_LDADD = $(kern_libs)
check_PROGRAMS += %D%/card_head_cuda
%C%_card_head_cuda_SOURCES = %D%/test_head_cuda.c
%C%_card_head_cuda_CPPFLAGS = $(card_test_flags)
%C%_card_head_cuda_LDADD = $(kern_libs)
check_PROGRAMS += %D%/card_policy_loss_cuda
%C%_card_policy_loss_cuda_SOURCES = %D%/test_policy_loss_cuda.c
%C%_card_policy_loss_cuda_CPPFLAGS = $(card_test_flags)
%C%_card_policy_loss_cuda_LDADD = $(kern_libs)
check_PROGRAMS += %D%/card_attention_cuda
%C%_card_attention_cuda_SOURCES = %D%/test_attention_cuda.c
%C%_card_attention_cuda_CPPFLAGS = $(card_test_flags)
%C%_card_attention_cuda_LDADD = $(kern_libs)
check_PROGRAMS += %D%/card_head_products_cuda
%C%_card_head_products_cuda_SOURCES = %D%/test_head_products_cuda.c
%C%_card_head_products_cuda_CPPFLAGS = $(card_test_flags)
%C%_card_head_products_cuda_LDADD = $(kern_libs)
check_PROGRAMS += %D%/card_layer_cuda
%C%_card_layer_cuda_SOURCES = %D%/test_layer_cuda.c
%C%_card_layer_cuda_CPPFLAGS = $(card_test_flags)
%C%_card_layer_cuda_LDADD = $(kern_libs)
check_PROGRAMS += %D%/card_products_cuda
%C%_card_products_cuda_SOURCES = %D%/test_products_cuda.c
%C%_card_products_cuda_CPPFLAGS = $(card_test_flags)
%C%_card_products_cuda_LDADD = $(kern_libs)
endif
EXTRA_DIST += %D%/test_layer_cuda.c %D%/test_head_products_cuda.c
EXTRA_DIST += %D%/test_products_cuda.c
EXTRA_DIST += %D%/test_attention_cuda.c
EXTRA_DIST += %D%/test_policy_loss_cuda.c
EXTRA_DIST += %D%/test_head_cuda.c
EXTRA_DIST += %D%/test_load_cuda.c
EXTRA_DIST += %D%/test_steps_cuda.c
EXTRA_DIST += %D%/test_meet_cuda.c
EXTRA_DIST += %D%/test_weights_cuda.c
EXTRA_DIST += %D%/test_rows_cuda.c
