/* SPDX-License-Identifier: Apache-2.0 */
/* StarPU's headers name it; emulated cards have no cuSPARSE. */
#ifndef WEFT_TESTS_CUSPARSE_H
#define WEFT_TESTS_CUSPARSE_H
typedef struct cusparseContext *cusparseHandle_t;
#endif
