# SPDX-License-Identifier: Apache-2.0
# Plain C for every machine; the names of the others say what they need.
kern_sources = \
	%D%/adamw.h \
	%D%/adamw_cpu.c \
	%D%/attention_backward_impl.h \
	%D%/attention_cuda.h \
	%D%/attention_items_cuda.h \
	%D%/attention_loads_cuda.h \
	%D%/attention_page_cuda.h \
	%D%/attention_segment_cuda.h \
	%D%/attention_tiles_cuda.h \
	%D%/attention_impl.h \
	%D%/blaslt_choice_cuda.h %D%/blaslt_cuda.h \
	%D%/cuda_lang.h \
	%D%/device_cuda.h \
	%D%/embed_cpu.c \
	%D%/ends.h \
	%D%/gae_cpu.c \
	%D%/gemm_cpu.c \
	%D%/gemm_dw_cpu.c \
	%D%/group_advantage_cpu.c \
	%D%/head.h \
	%D%/head_backward_cpu.c \
	%D%/head_cpu.c \
	%D%/isa.c \
	%D%/kern.h \
	%D%/kern_cuda.h \
	%D%/kl_cpu.c \
	%D%/layer.h \
	%D%/layer_attention_backward_cpu.c \
	%D%/layer_attention_cpu.c \
	%D%/layer_backward.h \
	%D%/layer_backward_cpu.c \
	%D%/layer_cpu.c \
	%D%/layer_cuda.h \
	%D%/layer_forward.h \
	%D%/layer_backward_cuda.h %D%/layer_forward_cuda.h \
	%D%/layer_forward_cpu.c \
	%D%/layer_heads_cpu.c \
	%D%/layer_kv_cpu.c \
	%D%/layer_mlp_backward_cpu.c \
	%D%/layer_rows_cuda.h \
	%D%/mma_cuda.h \
	%D%/layer_saved_cpu.c \
	%D%/layer_unrotate_cpu.c \
	%D%/losses.h \
	%D%/losses_cuda.h \
	%D%/mm_impl.h \
	%D%/mix_cpu.c \
	%D%/moments_cpu.c \
	%D%/ops.h \
	%D%/ops_c.c \
	%D%/pack_impl.h \
	%D%/parts.h \
	%D%/parts_cpu.c \
	%D%/policy_loss.h \
	%D%/policy_loss_cpu.c \
	%D%/preference_loss.h \
	%D%/preference_loss_cpu.c \
	%D%/publish_cpu.c \
	%D%/reduce_cpu.c \
	%D%/reward_cpu.c \
	%D%/rmsnorm_cuda.h \
	%D%/rope_angles.h \
	%D%/rope_cpu.c \
	%D%/rows.h \
	%D%/rows_c.c \
	%D%/rows_cpu.c \
	%D%/rows_impl.h \
	%D%/sample.h %D%/sample_cpu.c \
	%D%/simd_avx512.h \
	%D%/softmax.h \
	%D%/sample_cuda.h \
	%D%/softmax_c.c \
	%D%/softmax_cpu.c \
	%D%/softmax_cuda.h \
	%D%/sum_blocks_cuda.h \
	%D%/weight_gradient_cuda.h \
	%D%/softmax_impl.h \
	%D%/stream_impl.h \
	%D%/tile_impl.h \
	%D%/transpose.h \
	%D%/value_cpu.c \
	%D%/vec.h \
	%D%/vec16.h \
	%D%/vec16_avx2.h \
	%D%/vec16_avx512.h \
	%D%/vec16_c.h
kern_avx2_sources = %D%/ops_avx2.c %D%/rows_avx2.c %D%/softmax_avx2.c
kern_avx512_sources = %D%/ops_avx512.c %D%/rows_avx512.c \
	%D%/softmax_avx512.c
kern_avx512bf16_sources = %D%/ops_avx512bf16.c
# With CUDA, and what stands in for it without.
# cuda_kernels also run on the CPU, for tests (tests/cuda).
cuda_kernels = \
	%D%/adamw_cuda.cu \
	%D%/attention_backward_cuda.cu \
	%D%/attention_cuda.cu \
	%D%/attention_mma_backward_cuda.cu \
	%D%/attention_mma_cuda.cu \
	%D%/embed_cuda.cu \
	%D%/gae_cuda.cu \
	%D%/head_cuda.cu \
	%D%/head_norms_cuda.cu \
	%D%/layer_qkv_cuda.cu \
	%D%/layer_rows_cuda.cu \
	%D%/load_cuda.cu \
	%D%/panels_cuda.cu \
	%D%/policy_loss_cuda.cu \
	%D%/preference_loss_cuda.cu \
	%D%/publish_cuda.cu \
	%D%/reduce_cuda.cu \
	%D%/rows_cuda.cu \
	%D%/sample_cuda.cu \
	%D%/sample_cut_cuda.cu \
	%D%/meet_cuda.cu \
	%D%/step_again_cuda.cu \
	%D%/steps_cuda.cu \
	%D%/sum_blocks_cuda.cu \
	%D%/swiglu_cuda.cu \
	%D%/value_cuda.cu \
	%D%/weight_gradient_cuda.cu
kern_cuda_sources = %D%/device_cuda.cu $(cuda_kernels)
# Host code of GPUs: C that calls CUDA and these kernels.
cuda_host_sources = %D%/blaslt_choice_cuda.c %D%/blaslt_cuda.c \
	%D%/choose_cuda.c %D%/graph_cuda.c %D%/head_products_cuda.c \
	%D%/layer_attention_cuda.c %D%/layer_backward_cuda.c \
	%D%/layer_forward_cuda.c %D%/layer_heads_backward_cuda.c \
	%D%/layer_norm_backward_cuda.c %D%/products_cuda.c
kern_nocuda_sources = %D%/device_none.c
