// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "sink/output.h"

#include "log/log.h"
#include "metrics/goodput.h"
#include "otlp/otlp.h"
#include "sink/as_vllm.h"
#include "sink/compat.h"
#include "sink/lrm.h"

const struct rp_output *const rp_outputs[] = {
	&rp_lrm_output,	    &rp_log_output,  &rp_as_vllm_output,
	&rp_goodput_output, &rp_otlp_output, NULL,
};

const struct argp_child rp_output_options[] = {
	{ &rp_compat_argp, 0, NULL, 0 }, { &rp_lrm_argp, 0, NULL, 0 },
	{ &rp_log_argp, 0, NULL, 0 },	 { &rp_goodput_argp, 0, NULL, 0 },
	{ &rp_otlp_argp, 0, NULL, 0 },	 { 0 },
};
