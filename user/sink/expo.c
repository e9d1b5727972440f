// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * expo.c - the formats: prometheus.io "Exposition formats", OpenMetrics 1.0, and
 * io/prometheus/client/metrics.proto of prometheus/client_model.
 */
#include "sink/expo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/pb.h"
#include "sink/put.h"

const char *const rp_expo_content_type[RP_EXPO_FORMATS] = {
	[RP_EXPO_TEXT] = "text/plain; version=0.0.4; charset=utf-8",
	[RP_EXPO_TEXT_1] = "text/plain; version=1.0.0; charset=utf-8",
	[RP_EXPO_OPENMETRICS] = "application/openmetrics-text; version=1.0.0; charset=utf-8",
	[RP_EXPO_PROTOBUF] =
		"application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
};

/* ---- negotiation ---- */

/* A word of a header: at *p, up to any of `ends`, blanks and quotes taken off. */
struct word {
	const char *p;
	size_t n;
};

static struct word take(const char **p, const char *ends)
{
	struct word w = { *p, strcspn(*p, ends) };

	*p += w.n;
	while (w.n && (*w.p == ' ' || *w.p == '\t' || *w.p == '"')) {
		w.p++;
		w.n--;
	}
	while (w.n && (w.p[w.n - 1] == ' ' || w.p[w.n - 1] == '\t' || w.p[w.n - 1] == '"'))
		w.n--;
	return w;
}

static bool is(struct word w, const char *s)
{
	return w.n == strlen(s) && !strncasecmp(w.p, s, w.n);
}

/* RFC 9110: "0" to "1" with at most three decimals; else 0, which is never. */
static int quality(struct word w)
{
	int q, unit = 100;

	if (!w.n || (w.p[0] != '0' && w.p[0] != '1'))
		return 0;
	q = (w.p[0] - '0') * 1000;
	for (size_t i = 2; w.n > 1 && w.p[1] == '.' && i < w.n && i < 5; i++, unit /= 10) {
		if (w.p[i] < '0' || w.p[i] > '9')
			return 0;
		q += (w.p[i] - '0') * unit;
	}
	return q > 1000 ? 1000 : q;
}

enum rp_expo_format rp_expo_negotiate(const char *accept)
{
	enum rp_expo_format best = RP_EXPO_TEXT;
	int best_q = 0;

	for (const char *p = accept ? accept : ""; *p; p += *p == ',') {
		struct word type = take(&p, ",;"), version = { "", 0 };
		enum rp_expo_format f = RP_EXPO_FORMATS;
		bool delimited = false, families = false;
		int q = 1000;

		while (*p == ';') {
			struct word key, val = { "", 0 };

			p++;
			key = take(&p, ",;=");
			if (*p == '=') {
				p++;
				val = take(&p, ",;");
			}
			if (is(key, "q"))
				q = quality(val);
			else if (is(key, "version"))
				version = val;
			else if (is(key, "encoding"))
				delimited = is(val, "delimited");
			else if (is(key, "proto"))
				families = is(val, "io.prometheus.client.MetricFamily");
		}
		if (is(type, "application/openmetrics-text") &&
		    (!version.n || is(version, "1.0.0")))
			f = RP_EXPO_OPENMETRICS;
		else if (is(type, "application/vnd.google.protobuf") && delimited && families)
			f = RP_EXPO_PROTOBUF;
		else if (is(type, "text/plain") && is(version, "1.0.0"))
			f = RP_EXPO_TEXT_1;
		else if ((is(type, "text/plain") && (!version.n || is(version, "0.0.4"))) ||
			 is(type, "text/*") || is(type, "*/*"))
			f = RP_EXPO_TEXT;
		if (f != RP_EXPO_FORMATS && q > best_q) {
			best_q = q;
			best = f;
		}
	}
	return best;
}

bool rp_expo_takes_gzip(const char *accept_encoding)
{
	int gzip = -1, any = 0, plain = 0;

	for (const char *p = accept_encoding ? accept_encoding : ""; *p; p += *p == ',') {
		struct word coding = take(&p, ",;");
		int q = 1000;

		while (*p == ';') {
			struct word key;

			p++;
			key = take(&p, ",;=");
			if (*p != '=')
				continue;
			p++;
			if (is(key, "q"))
				q = quality(take(&p, ",;"));
			else
				take(&p, ",;");
		}
		if (is(coding, "gzip") || is(coding, "x-gzip"))
			gzip = q;
		else if (is(coding, "identity"))
			plain = q;
		else if (is(coding, "*"))
			any = q;
	}
	gzip = gzip < 0 ? any : gzip;
	return gzip > 0 && gzip >= plain;
}

