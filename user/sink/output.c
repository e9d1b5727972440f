// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "sink/output.h"

const struct rp_output *const rp_outputs[] = { NULL };

const struct argp_child rp_output_options[] = { { 0 } };
