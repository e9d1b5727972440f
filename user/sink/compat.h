/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * compat.h - the option --compat: whose metric names /metrics speaks beside our own.
 * Each name is an output of its own that looks for its bit.
 */
#ifndef REQPROBE_SINK_COMPAT_H
#define REQPROBE_SINK_COMPAT_H

#include <argp.h>
#include <stdint.h>

enum rp_compat {
	RP_COMPAT_LRM = 1 << 0,	      /* llm-runtime-metrics: sink/lrm.c */
	RP_COMPAT_VLLM = 1 << 1,      /* sink/as_vllm.c */
	RP_COMPAT_APHRODITE = 1 << 2, /* the same names with another prefix */
};

/* Its input is the struct rp_options: sets o->compat. */
extern const struct argp rp_compat_argp;

#endif
