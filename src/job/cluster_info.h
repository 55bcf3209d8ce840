/* SPDX-License-Identifier: Apache-2.0 */
/* What a cluster's file says, and what its devices and links make of it. */
#ifndef WEFT_JOB_CLUSTER_INFO_H
#define WEFT_JOB_CLUSTER_INFO_H

#include "base/string.h"

/* Appends a table by kind of node: what was given, what a layer takes by the
 * roofline, and messages between devices. Errors: those of the file. */
int weft_cluster_info(const char *path, struct weft_string *out,
                      struct weft_err *err);

#endif
