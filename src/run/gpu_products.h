/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WEFT_RUN_GPU_PRODUCTS_H
#define WEFT_RUN_GPU_PRODUCTS_H

#include "run/trainer.h"

/* Has every GPU of the plan choose and prove the algorithms of the products
 * that its calls make, before there is a tile. Waits. Collective. Errors: those
 * of the library, WEFT_EUNSUPPORTED where no algorithm is proven. */
int weft_run_choose_products(struct weft_trainer *t, struct weft_err *err);

#endif
