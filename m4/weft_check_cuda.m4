# SPDX-License-Identifier: Apache-2.0
#
# WEFT_CHECK_CUDA: kernels for NVIDIA GPUs. Run after WEFT_CHECK_STARPU.
#
# --with-cuda=PATH (or yes), --without-cuda; without either: when nvcc is
# found. A driver or a GPU is not needed to build, nor to start the program:
# the run time library is linked statically, unless StarPU uses CUDA itself
# (then both must share one). 11.8 is the first that knows Hopper (sm_90).
#
# cuBLASLt makes the products. Only its header is needed here: the library,
# half a gigabyte, is opened when a GPU is used. Its first version with
# algorithms for Hopper is that of CUDA 11.8, too.
#
# Outputs: NVCC, NVCC_GENCODE (overridable), CUDA_CFLAGS, CUDA_LIBS,
# WEFT_HAVE_CUDA in config.h and as automake conditional, weft_have_cuda,
# weft_why_cuda.
AC_DEFUN([WEFT_CHECK_CUDA], [
    AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=PATH],
        [CUDA toolkit; --without-cuda to leave it out])],
        [], [with_cuda=guess])
    AC_ARG_VAR([NVCC], [CUDA compiler])
    AC_ARG_VAR([NVCC_GENCODE], [-gencode flags for nvcc])
    AS_IF([test -z "$NVCC_GENCODE"], [
        # Hopper and newer by PTX; Ampere until CUDA drops it.
        NVCC_GENCODE="-gencode=arch=compute_80,code=sm_80"
        NVCC_GENCODE="$NVCC_GENCODE -gencode=arch=compute_90,code=sm_90"
        NVCC_GENCODE="$NVCC_GENCODE -gencode=arch=compute_90,code=compute_90"
    ])
    weft_have_cuda=no
    weft_why_cuda="switched off by --without-cuda"
    CUDA_CFLAGS=
    CUDA_LIBS=
    AS_IF([test "x$with_cuda" != xno], [
        AS_CASE([$with_cuda], [guess|yes],
            [AC_PATH_PROG([NVCC], [nvcc], [], [$PATH:/usr/local/cuda/bin])],
            [NVCC=$with_cuda/bin/nvcc
             weft_distcheck_flags="$weft_distcheck_flags --with-cuda=$with_cuda"])
        weft_why_cuda="no nvcc"
        AS_IF([test -n "$NVCC" && test -x "$NVCC"], [
            weft_nvcc=`readlink -f "$NVCC"`
            weft_cuda=`dirname "$weft_nvcc"`
            weft_cuda=`dirname "$weft_cuda"`
            weft_cuda_v=`"$NVCC" --version |
                sed -n 's/.*release \([[0-9.]]*\),.*/\1/p'`
            AS_IF([test -d "$weft_cuda/lib64"],
                [weft_cuda_lib=$weft_cuda/lib64],
                [weft_cuda_lib=$weft_cuda/lib])
            CUDA_CFLAGS="-isystem $weft_cuda/include"
            AS_IF([test $weft_starpu_cuda = yes],
                [CUDA_LIBS="-L$weft_cuda_lib -Wl,-rpath,$weft_cuda_lib -lcudart -lstdc++"],
                [test -r "$weft_cuda_lib/libcudart_static.a"],
                [CUDA_LIBS="-L$weft_cuda_lib -lcudart_static -ldl -lpthread -lstdc++"],
                [CUDA_LIBS="-L$weft_cuda_lib -Wl,-rpath,$weft_cuda_lib -lcudart -lstdc++"])
            AC_MSG_CHECKING([that $NVCC compiles and the result links])
            AS_ECHO(["#include <cuda_runtime.h>
extern \"C\" int weft_n(void);
int weft_n(void) { int n = 0; cudaGetDeviceCount(&n); return n; }
__global__ void weft_nothing(int *p) { *p = 0; }"]) >conftest.cu
            AS_IF([AC_TRY_COMMAND([$NVCC $NVCC_GENCODE -Xcompiler -fPIC -c conftest.cu -o conftest_cu.o >&AS_MESSAGE_LOG_FD 2>&1])], [
                weft_save_LIBS=$LIBS
                LIBS="conftest_cu.o $CUDA_LIBS $LIBS"
                AC_LINK_IFELSE([AC_LANG_PROGRAM([[int weft_n(void);]],
                    [[return weft_n();]])], [weft_have_cuda=yes],
                    [weft_why_cuda="nvcc $weft_cuda_v is there but libcudart does not link"])
                LIBS=$weft_save_LIBS
            ], [weft_why_cuda="nvcc $weft_cuda_v is there but does not compile (see config.log)"])
            rm -f conftest.cu conftest_cu.o
            AC_MSG_RESULT([$weft_have_cuda])
            AS_IF([test $weft_have_cuda = yes], [
                weft_save_CPPFLAGS=$CPPFLAGS
                CPPFLAGS="$CUDA_CFLAGS $CPPFLAGS"
                AC_CHECK_HEADER([cublasLt.h], [], [weft_have_cuda=no
                    weft_why_cuda="CUDA $weft_cuda_v is there but cublasLt.h is not (package libcublas-dev)"])
                CPPFLAGS=$weft_save_CPPFLAGS
            ])
            AS_IF([test $weft_have_cuda = yes], [
                weft_cublas_v=`sed -n 's/^#define CUBLAS_VER_MAJOR *//p' \
                    "$weft_cuda/include/cublas_api.h" 2>/dev/null`
                AC_DEFINE_UNQUOTED([WEFT_CUBLASLT],
                    ["libcublasLt.so.${weft_cublas_v:-12}"],
                    [the library of products])
                AC_DEFINE_UNQUOTED([WEFT_CUBLASLT_PATH],
                    ["$weft_cuda_lib/libcublasLt.so.${weft_cublas_v:-12}"],
                    [the same, where the toolkit of the build is])
                weft_why_cuda=$weft_cuda_v
                AC_DEFINE([WEFT_HAVE_CUDA], [1], [CUDA is there])
                AC_DEFINE_UNQUOTED([WEFT_CUDA_NAME], ["CUDA $weft_cuda_v"],
                    [the CUDA of the build])
            ], [CUDA_CFLAGS=; CUDA_LIBS=])
        ])
        AS_CASE([$with_cuda:$weft_have_cuda], [guess:*|*:yes], [],
            [AC_MSG_ERROR([--with-cuda was asked for, but $weft_why_cuda])])
    ], [weft_distcheck_flags="$weft_distcheck_flags --without-cuda"])
    AC_SUBST([CUDA_CFLAGS])
    AC_SUBST([CUDA_LIBS])
    AM_CONDITIONAL([WEFT_HAVE_CUDA], [test $weft_have_cuda = yes])
])
