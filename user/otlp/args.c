// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "otlp/args.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "options.h"
#include "otlp/config.h"

enum {
	OPT_OTLP = 0x4f00, /* no other parser's */
	OPT_TRACES,
	OPT_INTERVAL,
	OPT_PROTOCOL,
	OPT_COMPRESSION,
	OPT_HEADER,
	OPT_TIMEOUT,
	OPT_QUEUE,
	OPT_EXPONENTIAL,
	OPT_BUCKETS,
	OPT_TEMPORALITY,
	OPT_PROVIDER,
	OPT_SCHEMA,
	OPT_RESOURCE,
	OPT_SERIES,
	OPT_SAMPLER,
	OPT_CA,
	OPT_CERT,
	OPT_KEY,
	OPT_FLUSH
};

static const struct argp_option options[] = {
	{ 0, 0, 0, 0, "OpenTelemetry:", 5 },
	{ "otlp", OPT_OTLP, "URL", 0,
	  "Send metrics by OTLP over HTTP to URL/v1/metrics (as http://localhost:4318)", 5 },
	{ "otlp-traces", OPT_TRACES, "URL", OPTION_ARG_OPTIONAL,
	  "Send a span per request, to URL as it is, else to /v1/traces of --otlp", 5 },
	{ "otlp-interval", OPT_INTERVAL, "TIME", 0, "Between two sendings of metrics (default 60s)",
	  5 },
	{ "otlp-protocol", OPT_PROTOCOL, "NAME", 0, "http/protobuf (default) or http/json", 5 },
	{ "otlp-compression", OPT_COMPRESSION, "NAME", 0, "gzip (default) or none", 5 },
	{ "otlp-header", OPT_HEADER, "NAME=VALUE", 0, "Header of each request; may be repeated",
	  5 },
	{ "otlp-timeout", OPT_TIMEOUT, "TIME", 0, "Longest time for one request (default 10s)", 5 },
	{ "otlp-flush", OPT_FLUSH, "TIME", 0,
	  "Longest time for what is left at the end (default 5s)", 5 },
	{ "otlp-queue", OPT_QUEUE, "SIZE", 0,
	  "Requests whose spans wait, part of --memory (default 4M)", 5 },
	{ "otlp-exponential", OPT_EXPONENTIAL, 0, 0, "Exponential histograms", 5 },
	{ "otlp-buckets", OPT_BUCKETS, "SET", 0,
	  "standard (the conventions' bounds, default) or extended (to 2560 s)", 5 },
	{ "otlp-temporality", OPT_TEMPORALITY, "NAME", 0,
	  "cumulative (default), delta or lowmemory", 5 },
	{ "otlp-max-series", OPT_SERIES, "N", 0,
	  "Sets of attributes of one metric; the rest is one (default 128)", 5 },
	{ "otlp-sampler", OPT_SAMPLER, "NAME[=RATIO]", 0,
	  "Which requests get a span (default parentbased_always_on)", 5 },
	{ "otlp-provider", OPT_PROVIDER, "NAME", 0,
	  "gen_ai.provider.name (default: the engine's name)", 5 },
	{ "otlp-resource", OPT_RESOURCE, "NAME=VALUE", 0, "Resource attribute; may be repeated",
	  5 },
	{ "otlp-schema-url", OPT_SCHEMA, "URL", 0, "Schema URL of what is sent (default: none)",
	  5 },
	{ "otlp-certificate", OPT_CA, "FILE", 0, "Trust these authorities (PEM) for https", 5 },
	{ "otlp-client-certificate", OPT_CERT, "FILE", 0,
	  "Certificate of ours (PEM), where the receiver wants one", 5 },
	{ "otlp-client-key", OPT_KEY, "FILE", 0, "Its key (PEM)", 5 },
	{ 0 },
};

