// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * passive.c - handshakes out of reqprobe.request/1 lines. Every request on a
 * connection carries the figure of the same handshake; it counts once: with the
 * first request of the connection (connection.reused false), or with the first that
 * the file has of it.
 */
#include "rtt/rtt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/map.h"

#define LINE_LIMIT (16u << 20)
#define CONNS_LIMIT (1u << 20)
#define DEPTH_LIMIT 32
#define NS_PER_S 1000000000LL
/* Two handshakes of the same pair of addresses are further apart, and what is
 * computed from two requests of one connection is nearer. */
#define SAME_NS NS_PER_S

/* ---- just enough JSON for lines of our own ---- */

enum where { TOP, CONNECTION, CLIENT, SERVER, NETWORK, ELSEWHERE };
static const char *const groups[] = {
	[CONNECTION] = "connection",
	[CLIENT] = "client",
	[SERVER] = "server",
	[NETWORK] = "network",
};

struct text {
	const char *s;
	size_t n;
};

struct facts {
	struct text schema, start, source, client, server;
	double rtt_ms, age_s, client_port, server_port; /* NAN: null or absent */
	int reused;					/* -1: absent */
};

static const char *blank(const char *p)
{
	return p + strspn(p, " \t\r\n");
}

/* p is after the opening quote. Escapes stay as they are: nothing of interest
 * has any. */
static const char *string(const char *p, struct text *t)
{
	t->s = p;
	while (*p && *p != '"') {
		if ((unsigned char)*p < 0x20)
			return NULL;
		if (*p == '\\' && !*++p)
			return NULL;
		p++;
	}
	if (!*p)
		return NULL;
	t->n = (size_t)(p - t->s);
	return p + 1;
}

static bool is(struct text t, const char *s)
{
	return t.n == strlen(s) && !memcmp(t.s, s, t.n);
}

static void take_string(struct facts *f, enum where w, struct text key, struct text v)
{
	if (w == TOP && is(key, "schema"))
		f->schema = v;
	else if (w == TOP && is(key, "start"))
		f->start = v;
	else if (w == NETWORK && is(key, "source"))
		f->source = v;
	else if (w == CLIENT && is(key, "address"))
		f->client = v;
	else if (w == SERVER && is(key, "address"))
		f->server = v;
}

static void take_number(struct facts *f, enum where w, struct text key, double v)
{
	if (w == NETWORK && is(key, "rtt_ms"))
		f->rtt_ms = v;
	else if (w == NETWORK && is(key, "age_s"))
		f->age_s = v;
	else if (w == CLIENT && is(key, "port"))
		f->client_port = v;
	else if (w == SERVER && is(key, "port"))
		f->server_port = v;
}

static const char *value(const char *p, struct facts *f, enum where w, struct text key, int depth);

static const char *object(const char *p, struct facts *f, enum where w, int depth)
{
	struct text key;

	p = blank(p);
	if (*p == '}')
		return p + 1;
	for (;;) {
		if (*p != '"' || !(p = string(p + 1, &key)))
			return NULL;
		p = blank(p);
		if (*p != ':' || !(p = value(blank(p + 1), f, w, key, depth)))
			return NULL;
		p = blank(p);
		if (*p == '}')
			return p + 1;
		if (*p != ',')
			return NULL;
		p = blank(p + 1);
	}
}

/* NOLINTNEXTLINE(misc-no-recursion): bounded by DEPTH_LIMIT */
static const char *value(const char *p, struct facts *f, enum where w, struct text key, int depth)
{
	struct text v;
	double d;
	char *end;

	if (depth > DEPTH_LIMIT)
		return NULL;
	switch (*p) {
	case '"':
		p = string(p + 1, &v);
		if (p)
			take_string(f, w, key, v);
		return p;
	case '{': {
		enum where in = ELSEWHERE;

		if (w == TOP)
			for (enum where i = CONNECTION; i <= NETWORK; i++)
				if (is(key, groups[i]))
					in = i;
		return object(p + 1, f, in, depth + 1);
	}
	case '[':
		p = blank(p + 1);
		if (*p == ']')
			return p + 1;
		for (;;) {
			p = value(p, f, ELSEWHERE, key, depth + 1);
			if (!p)
				return NULL;
			p = blank(p);
			if (*p == ']')
				return p + 1;
			if (*p != ',')
				return NULL;
			p = blank(p + 1);
		}
	case 't':
	case 'f':
	case 'n': {
		static const char *const words[] = { "false", "true", "null" };

		for (int i = 0; i < 3; i++) {
			if (strncmp(p, words[i], strlen(words[i])) != 0)
				continue;
			if (i < 2 && w == CONNECTION && is(key, "reused"))
				f->reused = i;
			return p + strlen(words[i]);
		}
		return NULL;
	}
	default:
		if (*p != '-' && (*p < '0' || *p > '9'))
			return NULL;
		d = strtod(p, &end);
		if (end == p || !isfinite(d))
			return NULL;
		take_number(f, w, key, d);
		return end;
	}
}

static bool parse(const char *line, struct facts *f)
{
	const char *p = blank(line);

	*f = (struct facts){
		.rtt_ms = NAN, .age_s = NAN, .client_port = NAN, .server_port = NAN, .reused = -1
	};
	if (*p != '{')
		return false;
	p = object(p + 1, f, TOP, 0);
	return p && !*blank(p);
}

