// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "otlp/config.h"

#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DEFAULT_ENDPOINT "http://localhost:4318"
#define INTERVAL_MS 60000 /* OTEL_METRIC_EXPORT_INTERVAL */
#define TIMEOUT_MS 10000  /* OTEL_EXPORTER_OTLP_TIMEOUT */
#define DELAY_MS 1000
/* The SDKs have 512: at 20,000 requests a second that is a request each 6 ms, and a
 * receiver that takes a little longer falls behind. About 1 MiB of protobuf. */
#define BATCH 4096
#define FLUSH_MS 5000
#define MAX_SERIES 128
#define QUEUE (4u << 20)

/* What is being worked on. */
struct ctx {
	const struct rp_otlp_options *o;
	struct rp_otlp_config *c;
	char *(*get)(const char *);
	void (*tell)(const char *);
	char *err;
	size_t errlen;
	int e; /* first failure */
};

__attribute__((format(printf, 2, 3))) static void warn(struct ctx *x, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (x->tell)
		x->tell(line);
}

__attribute__((format(printf, 2, 3))) static void wrong(struct ctx *x, const char *fmt, ...)
{
	va_list ap;

	if (x->e)
		return;
	x->e = -EINVAL;
	va_start(ap, fmt);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
	vsnprintf(x->err, x->errlen, fmt, ap);
	va_end(ap);
}

static void no_memory(struct ctx *x)
{
	if (!x->e)
		snprintf(x->err, x->errlen, "no memory");
	x->e = x->e ? x->e : -ENOMEM;
}

static char *keep(struct ctx *x, const char *s, size_t n)
{
	char *p = strndup(s, n);

	if (!p)
		no_memory(x);
	return p;
}

/* An empty variable is one that is not set. */
static const char *env(struct ctx *x, const char *name)
{
	const char *v = x->get(name);

	return v && *v ? v : NULL;
}

/* OTEL_EXPORTER_OTLP_<SIGNAL>_<what>, else OTEL_EXPORTER_OTLP_<what>; *name says which. */
static const char *signal_env(struct ctx *x, const char *signal, const char *what, char name[64])
{
	const char *v;

	snprintf(name, 64, "OTEL_EXPORTER_OTLP_%s_%s", signal, what);
	v = env(x, name);
	if (v)
		return v;
	snprintf(name, 64, "OTEL_EXPORTER_OTLP_%s", what);
	return env(x, name);
}

static bool env_true(struct ctx *x, const char *name)
{
	const char *v = env(x, name);

	if (!v || !strcasecmp(v, "false"))
		return false;
	if (!strcasecmp(v, "true"))
		return true;
	warn(x, "%s is neither true nor false: taken for false", name);
	return false;
}

/* A number from min to max, or what is there already. */
static void env_number(struct ctx *x, const char *name, uint32_t min, uint32_t max, uint32_t *out)
{
	const char *v = env(x, name);
	char *end;
	unsigned long long n;

	if (!v)
		return;
	errno = 0;
	n = strtoull(v, &end, 10);
	if (errno || *end || *v == '-' || n < min || n > max) {
		warn(x, "%s is no number from %u to %u: ignored", name, min, max);
		return;
	}
	*out = (uint32_t)n;
}

static int choice(const char *v, const char *const *names, int n)
{
	for (int i = 0; i < n; i++)
		if (!strcasecmp(v, names[i]))
			return i;
	return -1;
}

/* ---- lists: key=value,key=value, percent-encoded as W3C Baggage ---- */

static bool token_char(unsigned char c)
{
	return isalnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' :
	       c >= 'a' && c <= 'f' ? c - 'a' + 10 :
	       c >= 'A' && c <= 'F' ? c - 'A' + 10 :
				      -1;
}

/* In place; the length, or -1. */
static ssize_t percent_decode(char *s)
{
	char *to = s;

	for (char *p = s; *p; p++) {
		if (*p == '%') {
			int a = hex(p[1]), b = a < 0 ? -1 : hex(p[2]);

			if (b < 0 || (!a && !b))
				return -1;
			*to++ = (char)(a << 4 | b);
			p += 2;
		} else {
			*to++ = *p;
		}
	}
	*to = '\0';
	return to - s;
}