/* ---- numbers ---- */

static void number(struct rp_buf *b, double v)
{
	if (isnan(v))
		LIT(b, "NaN");
	else if (isinf(v))
		rp_buf_str(b, v > 0 ? "+Inf" : "-Inf");
	else
		rp_buf_double(b, v);
}

/*
 * OpenMetrics' canonical form of a bound, which is that of Python's client too, and
 * so of vLLM: always a dot or an exponent, the latter below 1e-4 and from 1e6 on.
 */
#define LE_MAX 40
static void canonical(char t[LE_MAX], double v)
{
	char *e;
	int exp, digits;

	for (int prec = 0; prec <= 16; prec++) {
		snprintf(t, LE_MAX, "%.*e", prec, v);
		if (strtod(t, NULL) == v)
			break;
	}
	e = strchr(t, 'e');
	exp = atoi(e + 1);
	if (exp < -4 || exp >= 6) /* as printed: at least two digits of exponent */
		return;
	digits = (int)(e - t) > 1 ? (int)(e - t) - 2 : 0; /* behind the first one's dot */
	snprintf(t, LE_MAX, "%.*f", digits - exp > 1 ? digits - exp : 1, v);
}

/* Seconds, exact, from nanoseconds. */
static void seconds(struct rp_buf *b, unsigned __int128 ns)
{
	uint64_t s = (uint64_t)(ns / 1000000000u), frac = (uint64_t)(ns % 1000000000u);
	char t[12];
	int n;

	rp_buf_u64(b, s);
	if (!frac)
		return;
	n = snprintf(t, sizeof(t), ".%09u", (unsigned)frac);
	while (t[n - 1] == '0')
		n--;
	rp_buf_put(b, t, (size_t)n);
}

static double scaled(const struct rp_scale *s, double v)
{
	return s->counts ? v : v / 1e9;
}

/* ---- families ---- */

static size_t without_total(const char *name)
{
	size_t n = strlen(name);

	return n > 6 && !strcmp(name + n - 6, "_total") ? n - 6 : n;
}

static void escaped_help(struct rp_buf *b, const char *help, bool quotes)
{
	for (; *help; help++) {
		if (*help == '\\' || (quotes && *help == '"'))
			LIT(b, "\\");
		rp_buf_put(b, help, 1);
	}
}

static void meta(struct rp_buf *b, const char *what, const char *name, size_t n)
{
	LIT(b, "# ");
	rp_buf_str(b, what);
	LIT(b, " ");
	rp_buf_put(b, name, n);
	LIT(b, " ");
}

/* A unit that the name ends in, or NULL. */
static const char *unit_of(const char *name, size_t n)
{
	static const char *const units[] = { "seconds", "bytes", "ratio" };

	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
		size_t l = strlen(units[i]);

		if (n > l && name[n - l - 1] == '_' && !memcmp(name + n - l, units[i], l))
			return units[i];
	}
	return NULL;
}

static void close_family(struct rp_expo *e)
{
	if (e->format == RP_EXPO_PROTOBUF && e->begun)
		rp_pb_end(e->b, e->mark);
	e->begun = false;
}

void rp_expo_family(struct rp_expo *e, const char *name, enum rp_expo_type type, const char *help)
{
	static const char *const types[] = { "counter", "gauge", "histogram", "summary" };
	static const uint8_t numbers[] = { 0, 1, 4, 2 }; /* enum MetricType */
	size_t n = strlen(name);
	const char *unit;

	close_family(e);
	e->name = name;
	e->type = type;
	e->begun = true;
	switch (e->format) {
	case RP_EXPO_PROTOBUF:
		e->mark = rp_pb_begin(e->b, 0);
		rp_pb_bytes(e->b, 1, name, n);
		rp_pb_string(e->b, 2, help);
		rp_pb_u64(e->b, 3, numbers[type]);
		return;
	case RP_EXPO_OPENMETRICS:
		if (type == RP_EXPO_COUNTER)
			n = without_total(name);
		unit = unit_of(name, n);
		meta(e->b, "TYPE", name, n);
		/* a counter's samples end in _total, or it is none */
		rp_buf_str(e->b, type == RP_EXPO_COUNTER && !name[n] ? "unknown" : types[type]);
		LIT(e->b, "\n");
		if (unit) {
			meta(e->b, "UNIT", name, n);
			rp_buf_str(e->b, unit);
			LIT(e->b, "\n");
		}
		meta(e->b, "HELP", name, n);
		escaped_help(e->b, help, true);
		LIT(e->b, "\n");
		return;
	default:
		meta(e->b, "HELP", name, n);
		escaped_help(e->b, help, false);
		LIT(e->b, "\n");
		meta(e->b, "TYPE", name, n);
		rp_buf_str(e->b, types[type]);
		LIT(e->b, "\n");
	}
}

