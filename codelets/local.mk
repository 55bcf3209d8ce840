# SPDX-License-Identifier: Apache-2.0
codelets_sources =
