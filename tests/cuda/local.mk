# SPDX-License-Identifier: Apache-2.0
# The kernels for GPUs, compiled as C++ and run on the CPU.
cuda_executor = %D%/libcuda_executor.a
cuda_executor_objects = %D%/executor.o \
	$(patsubst src/kern/%.cu,%D%/%.o,$(cuda_kernels))
cuda_executor_headers = %D%/cuda_runtime.h %D%/test_device.h \
	%D%/test_executor.h
CUDA_EXECUTOR_FLAGS = -std=c++17 -ffp-contract=off -fno-exceptions \
	-fno-rtti -fno-threadsafe-statics -Wall -Wextra -Wno-unknown-pragmas \
	$(WEFT_WERROR) $(WEFT_INSTRUMENT_CFLAGS) -D_GNU_SOURCE \
	-I$(srcdir)/tests/cuda -I$(srcdir)/src -I.
V_cxx = $(V_cxx_@AM_V@)
V_cxx_ = $(V_cxx_@AM_DEFAULT_V@)
V_cxx_0 = @echo "  CXX     " $@;
V_cxx_1 =

tests/cuda/%.o: $(srcdir)/src/kern/%.cu
	@$(MKDIR_P) $(@D)
	$(V_cxx)$(CXX) $(CUDA_EXECUTOR_FLAGS) $(CXXFLAGS) -MMD -MP -x c++ \
	    -c -o $@ $<
tests/cuda/executor.o: $(srcdir)/tests/cuda/executor.cc
	@$(MKDIR_P) $(@D)
	$(V_cxx)$(CXX) $(CUDA_EXECUTOR_FLAGS) $(CXXFLAGS) -MMD -MP -c -o $@ $<
$(cuda_executor): $(cuda_executor_objects)
	$(AM_V_AR)rm -f $@ && $(AR) cr $@ $(cuda_executor_objects)
-include $(cuda_executor_objects:.o=.d)
CLEANFILES += $(cuda_executor) $(cuda_executor_objects) \
	$(cuda_executor_objects:.o=.d)
EXTRA_DIST += %D%/executor.cc $(cuda_executor_headers) %D%/no_cxx.sh

# A test of kernels runs under the executor, and once more, as card_..., on a
# GPU where the build has CUDA. Its source is the same.
cuda_test_flags = -I$(srcdir)/tests/cuda $(AM_CPPFLAGS)
cuda_test_libs = $(cuda_executor) $(kern_libs)
card_test_flags = $(AM_CPPFLAGS) $(CUDA_CFLAGS)

if WEFT_HAVE_CXX
check_PROGRAMS += %D%/test_executor
%C%_test_executor_SOURCES = %D%/test_executor.c
%C%_test_executor_CPPFLAGS = $(cuda_test_flags)
%C%_test_executor_LDADD = %D%/test_executor_kernels.o $(cuda_test_libs)
tests/cuda/test_executor_kernels.o: $(srcdir)/tests/cuda/test_executor_kernels.cu
	@$(MKDIR_P) $(@D)
	$(V_cxx)$(CXX) $(CUDA_EXECUTOR_FLAGS) $(CXXFLAGS) -MMD -MP -x c++ \
	    -c -o $@ $<
-include %D%/test_executor_kernels.d
CLEANFILES += %D%/test_executor_kernels.o %D%/test_executor_kernels.d
else
sh_tests += %D%/no_cxx.sh
endif
EXTRA_DIST += %D%/test_executor_kernels.cu %D%/test_executor.c
