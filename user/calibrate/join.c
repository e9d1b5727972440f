// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * join.c - one request as the client and as the server saw it, by X-Request-ID:
 *
 *	client TTFT = client overhead + network + receive + front end + queue +
 *		      prefill + unexplained
 *
 * Only durations are added, each by the clock of one host: the clocks of the two
 * need not agree. The rest is what is left; it is never set to zero, and below
 * zero when two parts took in the same time. All of it in whole nanoseconds.
 */
#include "calibrate/calibrate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CLIENT, SERVER };

const char *const rp_part_names[RP_PARTS] = {
	"client_overhead", "network", "receive", "frontend",
	"queue",	   "prefill", "server",	 "unexplained"
};

const char *const rp_join_why_names[RP_JOIN_WHYS] = {
	[RP_JOIN_OK] = "joined",
	[RP_JOIN_NO_ID] = "no_x_request_id",
	[RP_JOIN_WARMUP] = "warmup",
	[RP_JOIN_FAILED] = "failed",
	[RP_JOIN_NO_TTFT] = "no_first_token",
	[RP_JOIN_NO_PEER] = "not_in_other_file",
	[RP_JOIN_PEER_TTFT] = "no_first_token_in_other_file",
	[RP_JOIN_DUPLICATE] = "duplicate_id",
};

struct rp_join_side {
	char *id;
	int64_t start; /* wall time by its own host; for the order of duplicates */
	int64_t ttft;
	uint32_t peer;
	uint8_t why;
	bool duplicate;
	union {
		struct {
			int64_t session, overhead;
			const char *overhead_source;
		} c;
		struct {
			int64_t rtt, receive, frontend, queue, prefill;
			char rtt_source[16], end[20];
			char *flags; /* JSON; NULL when there is none */
		} s;
	};
};

static struct rp_join_side *add(struct rp_join *j, int side)
{
	struct rp_join_side *p;

	if (j->n[side] == j->cap[side]) {
		size_t cap = j->cap[side] ? j->cap[side] * 2 : 1024;

		p = realloc(j->side[side], cap * sizeof(*p));
		if (!p)
			return NULL;
		j->side[side] = p;
		j->cap[side] = cap;
	}
	p = &j->side[side][j->n[side]++];
	memset(p, 0, sizeof(*p));
	return p;
}

static int take_id(struct rp_join_side *p, const json_t *id)
{
	if (!json_is_string(id) || !json_string_length(id))
		return 0;
	p->id = strdup(json_string_value(id));
	return p->id ? 0 : -ENOMEM;
}

static int64_t value_ns(const json_t *rec, const char *tag)
{
	bool exact, bad_unit;
	double ns;

	if (!rp_cal_value(rec, tag, &ns, &exact, &bad_unit) || !(fabs(ns) < 1e18))
		return RP_NONE;
	return llrint(ns);
}

static int64_t int_of(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_is_integer(v) ? json_integer_value(v) : RP_NONE;
}

/*
 * Until the request leaves the client: waiting for a connection, DNS, connect, TLS.
 * A body of one chunk goes out together with the headers, when the "chunk sent" of
 * aiohttp's trace has been called (http_writer.py); else the headers go first. The
 * metrics have the same without --export-http-trace, less what comes before
 * aiohttp's own start; connecting includes DNS there.
 */
static void take_overhead(struct rp_join_side *p, const json_t *rec, int64_t start)
{
	const json_t *t = json_object_get(rec, "trace_data");
	const json_t *chunks = json_object_get(
		json_object_get(json_object_get(rec, "metrics"), "http_req_chunks_sent"), "value");
	int64_t sent, blocked, connecting;

	p->c.overhead = RP_NONE;
	sent = int_of(t, int_of(t, "request_chunks_count") == 1 ? "request_send_end_ns" :
								  "request_headers_sent_ns");
	if (sent > 0 && start > 0 && sent >= start && sent - start <= p->ttft) {
		p->c.overhead = sent - start;
		p->c.overhead_source = "trace";
		return;
	}
	sent = value_ns(rec, "http_req_sending");
	if (json_number_value(chunks) == 1 && sent >= 0 && sent <= p->ttft) {
		p->c.overhead = sent;
		p->c.overhead_source = "http_req";
		return;
	}
	blocked = value_ns(rec, "http_req_blocked");
	connecting = value_ns(rec, "http_req_connecting");
	if (connecting < 0)
		return;
	sent = connecting + (blocked > 0 ? blocked : 0);
	if (sent <= p->ttft) {
		p->c.overhead = sent;
		p->c.overhead_source = "http_req";
	}
}

