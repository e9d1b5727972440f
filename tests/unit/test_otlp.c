// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* OTLP to the byte, settings by option and environment, traces, the queue, back-off. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "options.h"
#include "otlp/config.h"
#include "otlp/metrics.h"
#include "otlp/send.h"
#include "otlp/spans.h"
#include "otlp/writer.h"
#include "request.h"

static void same_bytes(const struct rp_buf *b, const char *want, size_t n)
{
	assert_false(b->oom);
	assert_int_equal(b->n, n);
	assert_memory_equal(b->p, want, n);
}

static const uint8_t counting[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

/* ---- the writer, against the bytes of the official Python package (1.45.2) ---- */

static void put_histogram(struct rp_ow *w)
{
	static const uint64_t counts[] = { 0, 2, 1 };
	static const double bounds[] = { 0.1, 0.25 };
	size_t m = rp_ow_begin(w, 0, NULL), h, d, e;

	rp_ow_str(w, 1, "name", "gen_ai.server.time_to_first_token");
	rp_ow_str(w, 3, "unit", "s");
	h = rp_ow_begin(w, 9, "histogram");
	rp_ow_list(w, "dataPoints");
	d = rp_ow_item(w, 1);
	rp_ow_fixed64(w, 2, "startTimeUnixNano", 1795964104000000000);
	rp_ow_fixed64(w, 3, "timeUnixNano", 1795964164000000000);
	rp_ow_fixed64(w, 4, "count", 3);
	rp_ow_double(w, 5, "sum", 0.5);
	rp_ow_fixed64s(w, 6, "bucketCounts", counts, 3);
	rp_ow_doubles(w, 7, "explicitBounds", bounds, 2);
	rp_ow_list(w, "exemplars");
	e = rp_ow_item(w, 8);
	rp_ow_fixed64(w, 2, "timeUnixNano", 7);
	rp_ow_double(w, 3, "asDouble", 0.3);
	rp_ow_id(w, 4, "spanId", counting, 8);
	rp_ow_id(w, 5, "traceId", counting, 16);
	rp_ow_end(w, e);
	rp_ow_list_end(w);
	rp_ow_list(w, "attributes");
	rp_ow_attr_i64(w, 9, "server.port", 8000);
	rp_ow_attr(w, 9, "gen_ai.operation.name", "chat");
	rp_ow_list_end(w);
	rp_ow_double(w, 11, "min", 0.05);
	rp_ow_double(w, 12, "max", 0.3);
	rp_ow_end(w, d);
	rp_ow_list_end(w);
	rp_ow_u32(w, 2, "aggregationTemporality", 2);
	rp_ow_end(w, h);
	rp_ow_end(w, m);
}

static void put_exponential(struct rp_ow *w)
{
	static const uint64_t counts[] = { 1, 0, 300 };
	size_t m = rp_ow_begin(w, 0, NULL), h, d, b;

	rp_ow_str(w, 1, "name", "x");
	rp_ow_str(w, 3, "unit", "s");
	h = rp_ow_begin(w, 10, "exponentialHistogram");
	rp_ow_list(w, "dataPoints");
	d = rp_ow_item(w, 1);
	rp_ow_fixed64(w, 2, "startTimeUnixNano", 1);
	rp_ow_fixed64(w, 3, "timeUnixNano", 2);
	rp_ow_fixed64(w, 4, "count", 3);
	rp_ow_double(w, 5, "sum", 0.5);
	rp_ow_sint32(w, 6, "scale", 3);
	b = rp_ow_begin(w, 8, "positive");
	rp_ow_sint32(w, 1, "offset", -20);
	rp_ow_u64s(w, 2, "bucketCounts", counts, 3);
	rp_ow_end(w, b);
	rp_ow_end(w, d);
	rp_ow_list_end(w);
	rp_ow_u32(w, 2, "aggregationTemporality", 1);
	rp_ow_end(w, h);
	rp_ow_end(w, m);
}

static void put_span(struct rp_ow *w)
{
	static const char *const list[] = { "a" };
	size_t m = rp_ow_begin(w, 0, NULL), st;

	rp_ow_id(w, 1, "traceId", counting, 16);
	rp_ow_id(w, 2, "spanId", counting, 8);
	rp_ow_str(w, 5, "name", "chat tiny");
	rp_ow_u32(w, 6, "kind", 2);
	rp_ow_fixed64(w, 7, "startTimeUnixNano", 5);
	rp_ow_fixed64(w, 8, "endTimeUnixNano", 9);
	rp_ow_list(w, "attributes");
	rp_ow_attr_bool(w, 9, "ok", true);
	rp_ow_attr_strs(w, 9, "l", list, 1);
	rp_ow_attr_double(w, 9, "d", 1.5);
	rp_ow_list_end(w);
	st = rp_ow_begin(w, 15, "status");
	rp_ow_u32(w, 3, "code", 2);
	rp_ow_end(w, st);
	rp_ow_fixed32(w, 16, "flags", 0x301);
	rp_ow_end(w, m);
}

static void put_sum(struct rp_ow *w)
{
	size_t d = rp_ow_begin(w, 0, NULL);

	rp_ow_sfixed64(w, 6, "asInt", -2);
	rp_ow_end(w, d);
}

static void wire(void **st)
{
	static const struct {
		void (*put)(struct rp_ow *);
		const char *bytes;
		size_t n;
		const char *json;
	} t[] = {
		{ put_histogram,
		  "\x0a\x21"
		  "gen_ai.server.time_to_first_token"
		  "\x1a\x01\x73\x4a\xcc\x01\x0a\xc7\x01\x11\x00\xd0\x45\x50\xd6\x8b\xec\x18\x19\x00"
		  "\x28\x8d\x48\xe4\x8b\xec\x18\x21\x03\x00\x00\x00\x00\x00\x00\x00\x29\x00\x00\x00"
		  "\x00\x00\x00\xe0\x3f\x32\x18\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00"
		  "\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x3a\x10\x9a\x99\x99\x99\x99\x99\xb9"
		  "\x3f\x00\x00\x00\x00\x00\x00\xd0\x3f\x42\x2e\x11\x07\x00\x00\x00\x00\x00\x00\x00"
		  "\x19\x33\x33\x33\x33\x33\x33\xd3\x3f\x22\x08\x00\x01\x02\x03\x04\x05\x06\x07\x2a"
		  "\x10\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x4a\x12\x0a"
		  "\x0bserver.port\x12\x03\x18\xc0\x3e\x4a\x1f\x0a\x15gen_ai.operation.name\x12\x06"
		  "\x0a\x04"
		  "chatY\x9a\x99\x99\x99\x99\x99\xa9\x3f\x61\x33\x33\x33\x33\x33\x33\xd3\x3f\x10"
		  "\x02",
		  245,
		  "{\"name\":\"gen_ai.server.time_to_first_token\",\"unit\":\"s\",\"histogram\":{"
		  "\"dataPoints\":[{\"startTimeUnixNano\":\"1795964104000000000\","
		  "\"timeUnixNano\":\"1795964164000000000\",\"count\":\"3\",\"sum\":0.5,"
		  "\"bucketCounts\":[\"0\",\"2\",\"1\"],\"explicitBounds\":[0.1,0.25],\"exemplars\":["
		  "{\"timeUnixNano\":\"7\",\"asDouble\":0.3,\"spanId\":\"0001020304050607\","
		  "\"traceId\":\"000102030405060708090a0b0c0d0e0f\"}],\"attributes\":[{\"key\":"
		  "\"server.port\",\"value\":{\"intValue\":\"8000\"}},{\"key\":"
		  "\"gen_ai.operation.name\",\"value\":{\"stringValue\":\"chat\"}}],\"min\":0.05,"
		  "\"max\":0.3}],\"aggregationTemporality\":2}}" },
		{ put_exponential,
		  "\x0a\x01\x78\x1a\x01\x73\x52\x34\x0a\x30\x11\x01\x00\x00\x00\x00\x00\x00\x00\x19"
		  "\x02\x00\x00\x00\x00\x00\x00\x00\x21\x03\x00\x00\x00\x00\x00\x00\x00\x29\x00\x00"
		  "\x00\x00\x00\x00\xe0\x3f\x30\x06\x42\x08\x08\x27\x12\x04\x01\x00\xac\x02\x10\x01",
		  60,
		  "{\"name\":\"x\",\"unit\":\"s\",\"exponentialHistogram\":{\"dataPoints\":[{"
		  "\"startTimeUnixNano\":\"1\",\"timeUnixNano\":\"2\",\"count\":\"3\",\"sum\":0.5,"
		  "\"scale\":3,\"positive\":{\"offset\":-20,\"bucketCounts\":[\"1\",\"0\",\"300\"]}}],"
		  "\"aggregationTemporality\":1}}" },
		{ put_span,
		  "\x0a\x10\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x12\x08"
		  "\x00\x01\x02\x03\x04\x05\x06\x07\x2a\x09"
		  "chat tiny\x30\x02\x39\x05\x00\x00\x00\x00\x00\x00\x00\x41\x09\x00\x00\x00\x00\x00"
		  "\x00\x00\x4a\x08\x0a\x02ok\x12\x02\x10\x01\x4a\x0c\x0a\x01l\x12\x07\x2a\x05\x0a"
		  "\x03\x0a\x01\x61\x4a\x0e\x0a\x01\x64\x12\x09\x21\x00\x00\x00\x00\x00\x00\xf8\x3f"
		  "\x7a\x02\x18\x02\x85\x01\x01\x03\x00\x00",
		  109,
		  "{\"traceId\":\"000102030405060708090a0b0c0d0e0f\",\"spanId\":\"0001020304050607\","
		  "\"name\":\"chat tiny\",\"kind\":2,\"startTimeUnixNano\":\"5\","
		  "\"endTimeUnixNano\":\"9\",\"attributes\":[{\"key\":\"ok\",\"value\":{\"boolValue\":"
		  "true}},{\"key\":\"l\",\"value\":{\"arrayValue\":{\"values\":[{\"stringValue\":"
		  "\"a\"}]}}},{\"key\":\"d\",\"value\":{\"doubleValue\":1.5}}],\"status\":{\"code\":2},"
		  "\"flags\":769}" },
		{ put_sum, "\x31\xfe\xff\xff\xff\xff\xff\xff\xff", 9, "{\"asInt\":\"-2\"}" },
	};

	(void)st;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct rp_buf b = { 0 };
		struct rp_ow w = { &b, false };

		t[i].put(&w);
		same_bytes(&b, t[i].bytes, t[i].n);
		b.n = 0;
		w.json = true;
		t[i].put(&w);
		same_bytes(&b, t[i].json, strlen(t[i].json));
		free(b.p);
	}
}