static void list_free(struct rp_otlp_list *l)
{
	for (unsigned i = 0; i < l->n; i++) {
		free(l->kv[i].key);
		free(l->kv[i].value);
	}
	l->n = 0;
}

static struct rp_otlp_kv *list_find(struct rp_otlp_list *l, const char *key, bool fold)
{
	for (unsigned i = 0; i < l->n; i++)
		if (!(fold ? strcasecmp : strcmp)(l->kv[i].key, key))
			return &l->kv[i];
	return NULL;
}

/* key and value become the list's. A key that is there already gets the new value. */
static bool list_put(struct rp_otlp_list *l, char *key, char *value, bool fold)
{
	struct rp_otlp_kv *old = key && value ? list_find(l, key, fold) : NULL;

	if (!key || !value || (!old && l->n == sizeof(l->kv) / sizeof(l->kv[0]))) {
		free(key);
		free(value);
		return false;
	}
	if (old) {
		free(old->key);
		free(old->value);
	} else {
		old = &l->kv[l->n++];
	}
	*old = (struct rp_otlp_kv){ key, value };
	return true;
}

/* One key=value. headers: the key is a token, the value has no control characters. */
static bool list_member(struct ctx *x, struct rp_otlp_list *l, const char *s, size_t n, bool decode,
			bool headers)
{
	const char *eq = memchr(s, '=', n), *end = s + n;
	char *key, *value;
	size_t k;

	if (!eq)
		return false;
	while (s < eq && isspace((unsigned char)*s))
		s++;
	for (k = (size_t)(eq - s); k && isspace((unsigned char)s[k - 1]);)
		k--;
	eq++;
	while (eq < end && isspace((unsigned char)*eq))
		eq++;
	while (end > eq && isspace((unsigned char)end[-1]))
		end--;
	if (!k)
		return false;
	key = keep(x, s, k);
	value = keep(x, eq, (size_t)(end - eq));
	if (!key || !value || (decode && (percent_decode(key) < 1 || percent_decode(value) < 0)))
		goto bad;
	for (const char *p = key; headers && *p; p++)
		if (!token_char((unsigned char)*p))
			goto bad;
	for (const char *p = value; headers && *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			goto bad;
	return list_put(l, key, value, headers);
bad:
	free(key);
	free(value);
	return false;
}

/* Of the environment: all or nothing. */
static void list_env(struct ctx *x, const char *name, const char *v, struct rp_otlp_list *l,
		     bool headers)
{
	for (const char *p = v; *p;) {
		size_t n = strcspn(p, ",");

		if (n != strspn(p, " \t") && !list_member(x, l, p, n, true, headers)) {
			warn(x, "%s is no list of key=value, percent-encoded: ignored", name);
			list_free(l);
			return;
		}
		p += n + (p[n] == ',');
	}
}

/* ---- endpoints ---- */

/* scheme://host...: what can be a URL at all. */
static bool url_ok(const char *u)
{
	const char *host = !strncasecmp(u, "http://", 7)  ? u + 7 :
			   !strncasecmp(u, "https://", 8) ? u + 8 :
							    NULL;
	CURLU *c;
	bool ok;

	if (!host)
		return false;
	for (const char *p = u; *p; p++)
		if ((unsigned char)*p <= 0x20 || *p == 0x7f)
			return false;
	if (!host[0] || strchr("/?#", host[0]))
		return false;
	/* what else there is to be wrong, as who will use it sees it */
	c = curl_url();
	ok = c && curl_url_set(c, CURLUPART_URL, u, 0) == CURLUE_OK;
	curl_url_cleanup(c);
	return ok;
}

/* For lines that people read: neither user and password nor a query (which may hold a key). */
static char *shown(struct ctx *x, const char *url)
{
	const char *host = strstr(url, "://") + 3;
	size_t hn = strcspn(host, "/?#"), scheme = (size_t)(host - url), n;
	const char *at = memrchr(host, '@', hn);
	char *s = keep(x, url, strlen(url));

	if (!s)
		return NULL;
	n = scheme + strcspn(host, "?#");
	s[n] = '\0';
	if (at)
		memmove(s + scheme, s + (at + 1 - url), n - (size_t)(at + 1 - url) + 1);
	return s;
}

/* A base URL: v1/<signal> goes behind its path. */
static char *append_path(struct ctx *x, const char *base, const char *path)
{
	size_t n = strcspn(base, "?#");
	const char *host = strstr(base, "://") + 3;
	bool slash = n && base[n - 1] == '/' && base + n > host;
	char *s = malloc(strlen(base) + strlen(path) + 2);

	if (!s) {
		no_memory(x);
		return NULL;
	}
	sprintf(s, "%.*s%s%s%s", (int)n, base, slash ? "" : "/", path, base + n);
	return s;
}

static bool ends_in_signal(const char *u)
{
	size_t n = strcspn(u, "?#");

	while (n && u[n - 1] == '/')
		n--;
	return (n >= 11 && !memcmp(u + n - 11, "/v1/metrics", 11)) ||
	       (n >= 10 && !memcmp(u + n - 10, "/v1/traces", 10));
}

static void endpoint(struct ctx *x, struct rp_otlp_signal *s, const char *signal, const char *path,
		     const char *own)
{
	char name[64];
	const char *v = own;

	if (own) {
		if (!url_ok(own)) {
			wrong(x, "--otlp-traces %s is no URL: http://HOST:PORT/PATH or https://",
			      own);
			return;
		}
		s->url = keep(x, own, strlen(own));
	} else if (x->o->endpoint) {
		s->url = append_path(x, x->o->endpoint, path);
	} else {
		v = signal_env(x, signal, "ENDPOINT", name);
		if (v && !url_ok(v)) {
			warn(x, "%s is no http:// or https:// URL: ignored", name);
			v = NULL;
		}
		/* that of a signal is taken as it is */
		if (v && strstr(name, signal))
			s->url = keep(x, v, strlen(v));
		else
			s->url = append_path(x, v ? v : DEFAULT_ENDPOINT, path);
	}
	if (s->url)
		s->shown = shown(x, s->url);
}

/* ---- one signal ---- */

static void protocol(struct ctx *x, struct rp_otlp_signal *s, const char *signal)
{
	static const char *const known[] = { "http/protobuf", "http/json" };
	char name[64];
	const char *v = x->o->protocol;
	int i;

	if (v) {
		s->json = choice(v, known, 2) == 1;
		return;
	}
	v = signal_env(x, signal, "PROTOCOL", name);
	if (!v)
		return;
	i = choice(v, known, 2);
	if (i < 0)
		warn(x,
		     "%s is %s, and only http/protobuf and http/json are spoken here: http/protobuf is used (port 4318 as a rule, not 4317)",
		     name, v);
	s->json = i == 1;
}

static void file(struct ctx *x, const char *own, const char *signal, const char *what, char **out)
{
	char name[64];
	const char *v = own ? own : signal_env(x, signal, what, name);

	if (v)
		*out = keep(x, v, strlen(v));
}

static void one_signal(struct ctx *x, struct rp_otlp_signal *s, const char *signal,
		       const char *path, const char *own_url)
{
	static const char *const compressions[] = { "none", "gzip" };
	const struct rp_otlp_options *o = x->o;
	char name[64];
	const char *v;
	int i;

	endpoint(x, s, signal, path, own_url);
	protocol(x, s, signal);
	v = signal_env(x, signal, "HEADERS", name);
	if (v)
		list_env(x, name, v, &s->headers, true);
	for (unsigned h = 0; h < o->n_headers; h++)
		if (!list_member(x, &s->headers, o->headers[h], strlen(o->headers[h]), false, true))
			wrong(x, "--otlp-header number %u is no NAME=VALUE", h + 1);
	s->gzip = true;
	v = o->compression ? o->compression : signal_env(x, signal, "COMPRESSION", name);
	if (v) {
		i = choice(v, compressions, 2);
		if (i < 0)
			warn(x, "%s is neither gzip nor none: ignored", name);
		else
			s->gzip = i == 1;
	}
	s->timeout_ms = TIMEOUT_MS;
	if (o->timeout_s > 0) {
		s->timeout_ms = (uint32_t)(o->timeout_s * 1000);
	} else {
		env_number(x, "OTEL_EXPORTER_OTLP_TIMEOUT", 1, 3600000, &s->timeout_ms);
		snprintf(name, sizeof(name), "OTEL_EXPORTER_OTLP_%s_TIMEOUT", signal);
		env_number(x, name, 1, 3600000, &s->timeout_ms);
	}
	file(x, o->ca, signal, "CERTIFICATE", &s->ca);
	file(x, o->cert, signal, "CLIENT_CERTIFICATE", &s->cert);
	file(x, o->key, signal, "CLIENT_KEY", &s->key);
}

/* ---- the rest ---- */

/* NAME or NAME=RATIO; false: not understood. */
static bool sampler(struct rp_otlp_config *c, const char *name, const char *arg)
{
	static const char *const names[] = { "always_on", "always_off", "traceidratio" };
	char base[40];
	size_t n = strcspn(name, "=");
	bool parent = n > 12 && !strncasecmp(name, "parentbased_", 12);
	char *end;
	int i;

	snprintf(base, sizeof(base), "%.*s", (int)(n - (parent ? 12 : 0)),
		 name + (parent ? 12 : 0));
	i = choice(base, names, 3);
	if (i < 0)
		return false;
	if (name[n] == '=')
		arg = name + n + 1;
	c->ratio = 1;
	if (i == 2 && arg) {
		c->ratio = strtod(arg, &end);
		if (end == arg || *end || !(c->ratio >= 0 && c->ratio <= 1)) {
			c->ratio = 1;
			return false;
		}
	}
	c->parent_based = parent;
	c->sampler = (enum rp_otlp_sampler)i;
	return true;
}

static void metrics_settings(struct ctx *x)
{
	static const char *const temporalities[] = { "cumulative", "delta", "lowmemory" };
	static const char *const aggregations[] = { "explicit_bucket_histogram",
						    "base2_exponential_bucket_histogram" };
	static const char *const filters[] = { "trace_based", "always_on", "always_off" };
	const struct rp_otlp_options *o = x->o;
	struct rp_otlp_config *c = x->c;
	const char *v;
	int i;

	c->interval_ms = INTERVAL_MS;
	if (o->interval_s > 0)
		c->interval_ms = (uint32_t)(o->interval_s * 1000);
	else
		env_number(x, "OTEL_METRIC_EXPORT_INTERVAL", 1, 86400000, &c->interval_ms);
	v = o->temporality ? o->temporality :
			     env(x, "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE");
	i = v ? choice(v, temporalities, 3) : 0;
	if (i < 0)
		warn(x,
		     "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE is none of cumulative, delta, lowmemory: ignored");
	c->temporality = i < 0 ? RP_OTLP_CUMULATIVE : (enum rp_otlp_temporality)i;
	v = env(x, "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION");
	i = v ? choice(v, aggregations, 2) : 0;
	if (i < 0)
		warn(x,
		     "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION is not known: ignored");
	c->exponential = o->exponential || i == 1;
	v = env(x, "OTEL_METRICS_EXEMPLAR_FILTER");
	i = v ? choice(v, filters, 3) : 0;
	if (i < 0)
		warn(x,
		     "OTEL_METRICS_EXEMPLAR_FILTER is none of trace_based, always_on, always_off: ignored");
	c->exemplars = i < 0 ? RP_OTLP_TRACE_BASED : (enum rp_otlp_exemplars)i;
}

static void trace_settings(struct ctx *x)
{
	struct rp_otlp_config *c = x->c;
	const char *v = env(x, "OTEL_TRACES_SAMPLER");

	c->parent_based = true;
	c->ratio = 1;
	if (x->o->sampler) {
		if (!sampler(c, x->o->sampler, NULL))
			wrong(x,
			      "--otlp-sampler %s is not known: always_on, always_off or traceidratio=0..1, each also as parentbased_...",
			      x->o->sampler);
	} else if (v && !sampler(c, v, env(x, "OTEL_TRACES_SAMPLER_ARG"))) {
		warn(x,
		     "OTEL_TRACES_SAMPLER or its _ARG is not understood: parentbased_always_on is used");
		c->parent_based = true;
		c->sampler = RP_OTLP_ALWAYS_ON;
	}
	c->delay_ms = DELAY_MS;
	env_number(x, "OTEL_BSP_SCHEDULE_DELAY", 1, 3600000, &c->delay_ms);
	c->batch = BATCH;
	env_number(x, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 1, 65536, &c->batch);
}

static void resource(struct ctx *x)
{
	struct rp_otlp_list *l = &x->c->resource;
	const char *v = env(x, "OTEL_RESOURCE_ATTRIBUTES");

	if (v)
		list_env(x, "OTEL_RESOURCE_ATTRIBUTES", v, l, false);
	v = env(x, "OTEL_SERVICE_NAME");
	if (v)
		list_put(l, keep(x, "service.name", 12), keep(x, v, strlen(v)), false);
	for (unsigned i = 0; i < x->o->n_resource; i++)
		if (!list_member(x, l, x->o->resource[i], strlen(x->o->resource[i]), false, false))
			wrong(x, "--otlp-resource %s is no NAME=VALUE", x->o->resource[i]);
}

/* "otlp" in a list such as OTEL_METRICS_EXPORTER's */
static bool names_otlp(const char *v)
{
	for (const char *p = v; *p;) {
		size_t n = strcspn(p, ", ");

		if (n == 4 && !strncasecmp(p, "otlp", 4))
			return true;
		p += n + (p[n] != '\0');
	}
	return false;
}

/*
 * An endpoint in the environment is the user's word that telemetry goes there; that
 * variables for it exist says nothing about where. So it switches the metrics on while
 * watching. Spans tell of each single request: they want to be named.
 */
static void from_environment(struct ctx *x)
{
	struct rp_otlp_config *c = x->c;
	const char *base = env(x, "OTEL_EXPORTER_OTLP_ENDPOINT");
	const char *metrics = env(x, "OTEL_METRICS_EXPORTER"),
		   *traces = env(x, "OTEL_TRACES_EXPORTER");

	if (env_true(x, "OTEL_SDK_DISABLED"))
		return;
	c->metrics.on = (base || env(x, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")) &&
			(!metrics || names_otlp(metrics));
	c->traces.on = env(x, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") ?
			       !traces || names_otlp(traces) :
			       base && traces && names_otlp(traces);
	c->from_env = c->metrics.on || c->traces.on;
}

int rp_otlp_configure(const struct rp_options *opts, char *(*get)(const char *),
		      void (*tell)(const char *), struct rp_otlp_config *c, char *err,
		      size_t errlen)
{
	const struct rp_otlp_options *o = &opts->otlp;
	struct ctx x = { o, c, get, tell, err, errlen, 0 };

	memset(c, 0, sizeof(*c));
	c->metrics.on = o->endpoint != NULL;
	c->traces.on = o->traces;
	if (!c->metrics.on && !c->traces.on && opts->verb == RP_VERB_WATCH)
		from_environment(&x);
	if (!c->metrics.on && !c->traces.on)
		return 0;
	if (o->endpoint && !url_ok(o->endpoint))
		wrong(&x, "--otlp %s is no URL: http://HOST:PORT or https://", o->endpoint);
	else if (o->endpoint && ends_in_signal(o->endpoint))
		wrong(&x,
		      "--otlp wants the URL without /v1/metrics or /v1/traces: they are appended");
	if (x.e)
		return x.e;
	if (c->metrics.on)
		one_signal(&x, &c->metrics, "METRICS", "v1/metrics", NULL);
	if (c->traces.on)
		one_signal(&x, &c->traces, "TRACES", "v1/traces", o->traces_url);
	metrics_settings(&x);
	trace_settings(&x);
	resource(&x);
	c->extended = o->extended;
	if (o->provider)
		c->provider = keep(&x, o->provider, strlen(o->provider));
	if (o->schema_url)
		c->schema_url = keep(&x, o->schema_url, strlen(o->schema_url));
	c->max_series = o->max_series ? o->max_series : MAX_SERIES;
	c->queue = o->queue ? o->queue : QUEUE;
	if (!o->queue && opts->memory / 8 < QUEUE)
		c->queue = opts->memory / 8 > RP_OTLP_QUEUE_MIN ? opts->memory / 8 :
								  RP_OTLP_QUEUE_MIN;
	c->flush_ms = o->flush_s > 0 ? (uint32_t)(o->flush_s * 1000) : FLUSH_MS;
	return x.e;
}

static void signal_free(struct rp_otlp_signal *s)
{
	free(s->url);
	free(s->shown);
	list_free(&s->headers);
	free(s->ca);
	free(s->cert);
	free(s->key);
}

void rp_otlp_config_free(struct rp_otlp_config *c)
{
	signal_free(&c->metrics);
	signal_free(&c->traces);
	list_free(&c->resource);
	free(c->provider);
	free(c->schema_url);
	memset(c, 0, sizeof(*c));
}
