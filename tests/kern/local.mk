# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_device_cuda
%C%_test_device_cuda_LDADD = $(kern_libs)