/* ---- settings ---- */

static const char *const *the_env;
static char warned[1024];

static char *fake_env(const char *name)
{
	size_t n = strlen(name);

	for (const char *const *e = the_env; e && *e; e++)
		if (!strncmp(*e, name, n) && (*e)[n] == '=')
			return (char *)*e + n + 1;
	return NULL;
}

static void take_warning(const char *line)
{
	snprintf(warned + strlen(warned), sizeof(warned) - strlen(warned), "%s\n", line);
}

static struct rp_options opts;

static int configure(const char *const *env, struct rp_otlp_config *c, char *err)
{
	the_env = env;
	warned[0] = '\0';
	return rp_otlp_configure(&opts, fake_env, take_warning, c, err, 256);
}

static void endpoints(void **st)
{
	static const struct {
		const char *base, *traces, *env[4];
		const char *metrics_url, *traces_url, *shown;
	} t[] = {
		/* options */
		{ "http://c:4318", NULL, { NULL }, "http://c:4318/v1/metrics", NULL, NULL },
		{ "http://c:4318/",
		  "",
		  { NULL },
		  "http://c:4318/v1/metrics",
		  "http://c:4318/v1/traces",
		  NULL },
		{ "https://c/a",
		  "http://d/x",
		  { NULL },
		  "https://c/a/v1/metrics",
		  "http://d/x",
		  NULL },
		{ "https://c/a/?k=v",
		  NULL,
		  { NULL },
		  "https://c/a/v1/metrics?k=v",
		  NULL,
		  "https://c/a/v1/metrics" },
		{ "http://u:p@c",
		  NULL,
		  { NULL },
		  "http://u:p@c/v1/metrics",
		  NULL,
		  "http://c/v1/metrics" },
		{ NULL, "", { NULL }, NULL, "http://localhost:4318/v1/traces", NULL },
		/* the environment, alone */
		{ NULL,
		  NULL,
		  { "OTEL_EXPORTER_OTLP_ENDPOINT=http://e:1" },
		  "http://e:1/v1/metrics",
		  NULL,
		  NULL },
		{ NULL,
		  NULL,
		  { "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://e:1" },
		  "http://e:1",
		  NULL,
		  NULL },
		{ NULL,
		  NULL,
		  { "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://e:1/t" },
		  NULL,
		  "http://e:1/t",
		  NULL },
		{ NULL,
		  NULL,
		  { "OTEL_EXPORTER_OTLP_ENDPOINT=http://e:1", "OTEL_TRACES_EXPORTER=console,otlp",
		    "OTEL_METRICS_EXPORTER=none" },
		  NULL,
		  "http://e:1/v1/traces",
		  NULL },
		{ NULL,
		  NULL,
		  { "OTEL_EXPORTER_OTLP_ENDPOINT=http://e:1", "OTEL_SDK_DISABLED=TRUE" },
		  NULL,
		  NULL,
		  NULL },
		{ NULL,
		  NULL,
		  { "OTEL_SERVICE_NAME=x", "OTEL_EXPORTER_OTLP_ENDPOINT=" },
		  NULL,
		  NULL,
		  NULL },
		/* both: options win, each for itself */
		{ "http://c",
		  "",
		  { "OTEL_EXPORTER_OTLP_ENDPOINT=http://e",
		    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://t", "OTEL_SDK_DISABLED=true" },
		  "http://c/v1/metrics",
		  "http://c/v1/traces",
		  NULL },
		{ NULL,
		  "",
		  { "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://t" },
		  NULL,
		  "http://t",
		  NULL },
	};

	(void)st;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct rp_otlp_config c;
		char err[256] = "";

		memset(&opts, 0, sizeof(opts));
		opts.otlp.endpoint = t[i].base;
		opts.otlp.traces = t[i].traces != NULL;
		opts.otlp.traces_url = t[i].traces && *t[i].traces ? t[i].traces : NULL;
		assert_int_equal(configure(t[i].env, &c, err), 0);
		assert_string_equal(warned, "");
		assert_int_equal(c.metrics.on, t[i].metrics_url != NULL);
		assert_int_equal(c.traces.on, t[i].traces_url != NULL);
		if (t[i].metrics_url)
			assert_string_equal(c.metrics.url, t[i].metrics_url);
		if (t[i].traces_url)
			assert_string_equal(c.traces.url, t[i].traces_url);
		if (t[i].shown)
			assert_string_equal(c.metrics.shown, t[i].shown);
		rp_otlp_config_free(&c);
		/* what is replayed is old: only by option */
		opts.verb = RP_VERB_REPLAY;
		assert_int_equal(configure(t[i].env, &c, err), 0);
		assert_int_equal(c.metrics.on || c.traces.on, t[i].base || t[i].traces);
		rp_otlp_config_free(&c);
	}
}

