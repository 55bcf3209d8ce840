/* SPDX-License-Identifier: Apache-2.0 */
/* Wall time, for reports only: nothing that is computed depends on it. */
#ifndef WEFT_BASE_CLOCK_H
#define WEFT_BASE_CLOCK_H

/* Seconds of a clock that never goes back. */
double weft_clock_s(void);

#endif
