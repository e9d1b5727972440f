/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * goodput.h - --goodput: requests that meet service level objectives, counted while
 * they are watched. A record says nothing of it: objectives are a view on records, and
 * whoever has the line can judge it by others later (table.h).
 */
#ifndef REQPROBE_METRICS_GOODPUT_H
#define REQPROBE_METRICS_GOODPUT_H

#include <argp.h>

#include "metrics/table.h"

struct rp_goodput_options {
	struct rp_slos slos; /* n = 0: not asked for */
};

/* Its input is the struct rp_options: fills o->goodput. */
extern const struct argp rp_goodput_argp;

struct rp_output;
extern const struct rp_output rp_goodput_output;

#endif
