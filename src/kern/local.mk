# SPDX-License-Identifier: Apache-2.0
# Plain C for every machine; the names of the others say what they need.
kern_sources = \
	%D%/device_cuda.h \
	%D%/embed_cpu.c \
	%D%/gae_cpu.c \
	%D%/kern.h \
	%D%/policy_loss_cpu.c \
	%D%/value_cpu.c
kern_avx2_sources =
kern_avx512_sources =
kern_avx512bf16_sources =
# With CUDA, and what stands in for it without.
kern_cuda_sources = %D%/device_cuda.cu
kern_nocuda_sources = %D%/device_none.c