static void settings(void **st)
{
	static const char *const env[] = {
		"OTEL_EXPORTER_OTLP_PROTOCOL=http/json",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf",
		"OTEL_EXPORTER_OTLP_HEADERS=a=1, b = %20x%2C%3A ,A=2",
		"OTEL_EXPORTER_OTLP_TIMEOUT=1500",
		"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT=2500",
		"OTEL_EXPORTER_OTLP_COMPRESSION=none",
		"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION=gzip",
		"OTEL_EXPORTER_OTLP_CERTIFICATE=/ca",
		"OTEL_METRIC_EXPORT_INTERVAL=1234",
		"OTEL_BSP_SCHEDULE_DELAY=77",
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE=99",
		"OTEL_TRACES_SAMPLER=traceidratio",
		"OTEL_TRACES_SAMPLER_ARG=0.25",
		"OTEL_METRICS_EXEMPLAR_FILTER=always_on",
		"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=lowmemory",
		"OTEL_RESOURCE_ATTRIBUTES=service.name=r,x=y",
		"OTEL_SERVICE_NAME=s",
		NULL
	};
	static const char *const bad[] = {
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc",   "OTEL_EXPORTER_OTLP_HEADERS=secret",
		"OTEL_EXPORTER_OTLP_TIMEOUT=-1",      "OTEL_EXPORTER_OTLP_COMPRESSION=zstd",
		"OTEL_METRIC_EXPORT_INTERVAL=0",      "OTEL_TRACES_SAMPLER=jaeger_remote",
		"OTEL_RESOURCE_ATTRIBUTES=a=1,b=%zz", NULL
	};
	struct rp_otlp_config c;
	char err[256] = "";

	(void)st;
	memset(&opts, 0, sizeof(opts));
	opts.otlp.endpoint = "http://c";
	opts.otlp.traces = true;
	assert_int_equal(configure(env, &c, err), 0);
	assert_string_equal(warned, "");
	assert_true(c.metrics.json && !c.traces.json);
	assert_true(!c.metrics.gzip && c.traces.gzip);
	assert_int_equal(c.metrics.timeout_ms, 1500);
	assert_int_equal(c.traces.timeout_ms, 2500);
	assert_int_equal(c.metrics.headers.n, 2);
	assert_string_equal(c.metrics.headers.kv[0].value, "2");
	assert_string_equal(c.metrics.headers.kv[1].value, " x,:");
	assert_string_equal(c.metrics.ca, "/ca");
	assert_int_equal(c.interval_ms, 1234);
	assert_int_equal(c.delay_ms, 77);
	assert_int_equal(c.batch, 99);
	assert_true(c.sampler == RP_OTLP_RATIO && c.ratio == 0.25 && !c.parent_based);
	assert_int_equal(c.exemplars, RP_OTLP_EX_ON);
	assert_int_equal(c.temporality, RP_OTLP_LOWMEMORY);
	assert_int_equal(c.resource.n, 2);
	assert_string_equal(c.resource.kv[0].value, "s");
	rp_otlp_config_free(&c);

	/* options win */
	opts.otlp.protocol = "http/protobuf";
	opts.otlp.compression = "gzip";
	opts.otlp.timeout_s = 3;
	opts.otlp.interval_s = 0.5;
	opts.otlp.temporality = "delta";
	opts.otlp.sampler = "parentbased_always_off";
	opts.otlp.headers[opts.otlp.n_headers++] = "B=own";
	opts.otlp.resource[opts.otlp.n_resource++] = "service.name=o%20";
	assert_int_equal(configure(env, &c, err), 0);
	assert_true(!c.metrics.json && c.metrics.gzip);
	assert_int_equal(c.metrics.timeout_ms, 3000);
	assert_int_equal(c.interval_ms, 500);
	assert_int_equal(c.temporality, RP_OTLP_DELTA);
	assert_true(c.sampler == RP_OTLP_ALWAYS_OFF && c.parent_based);
	assert_int_equal(c.metrics.headers.n, 2);
	assert_string_equal(c.metrics.headers.kv[1].value, "own");
	assert_string_equal(c.resource.kv[0].value, "o%20");
	rp_otlp_config_free(&c);

	/* what is not understood is told, without values, and ignored */
	memset(&opts, 0, sizeof(opts));
	opts.otlp.endpoint = "http://c";
	assert_int_equal(configure(bad, &c, err), 0);
	assert_non_null(strstr(warned, "only http/protobuf and http/json"));
	assert_non_null(strstr(warned, "OTEL_EXPORTER_OTLP_HEADERS is no list"));
	assert_null(strstr(warned, "secret"));
	assert_non_null(strstr(warned, "OTEL_EXPORTER_OTLP_TIMEOUT is no number"));
	assert_non_null(strstr(warned, "OTEL_EXPORTER_OTLP_COMPRESSION is neither"));
	assert_non_null(strstr(warned, "OTEL_METRIC_EXPORT_INTERVAL is no number"));
	assert_non_null(strstr(warned, "OTEL_TRACES_SAMPLER or its _ARG"));
	assert_non_null(strstr(warned, "OTEL_RESOURCE_ATTRIBUTES is no list"));
	assert_true(!c.metrics.json && c.metrics.gzip && c.parent_based);
	assert_int_equal(c.metrics.timeout_ms, 10000);
	assert_int_equal(c.metrics.headers.n + c.resource.n, 0);
	rp_otlp_config_free(&c);

	opts.otlp.headers[opts.otlp.n_headers++] = "x: secret";
	assert_int_equal(configure(NULL, &c, err), -EINVAL);
	assert_null(strstr(err, "secret"));
	rp_otlp_config_free(&c);
}

/* ---- traces ---- */

