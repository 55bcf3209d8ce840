# SPDX-License-Identifier: Apache-2.0
sched_sources =