int rp_join_client(struct rp_join *j, const json_t *rec)
{
	const json_t *m = json_object_get(rec, "metadata");
	struct rp_join_side *p;

	if (!json_is_object(m) || !json_is_object(json_object_get(rec, "metrics")))
		return 0;
	if (j->n[CLIENT] == RP_CAL_MAX_RECORDS)
		return -EFBIG;
	p = add(j, CLIENT);
	if (!p || take_id(p, json_object_get(m, "x_request_id")))
		return -ENOMEM;
	p->start = int_of(m, "request_start_ns");
	p->c.session = int_of(m, "session_num");
	p->ttft = value_ns(rec, rp_cal_tags[RP_CAL_TTFT]);
	p->c.overhead = RP_NONE;
	if (p->ttft != RP_NONE)
		take_overhead(p, rec, p->start);
	if (rp_cal_is_warmup(rec))
		p->why = RP_JOIN_WARMUP;
	else if (p->ttft == RP_NONE)
		p->why = rp_cal_is_failed(rec) ? RP_JOIN_FAILED : RP_JOIN_NO_TTFT;
	else if (!p->id)
		p->why = RP_JOIN_NO_ID;
	return 0;
}

/* A duration of a record of ours: milliseconds with up to six decimals. */
static int64_t ms_of(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);
	double ns = json_number_value(v) * 1e6;

	return json_is_number(v) && fabs(ns) < 1e18 ? llrint(ns) : RP_NONE;
}

/* 2026-11-29T14:57:30.123456789Z, as rp_put_time() writes it. */
static int64_t wall_of(const char *s)
{
	struct tm tm = { 0 };
	int64_t frac = 0, unit = 100000000;
	const char *p = s ? strptime(s, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;

	if (!p)
		return RP_NONE;
	if (*p == '.')
		for (p++; *p >= '0' && *p <= '9' && unit; p++, unit /= 10)
			frac += (*p - '0') * unit;
	return (int64_t)timegm(&tm) * 1000000000 + frac;
}

static void copy(char *to, size_t size, const json_t *v)
{
	snprintf(to, size, "%s", json_is_string(v) ? json_string_value(v) : "");
}

int rp_join_server(struct rp_join *j, const json_t *rec)
{
	const char *schema = json_string_value(json_object_get(rec, "schema"));
	const json_t *phases = json_object_get(rec, "phases"),
		     *fe = json_object_get(rec, "frontend");
	const json_t *net = json_object_get(rec, "network"), *flags = json_object_get(rec, "flags");
	int64_t before, after;
	struct rp_join_side *p;

	if (!schema || strcmp(schema, "reqprobe.request/1")) {
		j->other_lines += !schema || strcmp(schema, "reqprobe.summary/1") != 0;
		return 0;
	}
	if (j->n[SERVER] == RP_CAL_MAX_RECORDS)
		return -EFBIG;
	p = add(j, SERVER);
	if (!p || take_id(p, json_object_get(rec, "x_request_id")))
		return -ENOMEM;
	p->start = wall_of(json_string_value(json_object_get(rec, "start")));
	p->ttft = ms_of(json_object_get(rec, "server_timing"), "ttft_ms");
	p->s.rtt = ms_of(net, "rtt_ms");
	copy(p->s.rtt_source, sizeof(p->s.rtt_source), json_object_get(net, "source"));
	copy(p->s.end, sizeof(p->s.end), json_object_get(rec, "end"));
	p->s.receive = ms_of(phases, "receive_ms");
	p->s.queue = ms_of(phases, "queue_ms");
	p->s.prefill = ms_of(phases, "prefill_ms");
	before = ms_of(phases, "frontend_ms");
	after = ms_of(fe, "after_first_token_ms");
	p->s.frontend = before == RP_NONE || after == RP_NONE ? RP_NONE : before + after;
	if (json_array_size(flags)) {
		p->s.flags = json_dumps(flags, JSON_COMPACT);
		if (!p->s.flags)
			return -ENOMEM;
	}
	if (!p->id)
		p->why = RP_JOIN_NO_ID;
	else if (p->ttft == RP_NONE)
		p->why = RP_JOIN_NO_TTFT;
	return 0;
}

/* ---- pairing ---- */

static int by_id(const void *a, const void *b, void *ctx)
{
	const struct rp_join_side *base = ctx;
	uint32_t ia = *(const uint32_t *)a, ib = *(const uint32_t *)b;
	const struct rp_join_side *x = &base[ia], *y = &base[ib];
	int d = strcmp(x->id, y->id);

	if (d)
		return d;
	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return ia < ib ? -1 : 1;
}

/* Indices of the records with an id, sorted by it and by time. */
static int sorted(const struct rp_join *j, int side, uint32_t **out, size_t *n)
{
	uint32_t *v = malloc((j->n[side] + 1) * sizeof(*v));

	*n = 0;
	*out = v;
	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < j->n[side]; i++)
		if (j->side[side][i].id)
			v[(*n)++] = (uint32_t)i;
	qsort_r(v, *n, sizeof(*v), by_id, j->side[side]);
	return 0;
}