static void traceparents(void **st)
{
	static const struct {
		const char *s;
		bool ok;
	} t[] = {
		{ "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", true },
		{ "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", true },
		{ "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", true },
		{ "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false },
		{ "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false },
		{ "00-00000000000000000000000000000000-b7ad6b7169203331-01", false },
		{ "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", false },
		{ "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1", false },
		{ "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x", false },
		{ "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-", false },
		{ "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false },
		{ "", false },
	};
	struct rp_otlp_parent p;

	(void)st;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		if (rp_otlp_traceparent(t[i].s, &p) != t[i].ok)
			fail_msg("%s", t[i].s);
	assert_true(rp_otlp_traceparent(t[0].s, &p));
	assert_int_equal(p.trace[0], 0x0a);
	assert_int_equal(p.trace[15], 0x9c);
	assert_int_equal(p.span[7], 0x31);
	assert_int_equal(p.flags, 1);
}

static void sampling(void **st)
{
	struct rp_otlp_config c = { .traces.on = true, .parent_based = true, .ratio = 1 };
	struct rp_otlp_random rnd = { .left = 0 };
	struct rp_record r = a_record();
	struct rp_otlp_trace t, u;
	int n = 0;

	(void)st;
	rp_otlp_trace(&c, &r, &rnd, &t);
	rp_otlp_trace(&c, &r, &rnd, &u);
	assert_true(t.sampled && !t.has_parent);
	assert_memory_not_equal(t.trace, u.trace, 16);
	assert_memory_not_equal(t.span, u.span, 8);
	/* the parent's word goes */
	strcpy(r.traceparent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
	rp_otlp_trace(&c, &r, &rnd, &t);
	assert_true(t.has_parent && !t.sampled);
	c.sampler = RP_OTLP_ALWAYS_OFF;
	r.traceparent[54] = '1';
	rp_otlp_trace(&c, &r, &rnd, &t);
	assert_true(t.has_parent && t.sampled);
	assert_int_equal(t.trace[0], 0x0a);
	assert_int_equal(t.parent[0], 0xb7);
	/* unless asked not to listen */
	c.parent_based = false;
	rp_otlp_trace(&c, &r, &rnd, &t);
	assert_false(t.sampled);
	c.sampler = RP_OTLP_RATIO;
	c.ratio = 0.25;
	r.traceparent[0] = '\0';
	for (int i = 0; i < 4000; i++) {
		rp_otlp_trace(&c, &r, &rnd, &t);
		n += t.sampled;
	}
	assert_in_range(n, 800, 1200); /* 7 sigma */
}

static void resource(void *ctx, struct rp_ow *w)
{
	size_t m = rp_ow_begin(w, 1, "resource");

	(void)ctx;
	rp_ow_end(w, m);
}

static size_t occurrences(const struct rp_buf *b, const char *what)
{
	size_t n = 0;

	for (const char *p = b->p; (p = memmem(p, b->n - (size_t)(p - b->p), what, strlen(what)));
	     p++)
		n++;
	return n;
}

static void has(const struct rp_buf *b, const char *what)
{
	if (occurrences(b, what) != 1)
		fail_msg("%s\n is not there once in\n%.*s", what, (int)b->n, b->p);
}

static void span_text(void **st)
{
	struct rp_otlp_config c = { .traces.on = true };
	struct rp_otlp_random rnd = { .left = 0 };
	struct rp_otlp_queue *q = rp_otlp_queue_new(RP_OTLP_QUEUE_MIN);
	struct rp_record r = a_record();
	struct rp_otlp_trace t = { .sampled = true, .has_parent = true };
	struct rp_buf b = { 0 };
	struct rp_ow w = { &b, true };
	uint64_t requests;
	json_t *whole;

	(void)st;
	memcpy(t.trace, counting, 16);
	memset(t.span, 0x11, 8);
	memset(t.parent, 0x22, 8);
	assert_int_equal(rp_otlp_queue_put(q, &r, &t), 0);
	/* nothing of the engine: no children */
	r.joined = false;
	r.engine_why = RP_WHY_NO_ENGINE_HOOKS;
	r.t_queued = r.t_scheduled = r.t_eng_first = r.t_eng_last = RP_NONE;
	r.status = 500;
	r.has_error = true;
	r.error_where = "status";
	r.end = RP_END_ERROR;
	rp_derive(&r);
	assert_int_equal(rp_otlp_queue_put(q, &r, &t), 0);
	r.t_start = r.t_request_end = RP_NONE;
	assert_int_equal(rp_otlp_queue_put(q, &r, &t), -ENODATA);
	assert_int_equal(rp_otlp_queue_requests(q), 2);
	assert_int_equal(rp_otlp_spans_encode(q, &c, &rnd, &w, 5, resource, NULL, &requests), 4);
	assert_int_equal(requests, 1);
	has(&b, "\"traceId\":\"000102030405060708090a0b0c0d0e0f\",\"spanId\":\"1111111111111111\","
		"\"parentSpanId\":\"2222222222222222\",\"name\":\"chat tiny\",\"kind\":2,"
		"\"startTimeUnixNano\":\"1795964001000000000\",\"endTimeUnixNano\":"
		"\"1795964001101000000\"");
	has(&b, "\"name\":\"queue\",\"kind\":1,\"startTimeUnixNano\":\"1795964001002000000\","
		"\"endTimeUnixNano\":\"1795964001004000000\"");
	has(&b, "\"name\":\"prefill\",\"kind\":1,\"startTimeUnixNano\":\"1795964001004000000\","
		"\"endTimeUnixNano\":\"1795964001034000000\"");
	has(&b, "\"name\":\"decode\",\"kind\":1,\"startTimeUnixNano\":\"1795964001034000000\","
		"\"endTimeUnixNano\":\"1795964001074000000\"");
	assert_int_equal(occurrences(&b, "\"parentSpanId\":\"1111111111111111\""), 3);
	has(&b, "{\"key\":\"gen_ai.usage.input_tokens\",\"value\":{\"intValue\":\"11\"}}");
	assert_int_equal(occurrences(&b, "error.type"), 0);
	assert_int_equal(occurrences(&b, "\"status\""), 0);
	assert_int_equal(occurrences(&b, "reqprobe.estimated"), 0);
	b.n = 0;
	assert_int_equal(rp_otlp_spans_encode(q, &c, &rnd, &w, 5, resource, NULL, &requests), 1);
	has(&b, "{\"key\":\"error.type\",\"value\":{\"stringValue\":\"500\"}}");
	has(&b, "\"status\":{\"code\":2}");
	b.n = 0;
	assert_int_equal(rp_otlp_spans_encode(q, &c, &rnd, &w, 5, resource, NULL, &requests), 0);
	assert_int_equal(rp_otlp_queue_bytes(q), 0);
	/* its end was not seen: as far as it was seen */
	r = a_record();
	r.t_end = RP_NONE;
	r.end = RP_END_UNKNOWN;
	rp_derive(&r);
	assert_int_equal(rp_otlp_queue_put(q, &r, &t), 0);
	rp_otlp_spans_encode(q, &c, &rnd, &w, 5, resource, NULL, &requests);
	has(&b, "\"kind\":2,\"startTimeUnixNano\":\"1795964001000000000\","
		"\"endTimeUnixNano\":\"1795964001091000000\"");
	b.n = 0;
	/* the phases are estimates, and each says so */
	r = a_record();
	r.estimate = RP_EST_STEPS;
	r.choices = 2;
	r.tok_cached = 3;
	r.tok_reasoning = 4;
	strcpy(r.finish_reason, "stop");
	r.flags = RP_FLAG_PRE_ATTACH | RP_FLAG_SLOW_CLIENT;
	rp_derive(&r);
	r.v[RP_FIELD_NET_RTT] = (struct rp_value){ .known = true, .i = 250 };
	assert_int_equal(rp_otlp_queue_put(q, &r, &t), 0);
	assert_int_equal(rp_otlp_spans_encode(q, &c, &rnd, &w, 5, resource, NULL, &requests), 4);
	assert_int_equal(
		occurrences(&b, "{\"key\":\"reqprobe.estimated\",\"value\":{\"boolValue\":true}}"),
		3);
#define COUNT(key, n) "{\"key\":\"" key "\",\"value\":{\"intValue\":\"" n "\"}}"
	has(&b, COUNT("gen_ai.request.choice.count", "2"));
	has(&b, COUNT("gen_ai.usage.cache_read.input_tokens", "3"));
	has(&b, COUNT("gen_ai.usage.reasoning.output_tokens", "4"));
	has(&b, COUNT("http.response.status_code", "200"));
#undef COUNT
	has(&b, "{\"key\":\"reqprobe.time_to_first_token\",\"value\":{\"doubleValue\":0.04}}");
	has(&b, "{\"key\":\"reqprobe.handshake_rtt\",\"value\":{\"doubleValue\":0.00025}}");
	has(&b, "{\"key\":\"reqprobe.flags\",\"value\":{\"arrayValue\":{\"values\":[{"
		"\"stringValue\":\"pre_attach\"},{\"stringValue\":\"slow_client\"}]}}}");
	has(&b, "{\"key\":\"gen_ai.request.stream\",\"value\":{\"boolValue\":true}}");
	has(&b, "{\"key\":\"gen_ai.response.finish_reasons\",\"value\":{\"arrayValue\":{"
		"\"values\":[{\"stringValue\":\"stop\"}]}}}");
	whole = json_loadb(b.p, b.n, 0, NULL);
	assert_non_null(whole);
	json_decref(whole);
	has(&b, "{\"key\":\"url.path\",\"value\":{\"stringValue\":\"/v1/chat/completions\"}}");
	free(b.p);
	rp_otlp_queue_free(q);
}

static void error_types(void **st)
{
	static const struct {
		enum rp_end end;
		int status;
		const char *error, *want;
	} c[] = {
		{ RP_END_COMPLETE, 200, NULL, NULL },
		{ RP_END_COMPLETE, 399, NULL, NULL },
		{ RP_END_COMPLETE, 400, NULL, "400" },
		{ RP_END_ERROR, 503, "overloaded", "503" },
		{ RP_END_ERROR, 200, "overloaded", "overloaded" },
		{ RP_END_COMPLETE, 200, "overloaded", "overloaded" },
		{ RP_END_ERROR, 200, "", "_OTHER" },
		{ RP_END_ERROR, 200, "it was too long", "_OTHER" },
		{ RP_END_ERROR, 200, NULL, "_OTHER" },
		{ RP_END_CLIENT_DISCONNECT, 200, NULL, "client_disconnect" },
		{ RP_END_SERVER_CLOSE, 0, NULL, "server_close" },
		{ RP_END_UNKNOWN, 0, NULL, "_OTHER" },
	};

	(void)st;
	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		struct rp_record r = a_record();
		char buf[72] = "";
		const char *got;

		r.end = c[i].end;
		r.status = c[i].status;
		r.has_error = c[i].error;
		strcpy(r.error_type, c[i].error ? c[i].error : "");
		got = rp_otlp_error_type(&r, buf);
		if (!got != !c[i].want || (got && strcmp(got, c[i].want) != 0))
			fail_msg("%zu: %s", i, got ? got : "none");
	}
}

/* Full, empty, and many times round: nothing is lost that was taken in, in order. */
static void queue(void **st)
{
	struct rp_otlp_config c = { .traces.on = true };
	struct rp_otlp_random rnd = { .left = 0 };
	struct rp_otlp_queue *q = rp_otlp_queue_new(RP_OTLP_QUEUE_MIN + 5);
	struct rp_record r = a_record();
	struct rp_otlp_trace t = { .sampled = true };
	struct rp_buf b = { 0 };
	struct rp_ow w = { &b, true };
	unsigned put = 0, got = 0, full = 0;
	uint64_t requests;
	char want[64];

	(void)st;
	for (int round = 0; round < 400; round++) {
		for (int i = 0; i < round % 97; i++) {
			snprintf(r.id, sizeof(r.id), "id-%u-", put);
			memset(r.id + strlen(r.id), 'x', put % 50);
			r.id[strcspn(r.id, "x") + put % 50] = '\0';
			if (rp_otlp_queue_put(q, &r, &t))
				full++;
			else
				put++;
		}
		assert_true(rp_otlp_queue_bytes(q) <= RP_OTLP_QUEUE_MIN);
		for (int i = 0; i < round % 31; i++) {
			b.n = 0;
			if (!rp_otlp_spans_encode(q, &c, &rnd, &w, 1, resource, NULL, &requests))
				break;
			assert_int_equal(requests, 1);
			snprintf(want, sizeof(want), "\"id-%u-", got++);
			has(&b, want);
		}
	}
	assert_true(full > 0 && put > 5000);
	assert_int_equal(rp_otlp_queue_requests(q), put - got);
	free(b.p);
	rp_otlp_queue_free(q);
}

/* ---- metrics ---- */

struct mstate {
	struct rp_otlp_config c;
	struct rp_otlp_metrics *m;
	struct rp_stats st;
	struct rp_buf b;
	struct rp_otlp_cursor from, at;
};

static void m_open(struct mstate *x)
{
	x->c.max_series = x->c.max_series ? x->c.max_series : 8;
	x->m = rp_otlp_metrics_new(&x->c);
	assert_non_null(x->m);
}

static void m_close(struct mstate *x)
{
	rp_otlp_metrics_free(x->m);
	free(x->b.p);
}

/* All of it, in one request, as JSON. */
static size_t m_export(struct mstate *x, int64_t now)
{
	struct rp_ow w = { &x->b, true };
	json_t *whole;
	size_t n;

	rp_otlp_metrics_snapshot(x->m, &x->st, 1000, now);
	x->b.n = 0;
	x->from = x->at = (struct rp_otlp_cursor){ 0 };
	n = rp_otlp_metrics_encode(x->m, &w, &x->at, 100000, resource, NULL);
	whole = json_loadb(x->b.p, x->b.n, 0, NULL);
	assert_true(whole || !n);
	json_decref(whole);
	return n;
}

static void m_commit(struct mstate *x)
{
	rp_otlp_metrics_commit(x->m, &x->from, &x->at);
}

#define TTFT_HEAD                                                                             \
	"{\"name\":\"gen_ai.server.time_to_first_token\",\"description\":\"Time to generate " \
	"first token for successful responses.\",\"unit\":\"s\",\"histogram\":{"
#define GEN_AI_ATTRS                                                                                \
	"\"attributes\":[{\"key\":\"gen_ai.operation.name\",\"value\":{\"stringValue\":\"chat\"}}," \
	"{\"key\":\"gen_ai.provider.name\",\"value\":{\"stringValue\":\"vllm\"}},{\"key\":"         \
	"\"gen_ai.request.model\",\"value\":{\"stringValue\":\"tiny\"}},{\"key\":"                  \
	"\"gen_ai.response.model\",\"value\":{\"stringValue\":\"tiny\"}},{\"key\":"                 \
	"\"server.address\",\"value\":{\"stringValue\":\"10.0.0.1\"}},{\"key\":\"server.port\","    \
	"\"value\":{\"intValue\":\"8000\"}}"

static void definitions(void **st)
{
	struct mstate x = { 0 };
	struct rp_record r = a_record();
	struct rp_otlp_trace t = { .has_parent = true, .parent_sampled = true };

	(void)st;
	m_open(&x);
	memcpy(t.trace, counting, 16);
	memset(t.parent, 0x22, 8);
	rp_otlp_metrics_record(x.m, &r, &t);
	m_export(&x, 2000);
	/* on a bound counts below it: 0.04 is in (0.02, 0.04] */
	has(&x.b, TTFT_HEAD
	    "\"aggregationTemporality\":2,\"dataPoints\":[{\"startTimeUnixNano\":\"1000\","
	    "\"timeUnixNano\":\"2000\",\"count\":\"1\",\"sum\":0.04,\"bucketCounts\":[\"0\",\"0\","
	    "\"0\",\"0\",\"1\",\"0\",\"0\",\"0\",\"0\",\"0\",\"0\",\"0\",\"0\",\"0\",\"0\",\"0\","
	    "\"0\"],\"explicitBounds\":[0.001,0.005,0.01,0.02,0.04,0.06,0.08,0.1,0.25,0.5,0.75,1,"
	    "2.5,5,7.5,10],\"exemplars\":[{\"filteredAttributes\":[{\"key\":\"gen_ai.response.id\","
	    "\"value\":{\"stringValue\":\"chatcmpl-1\"}}],\"timeUnixNano\":\"1795964001101000000\","
	    "\"asDouble\":0.04,\"spanId\":\"2222222222222222\",\"traceId\":"
	    "\"000102030405060708090a0b0c0d0e0f\"}]," GEN_AI_ATTRS
	    "],\"min\":0.04,\"max\":0.04}]}}");
	/* (0.1 - 0.04) / (5 - 1) */
	has(&x.b, "\"sum\":0.015,\"bucketCounts\":[\"0\",\"1\",\"0\"");
	/* of HTTP: from the first byte */
	has(&x.b, "\"sum\":0.101,");
	has(&x.b, "{\"key\":\"http.route\",\"value\":{\"stringValue\":\"/v1/chat/completions\"}}");

	/* not successful: a duration with error.type, no time to first token */
	r.has_error = true;
	r.error_where = "stream";
	r.end = RP_END_ERROR;
	strcpy(r.error_type, "Internal_Error");
	rp_otlp_metrics_record(x.m, &r, &t);
	strcpy(r.error_type, "what a prompt may say");
	rp_otlp_metrics_record(x.m, &r, &t);
	/* touched by a loss: only counted */
	r.flags = RP_FLAG_LOST_EVENTS;
	rp_otlp_metrics_record(x.m, &r, &t);
	/* refused, and a name that nobody has */
	r = a_record();
	r.status = 404;
	r.has_error = true;
	r.end = RP_END_ERROR;
	r.model_told = false;
	strcpy(r.request_model, "made-up");
	rp_otlp_metrics_record(x.m, &r, &t);
	m_export(&x, 3000);
	has(&x.b, TTFT_HEAD "\"aggregationTemporality\":2,\"dataPoints\":[{\"startTimeUnixNano\":"
			    "\"1000\",\"timeUnixNano\":\"3000\",\"count\":\"1\"");
	has(&x.b, GEN_AI_ATTRS ",{\"key\":\"error.type\",\"value\":{\"stringValue\":"
			       "\"Internal_Error\"}}]");
	assert_int_equal(occurrences(&x.b, "\"error.type\",\"value\":{\"stringValue\":\"404\"}"),
			 1);
	assert_int_equal(occurrences(&x.b, "made-up"), 0);
	assert_int_equal(occurrences(&x.b, "prompt may say"), 0);
	assert_true(occurrences(&x.b, "\"stringValue\":\"_OTHER\"") >= 1);
	has(&x.b, "\"asInt\":\"3\",\"attributes\":[{\"key\":\"reqprobe.end\",\"value\":{"
		  "\"stringValue\":\"error\"}},{\"key\":\"http.response.status_code\",\"value\":{"
		  "\"intValue\":\"200\"}}]");
	m_close(&x);
}

static void gap(struct mstate *x, int64_t ns, uint32_t n)
{
	struct rp_gap_info g = { .model = "tiny", .source = RP_ITL_ENGINE, .gap_ns = ns, .n = n };

	rp_otlp_metrics_gap(x->m, &g);
}

#define ITL(start, now, count, sum)                                                    \
	"\"dataPoints\":[{\"startTimeUnixNano\":\"" start "\",\"timeUnixNano\":\"" now \
	"\",\"count\":\"" count "\",\"sum\":" sum ",\"bucketCounts\":"

/* A delta goes on where the last one that was taken ended, and has its own extremes. */
static void deltas(void **st)
{
	struct mstate x = { .c.temporality = RP_OTLP_DELTA };

	(void)st;
	m_open(&x);
	x.st.tokens_prompt = 10;
	x.st.unknown_prompt = 77;
	x.st.unknown_completion = 88;
	x.st.in_flight = 6;
	x.st.bytes_rx = 1000;
	x.st.n_cores = 2;
	x.st.cores[0] = (struct rp_core){ .pid = 70, .steps = 100 };
	x.st.cores[1] = (struct rp_core){ .pid = 70, .index = 1, .steps = 1 };
	x.st.proxied_rx = 7;
	gap(&x, 125000000, 2);
	m_export(&x, 2000);
	has(&x.b, ITL("1000", "2000", "2", "0.25"));
	has(&x.b, "\"min\":0.125,\"max\":0.125");
	has(&x.b, "\"startTimeUnixNano\":\"1000\",\"timeUnixNano\":\"2000\",\"asInt\":\"10\"");
	has(&x.b, "\"asInt\":\"77\",\"attributes\":[{\"key\":\"gen_ai.token.type\",\"value\":{"
		  "\"stringValue\":\"input\"}}]");
	has(&x.b, "\"asInt\":\"88\",\"attributes\":[{\"key\":\"gen_ai.token.type\",\"value\":{"
		  "\"stringValue\":\"output\"}}]");
	/* not taken: the next has both */
	x.st.tokens_prompt = 15;
	gap(&x, 500000000, 1);
	m_export(&x, 3000);
	has(&x.b, ITL("1000", "3000", "3", "0.75"));
	has(&x.b, "\"min\":0.125,\"max\":0.5");
	m_commit(&x);
	x.st.tokens_prompt = 16;
	x.st.cores[0].steps = 131;
	x.st.cores[1].steps = 48;
	x.st.bytes_rx = 990; /* some were a proxy's */
	x.st.proxied_rx = 40;
	gap(&x, 250000000, 1);
	m_export(&x, 4000);
	has(&x.b, ITL("3000", "4000", "1", "0.25"));
	has(&x.b, "\"min\":0.25,\"max\":0.25");
	has(&x.b, "\"asInt\":\"23\",\"attributes\":[{\"key\":");
	has(&x.b, "\"asInt\":\"31\",\"attributes\":[{\"key\":\"reqprobe.engine.index\"");
	has(&x.b, "\"asInt\":\"47\",\"attributes\":[{\"key\":\"reqprobe.engine.index\"");
	has(&x.b, "\"startTimeUnixNano\":\"3000\",\"timeUnixNano\":\"4000\",\"asInt\":\"1\"");
	m_commit(&x);
	m_export(&x, 5000);
	assert_int_equal(occurrences(&x.b, "reqprobe.inter_token_latency"), 0);
	has(&x.b,
	    "{\"name\":\"reqprobe.requests_in_flight\",\"description\":\"Inference requests not "
	    "yet finished.\",\"unit\":\"{request}\",\"sum\":{\"aggregationTemporality\":2,"
	    "\"dataPoints\":[{\"startTimeUnixNano\":\"1000\",\"timeUnixNano\":\"5000\","
	    "\"asInt\":\"6\"}]}}");
	m_close(&x);
}

#define CORE_POINT(start, value, index, pid)                                                \
	start "\"timeUnixNano\":\"2000\"," value ",\"attributes\":[{\"key\":"               \
	      "\"reqprobe.engine.index\",\"value\":{\"intValue\":\"" index "\"}},{\"key\":" \
	      "\"process.pid\",\"value\":{\"intValue\":\"" pid "\"}}]}"
#define CORE_TOTAL(n, index, pid) \
	CORE_POINT("\"startTimeUnixNano\":\"1000\",", "\"asInt\":\"" n "\"", index, pid)

/* One that works, one that is gone, one that tells nothing of its state. */
static void schedulers(void **st)
{
	struct mstate x = { .c.temporality = RP_OTLP_CUMULATIVE };
	struct rp_step_info step = {
		.pid = 77, .index = 3, .step_ns = 5000000, .tokens = 4, .requests = 2
	};
	size_t points;

	(void)st;
	m_open(&x);
	x.st.n_cores = 3;
	x.st.cores[0] = (struct rp_core){ .pid = 70,
					  .stats = true,
					  .log_stats = true,
					  .running = 31,
					  .waiting = RP_NONE,
					  .kv_usage = 0.5,
					  .prefix_queries = 101,
					  .preemptions = 7,
					  .gaps_unknown = true };
	x.st.cores[1] = (struct rp_core){ .pid = 71,
					  .index = 1,
					  .gone = true,
					  .log_stats = true,
					  .running = 32,
					  .kv_usage = 0.75,
					  .prefix_queries = 102 };
	x.st.cores[2] = (struct rp_core){ .pid = 72,
					  .index = 2,
					  .running = 33,
					  .kv_usage = 0.25,
					  .prefix_queries = 103,
					  .gaps_unknown = true,
					  .preemptions = 104,
					  .spec = true,
					  .spec_drafts = 9,
					  .steps = 12 };
	rp_otlp_metrics_step(x.m, &step);
	step.index = 4;
	step.cut = true; /* how long it took is known, what was in it is not */
	rp_otlp_metrics_step(x.m, &step);
	step.step_ns = RP_NONE;
	rp_otlp_metrics_step(x.m, &step);
	points = m_export(&x, 2000);
#define STEP(index)                                                                            \
	"{\"key\":\"reqprobe.engine.index\",\"value\":{\"intValue\":\"" index "\"}},{\"key\":" \
	"\"process.pid\",\"value\":{\"intValue\":\"77\"}}],\"min\":"
	assert_int_equal(occurrences(&x.b, STEP("3")), 3);
	has(&x.b, STEP("3") "0.005,\"max\":0.005");
	has(&x.b, STEP("3") "4,\"max\":4");
	has(&x.b, STEP("3") "2,\"max\":2");
	assert_int_equal(occurrences(&x.b, STEP("4")), 1);
#undef STEP
	has(&x.b,
	    "\"gauge\":{\"dataPoints\":[{" CORE_POINT("", "\"asInt\":\"31\"", "0", "70") "]}}");
	assert_int_equal(occurrences(&x.b, "reqprobe.scheduler.requests_waiting"), 0);
	has(&x.b, "\"gauge\":{\"dataPoints\":[{" CORE_POINT(
			  "", "\"asDouble\":0.5", "0",
			  "70") ",{" CORE_POINT("", "\"asDouble\":0.25", "2", "72") "]}}");
	has(&x.b, "[{" CORE_TOTAL("101", "0", "70") ",{" CORE_TOTAL("102", "1", "71") "]}}");
	has(&x.b, "[{" CORE_TOTAL("7", "0", "70") ",{" CORE_TOTAL("0", "1", "71") "]}}");
	has(&x.b, "[{" CORE_TOTAL("9", "2", "72") "]}}");
	has(&x.b, ",{" CORE_TOTAL("12", "2", "72") "]}}");
	assert_int_equal(points, occurrences(&x.b, "\"timeUnixNano\":"));
	m_close(&x);
}

static void exponential(void **st)
{
	struct mstate x = { .c = { .temporality = RP_OTLP_DELTA, .exponential = true } };

	(void)st;
	m_open(&x);
	gap(&x, 1000000000, 3);
	gap(&x, 0, 1);
	m_export(&x, 2000);
	/* 1 is the upper edge of (0.5, 1] at any scale: index -1 */
	has(&x.b,
	    "\"count\":\"4\",\"sum\":3,\"scale\":20,\"zeroCount\":\"1\",\"positive\":{\"offset\":"
	    "-1,\"bucketCounts\":[\"3\"]},\"min\":0,\"max\":1");
	m_commit(&x);
	/* a coarser scale by then: what was taken is taken off all the same */
	gap(&x, 1, 1);
	gap(&x, 1000000000, 1);
	m_export(&x, 3000);
	assert_int_equal(occurrences(&x.b, "\"scale\":20"), 0);
	has(&x.b, "\"count\":\"2\",\"sum\":1.000000001,");
	assert_int_equal(occurrences(&x.b, "\"zeroCount\":\"0\""), 1);
	has(&x.b, "\"bucketCounts\":[\"1\",\"0\"");
	has(&x.b, ",\"0\",\"1\"]},\"min\":");
	m_commit(&x);
	m_close(&x);
}

static void overflow(void **st)
{
	struct mstate x = { .c.max_series = 3 };
	struct rp_record r = a_record();
	struct rp_otlp_trace t = { .sampled = false };

	(void)st;
	m_open(&x);
	for (int i = 0; i < 10; i++) {
		snprintf(r.request_model, sizeof(r.request_model), "m%d", i);
		memcpy(r.model, r.request_model, sizeof(r.model));
		rp_otlp_metrics_record(x.m, &r, &t);
	}
	m_export(&x, 2000);
	/* two of them, and the rest */
	assert_true(occurrences(&x.b, "\"stringValue\":\"m1\"") > 0);
	assert_int_equal(occurrences(&x.b, "\"stringValue\":\"m2\""), 0);
	has(&x.b,
	    "\"attributes\":[{\"key\":\"otel.metric.overflow\",\"value\":{\"boolValue\":true}}],"
	    "\"min\":0.1,\"max\":0.1}]}},{\"name\":\"gen_ai.server.time_to_first_token\"");
	assert_true(rp_otlp_metrics_overflow(x.m) >= 8 * 3);
	m_close(&x);
}

/* Attributes that are written alike are one series, or a point would be there twice. */
static void names(void **st)
{
	static const char *const model[] = { "a\xff", "a\xfe", "a\x01", "a\xc2\x80",
					     "a\xef\xbf\xbd" };
	static const enum rp_operation chat[] = { RP_OP_CHAT, RP_OP_MESSAGES, RP_OP_RESPONSES };
	static const char *const engine[] = { "generic", "", NULL };
	struct rp_otlp_trace t = { .sampled = false };
	struct rp_record r = a_record();
	struct mstate x = { 0 };

	(void)st;
	m_open(&x);
	r.engine_name = "generic";
	strcpy(r.model, "a\xef\xbf\xbd");
	strcpy(r.request_model, r.model);
	strcpy(r.path, "/v1/\xef\xbf\xbd");
	rp_otlp_metrics_record(x.m, &r, &t);
	assert_int_equal(rp_otlp_metrics_series(x.m), 2); /* of the request, and of HTTP */
	for (size_t i = 0; i < 5; i++) {
		strcpy(r.model, model[i]);
		strcpy(r.request_model, model[4 - i]);
		snprintf(r.path, sizeof(r.path), "/v1/%s", model[i] + 1);
		r.operation = chat[i % 3];
		r.engine_name = engine[i % 3];
		rp_otlp_metrics_record(x.m, &r, &t);
	}
	assert_int_equal(rp_otlp_metrics_series(x.m), 2);
	for (size_t i = 0; i < 5; i++)
		rp_otlp_metrics_gap(x.m, &(struct rp_gap_info){ .model = model[i],
								.source = RP_ITL_ENGINE,
								.gap_ns = 1000,
								.n = 1 });
	assert_int_equal(rp_otlp_metrics_series(x.m), 3);
	m_export(&x, 2000);
	assert_int_equal(occurrences(&x.b, "\"count\":\"5\""), 1); /* the gaps */
	assert_int_equal(occurrences(&x.b, "{\"stringValue\":\"a\xef\xbf\xbd\"}"),
			 2 * occurrences(&x.b, "gen_ai.operation.name") + 1);
	has(&x.b, "\"/v1/\xef\xbf\xbd\"");
	/* with another word for the operation, it is another */
	r.operation = RP_OP_COMPLETION;
	rp_otlp_metrics_record(x.m, &r, &t);
	r.operation = RP_OP_INFILL;
	rp_otlp_metrics_record(x.m, &r, &t);
	assert_int_equal(rp_otlp_metrics_series(x.m), 4);
	m_close(&x);
}

/* In parts, all of it once. */
static void parts(void **st)
{
	struct mstate x = { .c.max_series = 50 };
	struct rp_record r = a_record();
	struct rp_otlp_trace t = { .sampled = false };
	struct rp_ow w = { &x.b, true };
	size_t n, sum = 0, whole, found = 0;

	(void)st;
	m_open(&x);
	for (int i = 0; i < 40; i++) {
		r.lport = (uint16_t)(i + 1);
		rp_otlp_metrics_record(x.m, &r, &t);
	}
	whole = m_export(&x, 2000);
	x.at = (struct rp_otlp_cursor){ 0 };
	for (int i = 0; i < 1000; i++) {
		x.b.n = 0;
		n = rp_otlp_metrics_encode(x.m, &w, &x.at, 30, resource, NULL);
		sum += n;
		found += occurrences(&x.b,
				     "{\"key\":\"server.port\",\"value\":{\"intValue\":\"7\"}}");
		if (!n)
			break;
		assert_true(i == 0 || n <= 30);
	}
	assert_int_equal(sum, whole);
	assert_int_equal(found, 10); /* once in each metric of a request whose figure is known */
	m_close(&x);
}

/* ---- sending ---- */

static void backoff(void **st)
{
	static const struct {
		unsigned n;
		uint32_t low, high;
	} t[] = { { 1, 250, 500 },
		  { 2, 500, 1000 },
		  { 3, 1000, 2000 },
		  { 6, 8000, 16000 },
		  { 7, 15000, 30000 },
		  { 8, 15000, 30000 },
		  { 4000000000, 15000, 30000 } };

	(void)st;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		assert_int_equal(rp_otlp_backoff_ms(t[i].n, 0, 0), t[i].low);
		assert_in_range(rp_otlp_backoff_ms(t[i].n, 0, 0xffffffff), t[i].low, t[i].high);
	}
	assert_int_equal(rp_otlp_backoff_ms(1, 7, 0), 7000);
	assert_in_range(rp_otlp_backoff_ms(9, 7, 12345), 7000, 7250);
	assert_int_equal(rp_otlp_backoff_ms(1, 1000000, 0), 300000);
}

static void responses(void **st)
{
	struct rp_otlp_partial p;
	static const struct {
		bool json;
		const char *s;
		size_t n;
		bool ok;
		int64_t rejected;
		const char *message;
	} t[] = {
		{ false, "", 0, true, 0, "" },
		{ false, "\x0a\x00", 2, true, 0, "" },
		{ false, "\x0a\x09\x08\x03\x12\x05no\x1b[m", 11, true, 3, "no?[m" },
		/* fields that are not known are passed over */
		{ false, "\x12\x01x\x19........\x25....\x0a\x02\x08\x07", 18 + 3, true, 7, "" },
		{ false, "\x0a\x09\x08\x03", 4, false, 0, "" },
		{ false, "\x0a\x02\x08", 3, false, 0, "" },
		{ false, "\x0b", 1, false, 0, "" },
		{ false, "\x00\x00", 2, false, 0, "" },
		{ false, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11, false, 0, "" },
		{ false, "<html>", 6, false, 0, "" },
		{ true, "{}", 2, true, 0, "" },
		{ true, "{\"partialSuccess\":null}", 23, true, 0, "" },
		{ true,
		  "{\"partialSuccess\":{\"rejectedDataPoints\":\"5\",\"errorMessage\":\"x\"}}", 66,
		  true, 5, "x" },
		{ true, "{\"partialSuccess\":{\"rejectedSpans\":6}}", 38, true, 6, "" },
		{ true, "{\"partialSuccess\":{\"rejectedSpans\":-6}}", 39, true, 0, "" },
		{ true, "[1", 2, false, 0, "" },
	};

	(void)st;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		if (rp_otlp_parse_response(t[i].json, (const uint8_t *)t[i].s,
					   t[i].json ? strlen(t[i].s) : t[i].n, &p) != t[i].ok ||
		    p.rejected != t[i].rejected || strcmp(p.message, t[i].message))
			fail_msg("%zu: %lld %s", i, (long long)p.rejected, p.message);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wire),	       cmocka_unit_test(endpoints),
		cmocka_unit_test(settings),    cmocka_unit_test(traceparents),
		cmocka_unit_test(sampling),    cmocka_unit_test(span_text),
		cmocka_unit_test(error_types), cmocka_unit_test(queue),
		cmocka_unit_test(definitions), cmocka_unit_test(deltas),
		cmocka_unit_test(schedulers),  cmocka_unit_test(exponential),
		cmocka_unit_test(overflow),    cmocka_unit_test(parts),
		cmocka_unit_test(names),       cmocka_unit_test(backoff),
		cmocka_unit_test(responses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
