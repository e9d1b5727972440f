/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* args.h - what the user typed about OpenTelemetry, as he typed it. */
#ifndef REQPROBE_OTLP_ARGS_H
#define REQPROBE_OTLP_ARGS_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#define RP_OTLP_LIST_MAX 32

/* NULL, 0 or false: not given, the environment or the default decides. Strings are
 * those of argv. */
struct rp_otlp_options {
	const char *endpoint; /* --otlp: base URL */
	bool traces;	      /* --otlp-traces */
	const char *traces_url;
	double interval_s, timeout_s, flush_s;
	const char *protocol, *compression, *temporality, *provider, *schema_url, *sampler;
	const char *ca, *cert, *key;
	const char *headers[RP_OTLP_LIST_MAX], *resource[RP_OTLP_LIST_MAX];
	unsigned n_headers, n_resource;
	bool exponential, extended;
	uint64_t queue;	     /* bytes */
	uint32_t max_series; /* of each metric */
};

extern const struct argp rp_otlp_argp; /* its input is the struct rp_options */

#endif