/*
 * All records of one id. Those that could be joined, in order of time, first with
 * first: a request that was sent again has its attempts in the same order on both
 * sides, and the ones that came to no token drop out before.
 */
static void pair_group(struct rp_join *j, uint32_t *v[2], const size_t n[2])
{
	enum rp_join_why alone[2] = { RP_JOIN_NO_PEER, RP_JOIN_NO_PEER };
	size_t ok[2] = { 0, 0 }, warmup = 0;

	for (int s = 0; s < 2; s++) {
		for (size_t i = 0; i < n[s]; i++) {
			struct rp_join_side *p = &j->side[s][v[s][i]];

			p->duplicate = n[s] > 1 || n[!s] > 1;
			warmup += p->why == RP_JOIN_WARMUP;
			if (p->why == RP_JOIN_OK)
				v[s][ok[s]++] = v[s][i];
		}
	}
	if (n[SERVER])
		alone[CLIENT] = ok[SERVER] ? RP_JOIN_DUPLICATE : RP_JOIN_PEER_TTFT;
	if (n[CLIENT])
		alone[SERVER] = ok[CLIENT]	    ? RP_JOIN_DUPLICATE :
				warmup == n[CLIENT] ? RP_JOIN_WARMUP :
						      RP_JOIN_PEER_TTFT;
	for (size_t i = 0; i < ok[CLIENT] || i < ok[SERVER]; i++) {
		if (i < ok[CLIENT] && i < ok[SERVER]) {
			j->side[CLIENT][v[CLIENT][i]].peer = v[SERVER][i];
			continue;
		}
		if (i < ok[CLIENT])
			j->side[CLIENT][v[CLIENT][i]].why = alone[CLIENT];
		else
			j->side[SERVER][v[SERVER][i]].why = alone[SERVER];
	}
}

static bool has_id(const struct rp_join_side *p, const char *id)
{
	return p->id && id && !strcmp(p->id, id);
}

static int pair_all(struct rp_join *j)
{
	uint32_t *v[2] = { NULL, NULL };
	size_t n[2] = { 0, 0 }, at[2] = { 0, 0 };
	int err = sorted(j, CLIENT, &v[CLIENT], &n[CLIENT]);

	if (!err)
		err = sorted(j, SERVER, &v[SERVER], &n[SERVER]);
	while (!err && (at[0] < n[0] || at[1] < n[1])) {
		const char *id[2] = { NULL, NULL }, *least;
		size_t k[2];
		uint32_t *g[2];

		for (int s = 0; s < 2; s++)
			if (at[s] < n[s])
				id[s] = j->side[s][v[s][at[s]]].id;
		least = !id[0] || (id[1] && strcmp(id[1], id[0]) < 0) ? id[1] : id[0];
		for (int s = 0; s < 2; s++) {
			g[s] = v[s] + at[s];
			for (k[s] = 0; at[s] < n[s]; at[s]++, k[s]++)
				if (!has_id(&j->side[s][v[s][at[s]]], least))
					break;
		}
		pair_group(j, g, k);
	}
	free(v[0]);
	free(v[1]);
	return err;
}