void rp_expo_end(struct rp_expo *e)
{
	close_family(e);
	if (e->format == RP_EXPO_OPENMETRICS)
		LIT(e->b, "# EOF\n");
}

/* UTF-8 with \, " and LF escaped; anything else that is a control or no UTF-8
 * becomes U+FFFD. */
static void value(struct rp_buf *b, const char *str)
{
	const unsigned char *s = (const unsigned char *)str;

	while (*s) {
		int n = rp_utf8_len(s);

		if (*s == '\\' || *s == '"') {
			LIT(b, "\\");
			rp_buf_put(b, (const char *)s, 1);
		} else if (*s == '\n') {
			LIT(b, "\\n");
		} else if (n < 0 || *s < 0x20 || *s == 0x7f) {
			LIT(b, "\xef\xbf\xbd");
		} else {
			rp_buf_put(b, (const char *)s, (size_t)n);
		}
		s += n < 0 ? -n : n;
	}
}

/* Name and labels, up to the number. le: the label of a bucket, NULL none. */
static void sample(struct rp_expo *e, const char *suffix, const struct rp_label *l, size_t n,
		   const char *le)
{
	struct rp_buf *b = e->b;

	rp_buf_str(b, e->name);
	rp_buf_str(b, suffix);
	for (size_t i = 0; i < n; i++) {
		rp_buf_str(b, i ? "," : "{");
		rp_buf_str(b, l[i].key);
		LIT(b, "=\"");
		value(b, l[i].value);
		LIT(b, "\"");
	}
	if (le) {
		rp_buf_str(b, n ? ",le=\"" : "{le=\"");
		rp_buf_str(b, le);
		LIT(b, "\"");
	}
	rp_buf_str(b, n || le ? "} " : " ");
}

/* ---- protobuf ---- */

static void pb_label(struct rp_buf *b, uint32_t field, const char *key, const char *val)
{
	size_t mark = rp_pb_begin(b, field);

	rp_pb_string(b, 1, key);
	rp_pb_string(b, 2, val);
	rp_pb_end(b, mark);
}

static size_t pb_metric(struct rp_expo *e, const struct rp_label *l, size_t n)
{
	size_t mark = rp_pb_begin(e->b, 4);

	for (size_t i = 0; i < n; i++)
		pb_label(e->b, 1, l[i].key, l[i].value);
	return mark;
}

static void pb_number(struct rp_expo *e, const struct rp_label *l, size_t n, double v)
{
	size_t metric = pb_metric(e, l, n);
	size_t mark = rp_pb_begin(e->b, e->type == RP_EXPO_COUNTER ? 3 : 2);

	rp_pb_double(e->b, 1, v);
	rp_pb_end(e->b, mark);
	rp_pb_end(e->b, metric);
}

static void pb_exemplar(struct rp_buf *b, const struct rp_scale *s, const struct rp_exemplar *x)
{
	size_t mark = rp_pb_begin(b, 3), ts;

	pb_label(b, 1, "request_id", x->id);
	rp_pb_double(b, 2, scaled(s, (double)x->value));
	ts = rp_pb_begin(b, 3);
	rp_pb_u64(b, 1, (uint64_t)(x->wall / 1000000000));
	rp_pb_u64(b, 2, (uint64_t)(x->wall % 1000000000));
	rp_pb_end(b, ts);
	rp_pb_end(b, mark);
}

/* Prometheus has schemas up to 8. With nothing in it, a span of no length says that
 * it is one. */
