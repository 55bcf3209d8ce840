# SPDX-License-Identifier: Apache-2.0
model_sources =