/* ---- taking apart ---- */

static const char *parts_of(const struct rp_join_side *c, const struct rp_join_side *s,
			    const struct rp_cal_rtt *rtt, int64_t part[RP_PARTS])
{
	const char *source = s->s.rtt_source;
	int64_t rest = c->ttft;

	for (int i = 0; i < RP_PARTS; i++)
		part[i] = RP_NONE;
	part[RP_PART_CLIENT] = c->c.overhead;
	part[RP_PART_NETWORK] = s->s.rtt;
	if (s->s.rtt == RP_NONE) {
		source = NULL;
		if (rtt->known) {
			part[RP_PART_NETWORK] = llrint(rtt->ns);
			source = "calibration";
		}
	}
	part[RP_PART_RECEIVE] = s->s.receive;
	if (s->s.frontend != RP_NONE && s->s.queue != RP_NONE && s->s.prefill != RP_NONE) {
		part[RP_PART_FRONTEND] = s->s.frontend;
		part[RP_PART_QUEUE] = s->s.queue;
		part[RP_PART_PREFILL] = s->s.prefill;
	} else {
		part[RP_PART_SERVER] = s->ttft;
	}
	for (int i = 0; i < RP_PART_REST; i++)
		if (part[i] != RP_NONE)
			rest -= part[i];
	part[RP_PART_REST] = rest;
	return source;
}

static double share_explained(int64_t ttft, int64_t rest)
{
	double r = fabs((double)rest);

	if (ttft <= 0)
		return rest ? 0 : 1;
	return 1 - r / (double)ttft;
}

static void put_ms(struct rp_buf *b, const char *name, int64_t ns)
{
	LIT(b, ",\"");
	rp_buf_str(b, name);
	LIT(b, "_ms\":");
	if (ns == RP_NONE)
		LIT(b, "null");
	else
		rp_buf_fixed(b, ns, 1000000);
}

static void put_wall(struct rp_buf *b, int64_t ns)
{
	if (ns == RP_NONE)
		LIT(b, "null");
	else
		rp_put_time(b, ns);
}

static void put_joined(struct rp_buf *b, const struct rp_join_side *c, const struct rp_join_side *s,
		       const int64_t part[RP_PARTS], const char *net_source)
{
	LIT(b, "{\"schema\":\"reqprobe.joined/1\",\"x_request_id\":");
	rp_put_string_or_null(b, c->id);
	LIT(b, ",\"session_num\":");
	if (c->c.session == RP_NONE)
		LIT(b, "null");
	else
		rp_put_i64(b, c->c.session);
	LIT(b, ",\"client_start\":");
	put_wall(b, c->start);
	LIT(b, ",\"server_start\":");
	put_wall(b, s->start);
	put_ms(b, "client_ttft", c->ttft);
	for (int i = 0; i < RP_PARTS; i++)
		put_ms(b, rp_part_names[i], part[i]);
	LIT(b, ",\"explained_share\":");
	rp_cal_put_real(b, share_explained(c->ttft, part[RP_PART_REST]));
	LIT(b, ",\"client_overhead_source\":");
	rp_put_string_or_null(b, c->c.overhead_source);
	LIT(b, ",\"network_source\":");
	rp_put_string_or_null(b, net_source);
	LIT(b, ",\"server_end\":");
	rp_put_string_or_null(b, s->s.end);
	LIT(b, ",\"server_flags\":");
	rp_buf_str(b, s->s.flags ? s->s.flags : "[]");
	rp_buf_str(b, c->duplicate ? ",\"flags\":[\"duplicate_id\"]}\n" : ",\"flags\":[]}\n");
}

/* The figures of one kind of all joined pairs into v; what: a part, or one of these. */
enum { WHAT_TTFT = RP_PARTS, WHAT_SHARE };
static size_t column(const struct rp_join *j, const struct rp_cal_rtt *rtt, int what, double *v)
{
	int64_t part[RP_PARTS];
	size_t n = 0;

	for (size_t i = 0; i < j->n[CLIENT]; i++) {
		const struct rp_join_side *c = &j->side[CLIENT][i];

		if (c->why != RP_JOIN_OK)
			continue;
		parts_of(c, &j->side[SERVER][c->peer], rtt, part);
		if (what == WHAT_TTFT)
			v[n++] = (double)c->ttft / 1e6;
		else if (what == WHAT_SHARE)
			v[n++] = share_explained(c->ttft, part[RP_PART_REST]);
		else if (part[what] != RP_NONE)
			v[n++] = (double)part[what] / 1e6;
	}
	return n;
}

