/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * config.h - what is sent where: the options, then the environment, then defaults,
 * by the rules of the OpenTelemetry specification (protocol/exporter.md,
 * configuration/sdk-environment-variables.md, trace/sdk.md).
 */
#ifndef REQPROBE_OTLP_CONFIG_H
#define REQPROBE_OTLP_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

#define RP_OTLP_QUEUE_MIN (64u << 10)
#define RP_OTLP_SERIES_MAX 2000

struct rp_otlp_kv {
	char *key, *value;
};

struct rp_otlp_list {
	struct rp_otlp_kv kv[2 * RP_OTLP_LIST_MAX];
	unsigned n;
};

/* Where one kind of data goes. */
struct rp_otlp_signal {
	bool on;
	char *url;
	char *shown; /* the same for people: no credentials, no query */
	struct rp_otlp_list headers;
	char *ca, *cert, *key; /* PEM files, or NULL */
	bool json, gzip;
	uint32_t timeout_ms;
};

enum rp_otlp_sampler { RP_OTLP_ALWAYS_ON, RP_OTLP_ALWAYS_OFF, RP_OTLP_RATIO };
enum rp_otlp_temporality { RP_OTLP_CUMULATIVE, RP_OTLP_DELTA, RP_OTLP_LOWMEMORY };
enum rp_otlp_exemplars { RP_OTLP_TRACE_BASED, RP_OTLP_EX_ON, RP_OTLP_EX_OFF };

struct rp_otlp_config {
	struct rp_otlp_signal metrics, traces;
	bool from_env;	      /* nothing but the environment asked for it */
	uint32_t interval_ms; /* of metrics */
	uint32_t delay_ms;    /* longest that a span waits for others */
	uint32_t batch;	      /* most spans of one request */
	uint32_t flush_ms;    /* at the end */
	enum rp_otlp_temporality temporality;
	bool exponential, extended;
	enum rp_otlp_exemplars exemplars;
	bool parent_based; /* what the parent says goes; the sampler is for the rest */
	enum rp_otlp_sampler sampler;
	double ratio;
	char *provider;	  /* NULL: by the engine */
	char *schema_url; /* NULL: none */
	struct rp_otlp_list resource;
	uint32_t max_series;
	size_t queue; /* bytes */
};

/*
 * Fills *c, which rp_otlp_config_free() frees whatever came of it. get: getenv(). warn
 * is told, one line each, what of the environment is not understood and so ignored.
 * Neither signal on: nothing was asked for. -EINVAL with one line in err for options
 * that are wrong, -ENOMEM. Values of headers are in no line.
 */
int rp_otlp_configure(const struct rp_options *o, char *(*get)(const char *),
		      void (*warn)(const char *line), struct rp_otlp_config *c, char *err,
		      size_t errlen);
void rp_otlp_config_free(struct rp_otlp_config *c);

#endif