/* 2026-11-29T14:57:30.123456789Z, the fraction at will */
static bool wall_of(struct text t, int64_t *ns)
{
	char buf[40], *p;
	struct tm tm = { 0 };
	int64_t frac = 0, unit = NS_PER_S / 10;
	time_t s;

	if (!t.s || t.n >= sizeof(buf))
		return false;
	memcpy(buf, t.s, t.n);
	buf[t.n] = '\0';
	p = strptime(buf, "%Y-%m-%dT%H:%M:%S", &tm);
	if (!p)
		return false;
	if (*p == '.')
		for (p++; *p >= '0' && *p <= '9'; p++, unit /= 10)
			frac += (*p - '0') * unit;
	s = timegm(&tm);
	if (strcmp(p, "Z") != 0 || s < 0 || s > 9000000000LL)
		return false;
	*ns = s * NS_PER_S + frac;
	return true;
}

static bool address_of(struct text t, char *buf, size_t len)
{
	struct in6_addr a;

	if (!t.s || !t.n || t.n >= len)
		return false;
	memcpy(buf, t.s, t.n);
	buf[t.n] = '\0';
	return inet_pton(AF_INET, buf, &a) == 1 || inet_pton(AF_INET6, buf, &a) == 1;
}

static uint64_t hash(struct text t, double port)
{
	uint64_t h = 14695981039346656037ULL;

	for (size_t i = 0; i < t.n; i++)
		h = (h ^ (unsigned char)t.s[i]) * 1099511628211ULL;
	return (h ^ (uint64_t)port) * 1099511628211ULL;
}

static bool is_port(double d)
{
	return d >= 1 && d <= 65535; /* false for NAN */
}

/* Was this handshake seen before? -1: can't be told any more. */
static int seen_before(struct rp_map *m, const struct facts *f, int64_t established)
{
	uint64_t a = hash(f->client, f->client_port), b = hash(f->server, f->server_port);
	void *old = rp_map_get(m, a, b);
	int64_t d = old ? (int64_t)(uintptr_t)old - established : 0;

	if (f->reused && old && d > -SAME_NS && d < SAME_NS)
		return 1;
	if ((!old && m->len >= CONNS_LIMIT) || rp_map_put(m, a, b, (void *)(uintptr_t)established))
		return f->reused ? -1 : 0;
	return 0;
}

static int one(const char *line, struct rp_map *m, rp_rtt_seen_fn fn, void *ctx,
	       struct rp_rtt_passive *st)
{
	static const char schema[] = "reqprobe.";
	struct rp_rtt_seen s;
	struct facts f;
	int64_t start;
	int before;

	if (!*blank(line))
		return 0;
	st->lines++;
	if (!parse(line, &f) || f.schema.n < sizeof(schema) - 1 ||
	    memcmp(f.schema.s, schema, sizeof(schema) - 1) != 0) {
		st->bad++;
		return 0;
	}
	if (!is(f.schema, "reqprobe.request/1"))
		return 0; /* a summary, a step */
	st->records++;
	if (isnan(f.rtt_ms) || !is(f.source, "handshake")) {
		st->none++;
		return 0;
	}
	if (!wall_of(f.start, &start) || !address_of(f.server, s.address, sizeof(s.address)) ||
	    !is_port(f.server_port) || !is_port(f.client_port) || f.reused < 0 ||
	    !(f.age_s >= 0 && f.age_s < 1e9) || !(f.rtt_ms >= 0 && f.rtt_ms < 1e9)) {
		st->bad++;
		return 0;
	}
	s.port = (uint16_t)f.server_port;
	s.rtt = llround(f.rtt_ms * 1e6);
	s.wall = start - llround(f.age_s * 1e9);
	if (s.wall <= 0) {
		st->bad++;
		return 0;
	}
	before = seen_before(m, &f, s.wall);
	if (before > 0)
		st->repeated++;
	else if (before < 0)
		st->unsure++;
	else
		st->handshakes++;
	return before ? 0 : fn(ctx, &s);
}

int rp_rtt_passive(FILE *in, rp_rtt_seen_fn fn, void *ctx, struct rp_rtt_passive *st)
{
	size_t cap = 64 << 10, n = 0;
	char *line = malloc(cap), *more;
	struct rp_map m = { 0 };
	bool skip = false;
	int err = 0;

	memset(st, 0, sizeof(*st));
	if (!line)
		return -ENOMEM;
	while (!err && fgets(line + n, (int)(cap - n), in)) {
		n += strlen(line + n);
		if (n && line[n - 1] == '\n') {
			if (skip) {
				st->lines++;
				st->bad++;
			} else {
				err = one(line, &m, fn, ctx, st);
			}
			skip = false;
			n = 0;
		} else if (n + 1 == cap && cap >= LINE_LIMIT) {
			skip = true; /* too long to be one of ours */
			n = 0;
		} else if (n + 1 == cap) {
			more = realloc(line, cap * 2);
			if (!more) {
				err = -ENOMEM;
				break;
			}
			line = more;
			cap *= 2;
		}
	}
	/* a last line without its end: a record that is being written, or was cut */
	if (!err && n) {
		st->lines++;
		st->bad++;
	}
	if (!err && ferror(in))
		err = errno ? -errno : -EIO;
	rp_map_free(&m);
	free(line);
	return err;
}