/* What takes most of the requests whose TTFT lies between two: one request alone
 * would say more about itself than about its rank. */
static void biggest(struct rp_join *j, const struct rp_cal_rtt *rtt, int which, double from,
		    double to)
{
	double sum[RP_PARTS] = { 0 }, ttft = 0;
	int64_t part[RP_PARTS];
	int best = 0;

	for (size_t i = 0; i < j->n[CLIENT]; i++) {
		const struct rp_join_side *c = &j->side[CLIENT][i];
		double t = (double)c->ttft / 1e6;

		if (c->why != RP_JOIN_OK || t < from || t > to)
			continue;
		parts_of(c, &j->side[SERVER][c->peer], rtt, part);
		for (int k = 0; k < RP_PARTS; k++)
			sum[k] += part[k] == RP_NONE ? 0 : (double)part[k] / 1e6;
		ttft += t;
		j->at[which].n++;
	}
	for (int k = 1; k < RP_PARTS; k++)
		if (sum[k] > sum[best])
			best = k;
	j->at[which].biggest = best;
	j->at[which].ttft_ms = j->at[which].n ? ttft / (double)j->at[which].n : 0;
	j->at[which].share = ttft > 0 ? sum[best] / ttft : 0;
}

static int summarise(struct rp_join *j, const struct rp_cal_rtt *rtt)
{
	double *v = malloc((j->n[CLIENT] + 1) * sizeof(*v));
	size_t n;

	if (!v)
		return -ENOMEM;
	n = column(j, rtt, WHAT_TTFT, v);
	rp_cal_stats(v, n, &j->ttft); /* sorts v */
	if (n) {
		double last = (double)(n - 1);

		biggest(j, rtt, 0, v[(size_t)(0.4 * last)], v[(size_t)ceil(0.6 * last)]);
		biggest(j, rtt, 1, v[(size_t)(0.98 * last)], INFINITY);
	}
	for (int k = 0; k < RP_PARTS; k++) {
		n = column(j, rtt, k, v);
		j->sum_abs_rest = 0;
		for (size_t i = 0; i < n; i++)
			j->sum_abs_rest += fabs(v[i]); /* of the last one: the rest */
		rp_cal_stats(v, n, &j->part[k]);
	}
	n = column(j, rtt, WHAT_SHARE, v);
	for (size_t i = 0; i < n; i++)
		j->well += v[i] >= RP_JOIN_WELL;
	rp_cal_stats(v, n, &j->explained);
	free(v);
	return 0;
}

int rp_join_run(struct rp_join *j, const struct rp_cal_rtt *rtt, struct rp_out *out)
{
	int64_t part[RP_PARTS];
	int err = pair_all(j);

	if (err)
		return err;
	for (size_t i = 0; i < j->n[CLIENT]; i++) {
		const struct rp_join_side *c = &j->side[CLIENT][i];
		const char *source;

		j->why[CLIENT][c->why]++;
		if (c->why != RP_JOIN_OK)
			continue;
		j->joined++;
		j->duplicates += c->duplicate;
		source = parts_of(c, &j->side[SERVER][c->peer], rtt, part);
		j->no_rtt += part[RP_PART_NETWORK] == RP_NONE;
		if (!out)
			continue;
		put_joined(&out->b, c, &j->side[SERVER][c->peer], part, source);
		if (out->b.n >= 64 * 1024 || out->b.oom) {
			err = rp_out_flush(out);
			if (err)
				return err;
		}
	}
	for (size_t i = 0; i < j->n[SERVER]; i++)
		j->why[SERVER][j->side[SERVER][i].why]++;
	return summarise(j, rtt);
}

void rp_join_free(struct rp_join *j)
{
	for (int s = 0; s < 2; s++) {
		for (size_t i = 0; i < j->n[s]; i++) {
			free(j->side[s][i].id);
			if (s == SERVER)
				free(j->side[s][i].s.flags);
		}
		free(j->side[s]);
	}
	*j = (struct rp_join){ 0 };
}