static void pb_native(struct rp_buf *b, const struct rp_exphist *from)
{
	struct rp_exphist h;
	int64_t last = 0;
	size_t mark;

	if (from)
		h = *from;
	else
		rp_exphist_init(&h, RP_EXPHIST_BUCKETS);
	rp_exphist_limit_scale(&h, 8);
	rp_pb_sint(b, 5, h.scale);
	rp_pb_double(b, 6, 0x1p-128); /* what Go's client has */
	rp_pb_u64(b, 7, h.zero);
	mark = rp_pb_begin(b, 12);
	rp_pb_sint(b, 1, h.n ? h.offset + 1 : 0);
	rp_pb_u64(b, 2, h.n);
	rp_pb_end(b, mark);
	if (!h.n)
		return;
	mark = rp_pb_begin(b, 13);
	for (uint32_t i = 0; i < h.n; i++) {
		rp_pb_varint(b, rp_pb_zigzag((int64_t)h.bucket[i] - last));
		last = (int64_t)h.bucket[i];
	}
	rp_pb_end(b, mark);
}

static void pb_hist(struct rp_expo *e, const struct rp_label *l, size_t n, const struct rp_scale *s,
		    const struct rp_hist *h)
{
	size_t metric = pb_metric(e, l, n), hist = rp_pb_begin(e->b, 7);
	uint64_t cum = 0;

	rp_pb_u64(e->b, 1, h->count);
	rp_pb_double(e->b, 2, scaled(s, (double)h->sum));
	for (size_t i = 0; i <= s->n; i++) {
		size_t mark = rp_pb_begin(e->b, 3);

		cum += h->bucket[i];
		rp_pb_u64(e->b, 1, cum);
		rp_pb_double(e->b, 2, i < s->n ? scaled(s, (double)s->b[i].at) : INFINITY);
		if (h->ex && h->ex[i])
			pb_exemplar(e->b, s, h->ex[i]);
		rp_pb_end(e->b, mark);
	}
	if (s->native && !h->exp_refused)
		pb_native(e->b, h->exp);
	rp_pb_end(e->b, hist);
	rp_pb_end(e->b, metric);
}

/* ---- samples ---- */

void rp_expo_u64(struct rp_expo *e, const struct rp_label *l, size_t n, uint64_t v)
{
	if (e->format == RP_EXPO_PROTOBUF) {
		pb_number(e, l, n, (double)v);
		return;
	}
	sample(e, "", l, n, NULL);
	rp_buf_u64(e->b, v);
	LIT(e->b, "\n");
}

void rp_expo_double(struct rp_expo *e, const struct rp_label *l, size_t n, double v)
{
	if (e->format == RP_EXPO_PROTOBUF) {
		pb_number(e, l, n, v);
		return;
	}
	sample(e, "", l, n, NULL);
	number(e->b, v);
	LIT(e->b, "\n");
}

void rp_expo_text(struct rp_expo *e, const struct rp_label *l, size_t n, const char *text)
{
	if (e->format == RP_EXPO_PROTOBUF) {
		pb_number(e, l, n, strtod(text, NULL));
		return;
	}
	sample(e, "", l, n, NULL);
	rp_buf_str(e->b, text);
	LIT(e->b, "\n");
}

void rp_expo_seconds(struct rp_expo *e, const struct rp_label *l, size_t n, unsigned __int128 ns)
{
	if (e->format == RP_EXPO_PROTOBUF) {
		pb_number(e, l, n, (double)ns / 1e9);
		return;
	}
	sample(e, "", l, n, NULL);
	seconds(e->b, ns);
	LIT(e->b, "\n");
}

void rp_expo_summary(struct rp_expo *e, const struct rp_label *l, size_t n, uint64_t count,
		     double sum)
{
	if (e->format == RP_EXPO_PROTOBUF) {
		size_t metric = pb_metric(e, l, n), mark = rp_pb_begin(e->b, 4);

		rp_pb_u64(e->b, 1, count);
		rp_pb_double(e->b, 2, sum);
		rp_pb_end(e->b, mark);
		rp_pb_end(e->b, metric);
		return;
	}
	sample(e, "_count", l, n, NULL);
	rp_buf_u64(e->b, count);
	LIT(e->b, "\n");
	sample(e, "_sum", l, n, NULL);
	number(e->b, sum);
	LIT(e->b, "\n");
}

static void exemplar(struct rp_buf *b, const struct rp_scale *s, const struct rp_exemplar *x)
{
	LIT(b, " # {request_id=\"");
	value(b, x->id);
	LIT(b, "\"} ");
	if (s->counts)
		rp_buf_u64(b, (uint64_t)x->value);
	else
		seconds(b, (uint64_t)x->value);
	LIT(b, " ");
	rp_buf_fixed(b, x->wall, 1000000000);
}

