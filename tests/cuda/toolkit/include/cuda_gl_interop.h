/* SPDX-License-Identifier: Apache-2.0 */
/* StarPU looks for it; emulated cards draw nothing. */
