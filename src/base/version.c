/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "weft.h"

const char *weft_version(void)
{
    return PACKAGE_VERSION;
}