static double a_time(const char *name, const char *s, double min, double max)
{
	int64_t ns;

	if (!rp_parse_time(s, (int64_t)(min * 1e9), (int64_t)(max * 1e9), &ns))
		rp_refuse("%s %s: a time from %gs to %gs, as in 500ms, 10, 10s, 1m", name, s, min,
			  max);
	return (double)ns / 1e9;
}

static const char *one_of(const char *name, const char *s, const char *const *names, size_t n)
{
	char list[128] = "";

	for (size_t i = 0; i < n; i++) {
		if (!strcasecmp(s, names[i]))
			return names[i];
		strcat(strcat(list, i ? ", " : ""), names[i]);
	}
	rp_refuse("%s %s: one of %s", name, s, list);
}

#define ONE_OF(name, ...)                                       \
	one_of(name, arg, (const char *const[]){ __VA_ARGS__ }, \
	       sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(const char *))

static uint64_t a_number(const char *name, const char *s, uint64_t min, uint64_t max, bool size)
{
	uint64_t v;

	if (!rp_parse_size(s, size ? "KMG" : "", min, max, &v))
		rp_refuse("%s %s: a %s from %llu to %llu", name, s, size ? "size" : "number",
			  (unsigned long long)min, (unsigned long long)max);
	return v;
}

static error_t parse(int key, char *arg, struct argp_state *st)
{
	struct rp_otlp_options *o = &((struct rp_options *)st->input)->otlp;

	switch (key) {
	case OPT_OTLP:
		o->endpoint = arg;
		return 0;
	case OPT_TRACES:
		o->traces = true;
		o->traces_url = arg;
		return 0;
	case OPT_INTERVAL:
		o->interval_s = a_time("--otlp-interval", arg, 0.1, 86400);
		return 0;
	case OPT_PROTOCOL:
		o->protocol = ONE_OF("--otlp-protocol", "http/protobuf", "http/json");
		return 0;
	case OPT_COMPRESSION:
		o->compression = ONE_OF("--otlp-compression", "gzip", "none");
		return 0;
	case OPT_HEADER:
	case OPT_RESOURCE: {
		bool h = key == OPT_HEADER;
		unsigned *n = h ? &o->n_headers : &o->n_resource;

		if (*n == RP_OTLP_LIST_MAX)
			rp_refuse("at most %d --otlp-%s", RP_OTLP_LIST_MAX,
				  h ? "header" : "resource");
		(h ? o->headers : o->resource)[(*n)++] = arg;
		return 0;
	}
	case OPT_TIMEOUT:
		o->timeout_s = a_time("--otlp-timeout", arg, 0.01, 3600);
		return 0;
	case OPT_FLUSH:
		o->flush_s = a_time("--otlp-flush", arg, 0.1, 3600);
		return 0;
	case OPT_QUEUE:
		o->queue = a_number("--otlp-queue", arg, RP_OTLP_QUEUE_MIN, 1ULL << 30, true);
		return 0;
	case OPT_EXPONENTIAL:
		o->exponential = true;
		return 0;
	case OPT_BUCKETS:
		o->extended = !strcmp(ONE_OF("--otlp-buckets", "standard", "extended"), "extended");
		return 0;
	case OPT_TEMPORALITY:
		o->temporality = ONE_OF("--otlp-temporality", "cumulative", "delta", "lowmemory");
		return 0;
	case OPT_SERIES:
		o->max_series =
			(uint32_t)a_number("--otlp-max-series", arg, 2, RP_OTLP_SERIES_MAX, false);
		return 0;
	case OPT_SAMPLER:
		o->sampler = arg;
		return 0;
	case OPT_PROVIDER:
		o->provider = arg;
		return 0;
	case OPT_SCHEMA:
		o->schema_url = arg;
		return 0;
	case OPT_CA:
		o->ca = arg;
		return 0;
	case OPT_CERT:
		o->cert = arg;
		return 0;
	case OPT_KEY:
		o->key = arg;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

const struct argp rp_otlp_argp = { options, parse, NULL, NULL, NULL, NULL, NULL };
