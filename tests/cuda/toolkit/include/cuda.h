/* SPDX-License-Identifier: Apache-2.0 */
/* Of CUDA's driver library what hwloc's header names: nothing is there. */
#ifndef WEFT_TESTS_CUDA_H
#define WEFT_TESTS_CUDA_H

#define CUDA_VERSION 13000

typedef int CUdevice;
typedef enum { CUDA_SUCCESS = 0 } CUresult;
typedef enum {
    CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
    CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34,
    CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50
} CUdevice_attribute;
CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute what,
                              CUdevice device);

#endif
