/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * as_vllm.h - --compat vllm and aphrodite: those engines' own metric names, labels,
 * types and bounds on /metrics, from what is seen from outside, whatever the engine.
 */
#ifndef REQPROBE_SINK_AS_VLLM_H
#define REQPROBE_SINK_AS_VLLM_H

#include "sink/output.h"

/*
 * Names and definitions: vllm/v1/metrics/{loggers,buckets,stats}.py of 0.32.0, and
 * prometheus-fastapi-instrumentator's default(); aphrodite's are the same with another
 * prefix. What each is made of, and which are absent: docs/metrics.md.
 */
extern const struct rp_output rp_as_vllm_output;

#endif