void rp_expo_hist(struct rp_expo *e, const struct rp_label *l, size_t n, const struct rp_scale *s,
		  const struct rp_hist *h)
{
	struct rp_buf *b = e->b;
	uint64_t cum = 0;

	if (e->format == RP_EXPO_PROTOBUF) {
		pb_hist(e, l, n, s, h);
		return;
	}
	for (size_t i = 0; i <= s->n; i++) {
		char own[LE_MAX];
		const char *le = own;

		cum += h->bucket[i];
		if (i == s->n)
			le = "+Inf";
		else if (s->b[i].le && e->format != RP_EXPO_OPENMETRICS)
			le = s->b[i].le;
		else
			canonical(own, scaled(s, (double)s->b[i].at));
		sample(e, "_bucket", l, n, le);
		rp_buf_u64(b, cum);
		if (e->format == RP_EXPO_OPENMETRICS && h->ex && h->ex[i])
			exemplar(b, s, h->ex[i]);
		LIT(b, "\n");
	}
	sample(e, "_sum", l, n, NULL);
	if (s->counts)
		rp_buf_u64(b, (uint64_t)h->sum);
	else
		seconds(b, h->sum);
	LIT(b, "\n");
	sample(e, "_count", l, n, NULL);
	rp_buf_u64(b, h->count);
	LIT(b, "\n");
}

/* ---- collecting ---- */

static void keep_native(struct rp_hist *h, const struct rp_scale *s, struct rp_hist_room *room,
			int64_t v, uint64_t times)
{
	if (!h->exp && !h->exp_refused) {
		if (room->native < room->max_native)
			h->exp = malloc(sizeof(*h->exp));
		if (h->exp) {
			rp_exphist_init(h->exp, RP_EXPHIST_BUCKETS);
			room->native++;
		} else { /* for good: one that lacks its past would be wrong */
			h->exp_refused = true;
			room->no_native++;
		}
	}
	if (h->exp)
		rp_exphist_add(h->exp, scaled(s, (double)v), times);
}

static void keep_exemplar(struct rp_hist *h, struct rp_hist_room *room, size_t i, int64_t v,
			  const struct rp_exemplar_of *of)
{
	if (!of->id[0] || of->wall <= 0 || strlen(of->id) > RP_EXEMPLAR_ID_MAX)
		return;
	if (!h->ex)
		h->ex = calloc(RP_MAX_BOUNDS, sizeof(struct rp_exemplar *));
	if (h->ex && !h->ex[i] && room->exemplars < room->max_exemplars) {
		h->ex[i] = malloc(sizeof(*h->ex[i]));
		room->exemplars += h->ex[i] != NULL;
	}
	if (!h->ex || !h->ex[i]) {
		room->no_exemplar++;
		return;
	}
	h->ex[i]->value = v;
	h->ex[i]->wall = of->wall;
	strcpy(h->ex[i]->id, of->id);
}

void rp_hist_add(struct rp_hist *h, const struct rp_scale *s, struct rp_hist_room *room, int64_t v,
		 uint64_t times, const struct rp_exemplar_of *of)
{
	size_t i = 0;

	if (v < 0) /* derive.c and the timeline give none: a wrong one must not stick */
		return;
	while (i < s->n && v > s->b[i].at)
		i++;
	h->bucket[i] += times;
	h->count += times;
	h->sum += (unsigned __int128)v * times;
	if (s->native)
		keep_native(h, s, room, v, times);
	if (of)
		keep_exemplar(h, room, i, v, of);
}

struct rp_exemplar_of rp_exemplar_of(const struct rp_record *r)
{
	int64_t at = r->t_end != RP_NONE ? r->t_end : r->t_start;
	bool fits = r->x_request_id[0] && strlen(r->x_request_id) <= RP_EXEMPLAR_ID_MAX;

	return (struct rp_exemplar_of){
		.id = fits ? r->x_request_id : r->id,
		.wall = at == RP_NONE ? 0 : at + r->wall_offset,
	};
}

void rp_hist_free(struct rp_hist *h, struct rp_hist_room *room)
{
	for (size_t i = 0; h->ex && i < RP_MAX_BOUNDS; i++) {
		room->exemplars -= h->ex[i] != NULL;
		free(h->ex[i]);
	}
	room->native -= h->exp != NULL;
	free(h->ex);
	free(h->exp);
	memset(h, 0, sizeof(*h));
}
