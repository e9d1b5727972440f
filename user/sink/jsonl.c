// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * jsonl.c - one JSON object a line: reqprobe.request/1 and the closing
 * reqprobe.summary/1 (docs/schema/). Written by hand into one buffer that is
 * kept, so that a record costs no allocation; the buffer goes out in batches of
 * whole lines.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memrchr */
#endif
#include "lib/outlet.h"
#include "sink/put.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL

/* ---- buffer ---- */

bool rp_buf_grow(struct rp_buf *b, size_t more)
{
	size_t cap = b->cap ? b->cap : 4096;
	char *p;

	if (b->cap - b->n >= more)
		return true;
	if (more > SIZE_MAX / 4 || b->n > SIZE_MAX / 4)
		goto oom;
	while (cap - b->n < more)
		cap *= 2;
	p = realloc(b->p, cap);
	if (!p)
		goto oom;
	b->p = p;
	b->cap = cap;
	return true;
oom:
	b->oom = true;
	return false;
}

static char *digits(char *end, uint64_t v)
{
	static const char two[] = "00010203040506070809101112131415161718192021222324"
				  "25262728293031323334353637383940414243444546474849"
				  "50515253545556575859606162636465666768697071727374"
				  "75767778798081828384858687888990919293949596979899";

	while (v >= 100) {
		end -= 2;
		memcpy(end, two + 2 * (v % 100), 2);
		v /= 100;
	}
	if (v >= 10) {
		end -= 2;
		memcpy(end, two + 2 * v, 2);
	} else {
		*--end = (char)('0' + v);
	}
	return end;
}

void rp_buf_u64(struct rp_buf *b, uint64_t v)
{
	char t[20], *s = digits(t + sizeof(t), v);

	rp_buf_put(b, s, (size_t)(t + sizeof(t) - s));
}

void rp_put_i64(struct rp_buf *b, int64_t v)
{
	if (v < 0)
		LIT(b, "-");
	rp_buf_u64(b, v < 0 ? -(uint64_t)v : (uint64_t)v);
}

void rp_buf_fixed(struct rp_buf *b, int64_t v, uint32_t unit)
{
	uint64_t u = v < 0 ? -(uint64_t)v : (uint64_t)v, frac = u % unit;
	char t[10], *end = t + sizeof(t), *s;

	if (v < 0)
		LIT(b, "-");
	rp_buf_u64(b, u / unit);
	if (!frac)
		return;
	/* the leading 1 of frac + unit keeps the zeros; the dot takes its place */
	s = digits(end, frac + unit);
	while (end[-1] == '0')
		end--;
	*s = '.';
	rp_buf_put(b, s, (size_t)(end - s));
}

/*
 * Exact shortest form for the usual range, without printf: with N = m * 10^k
 * and d = m * 2^-s, the decimal q * 10^-k reads back as d when it is nearer
 * than half a unit in the last place, that is |q * 2^s - N| * 2 < 10^k. All of
 * it fits in 128 bits for 1e-4 <= d < 1e15. False: use printf.
 */
static bool fast_double(struct rp_buf *b, double d)
{
	typedef unsigned __int128 u128;
	static const double p10d[] = { 1e-4, 1e-3, 1e-2, 1e-1, 1e0,  1e1,  1e2,	 1e3,  1e4,  1e5,
				       1e6,  1e7,  1e8,	 1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15 };
	uint64_t bits, m, q = 0;
	int e, mag = 0, k = 0, s;
	char t[40], *end, *p;
	bool ok = false;

	if (!(d >= 1e-4 && d < 1e15))
		return false;
	memcpy(&bits, &d, sizeof(bits));
	m = (bits & ((1ULL << 52) - 1)) | 1ULL << 52;
	e = (int)(bits >> 52 & 0x7ff) - 1075;
	s = -e;
	/* the neighbour below a power of two is nearer than half a unit */
	if (m == 1ULL << 52 || s <= 0)
		return false;
	while (d >= p10d[mag + 1])
		mag++;
	mag -= 4; /* 10^mag <= d */
	for (int prec = 15; prec <= 17 && !ok; prec++) {
		u128 pow = 1, n, half = (u128)1 << (s - 1), back, err;

		k = prec - 1 - mag;
		for (int i = 0; i < k; i++)
			pow *= 10;
		n = pow * m;
		q = (uint64_t)(n >> s);
		err = n & (((u128)1 << s) - 1);
		if (err > half || (err == half && (q & 1)))
			q++;
		back = (u128)q << s;
		err = back > n ? back - n : n - back;
		ok = err * 2 < pow;
	}
	if (!ok)
		return false;
	/* q * 10^-k, trailing zeros dropped as %g drops them */
	while (k > 0 && q % 10 == 0) {
		q /= 10;
		k--;
	}
	end = t + sizeof(t);
	p = digits(end, q);
	if (k > 0) {
		while (end - p <= k)
			*--p = '0';
		memmove(p - 1, p, (size_t)(end - p - k));
		p--;
		end[-k - 1] = '.';
	}
	rp_buf_put(b, p, (size_t)(end - p));
	return true;
}

void rp_buf_double(struct rp_buf *b, double d)
{
	char t[40];

	if (!isfinite(d)) { /* JSON has no such number; derive.c makes none */
		LIT(b, "null");
		return;
	}
	if (d == 0) {
		LIT(b, "0");
		return;
	}
	if (fast_double(b, d))
		return;
	for (int prec = 15; prec <= 17; prec++) {
		snprintf(t, sizeof(t), "%.*g", prec, d);
		if (prec == 17 || strtod(t, NULL) == d)
			break;
	}
	rp_buf_str(b, t);
}

int rp_utf8_len(const unsigned char *s)
{
	unsigned char c = s[0], lo = 0x80, hi = 0xbf;
	int n;

	if (c < 0x80)
		return 1;
	if (c >= 0xc2 && c <= 0xdf)
		n = 2;
	else if (c >= 0xe0 && c <= 0xef)
		n = 3;
	else if (c >= 0xf0 && c <= 0xf4)
		n = 4;
	else
		return -1;
	/* overlong forms, surrogates and what lies beyond U+10FFFF (Unicode 3-7) */
	if (c == 0xe0)
		lo = 0xa0;
	else if (c == 0xed)
		hi = 0x9f;
	else if (c == 0xf0)
		lo = 0x90;
	else if (c == 0xf4)
		hi = 0x8f;
	for (int i = 1; i < n; i++) {
		if (s[i] < lo || s[i] > hi)
			return -i;
		lo = 0x80;
		hi = 0xbf;
	}
	return n;
}

/* ---- JSON ---- */

/* 0: as it is; 'u': \u00XX; 1: look at UTF-8; else the letter after '\' */
static const unsigned char escape[256] = {
	['\b'] = 'b', ['\f'] = 'f',	     ['\n'] = 'n',  ['\r'] = 'r',
	['\t'] = 't', ['"'] = '"',	     ['\\'] = '\\', [0x00 ... 0x07] = 'u',
	[0x0b] = 'u', [0x0e ... 0x1f] = 'u', [0x7f] = 'u',  [0x80 ... 0xff] = 1,
};

static void put_string(struct rp_buf *b, const char *str)
{
	static const char hex[] = "0123456789abcdef";
	const unsigned char *s = (const unsigned char *)str, *run = s;

	LIT(b, "\"");
	for (;;) {
		unsigned char c, a;
		int n = 0;

		while (!escape[*s])
			s++;
		c = *s;
		a = escape[c];
		if (a == 1) {
			n = rp_utf8_len(s);
			if (n > 0) {
				s += n;
				continue;
			}
		}
		rp_buf_put(b, (const char *)run, (size_t)(s - run));
		if (!c)
			break;
		if (a == 1) {
			LIT(b, "\xef\xbf\xbd");
			s += -n;
		} else if (a == 'u') {
			char u[6] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] };

			rp_buf_put(b, u, 6);
			s++;
		} else {
			char u[2] = { '\\', (char)a };

			rp_buf_put(b, u, 2);
			s++;
		}
		run = s;
	}
	LIT(b, "\"");
}

void rp_put_string_or_null(struct rp_buf *b, const char *s)
{
	if (s && *s)
		put_string(b, s);
	else
		LIT(b, "null");
}

void rp_put_bool(struct rp_buf *b, bool v)
{
	if (v)
		LIT(b, "true");
	else
		LIT(b, "false");
}

void rp_put_pid(struct rp_buf *b, uint32_t pid)
{
	if (pid)
		rp_buf_u64(b, pid);
	else
		LIT(b, "null");
}

/* RFC 3339, UTC, nine digits. Civil date from days: proleptic Gregorian, as
 * gmtime_r, without its locks and locale. */
void rp_put_time(struct rp_buf *b, int64_t ns)
{
	int64_t s = ns / NS_PER_S, frac = ns % NS_PER_S, day, rem, era, doe, yoe, doy, mp, y, m, d;
	char t[32];
	size_t i = 0;

	if (frac < 0) {
		frac += NS_PER_S;
		s--;
	}
	day = s / 86400;
	rem = s % 86400;
	if (rem < 0) {
		rem += 86400;
		day--;
	}
	day += 719468; /* days from 0000-03-01 to 1970-01-01 */
	era = (day >= 0 ? day : day - 146096) / 146097;
	doe = day - era * 146097;
	yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	mp = (5 * doy + 2) / 153;
	d = doy - (153 * mp + 2) / 5 + 1;
	m = mp < 10 ? mp + 3 : mp - 9;
	y = yoe + era * 400 + (m <= 2);

#define D(v, div) t[i++] = (char)('0' + (v) / (div) % 10)
	t[i++] = '"';
	D(y, 1000);
	D(y, 100);
	D(y, 10);
	D(y, 1);
	t[i++] = '-';
	D(m, 10);
	D(m, 1);
	t[i++] = '-';
	D(d, 10);
	D(d, 1);
	t[i++] = 'T';
	D(rem / 3600, 10);
	D(rem / 3600, 1);
	t[i++] = ':';
	D(rem / 60 % 60, 10);
	D(rem / 60 % 60, 1);
	t[i++] = ':';
	D(rem % 60, 10);
	D(rem % 60, 1);
	t[i++] = '.';
	for (int64_t p = NS_PER_S / 10; p; p /= 10)
		D(frac, p);
	t[i++] = 'Z';
	t[i++] = '"';
#undef D
	rp_buf_put(b, t, i);
}

/* 0 is no port: it was dropped (--anonymous). */
static void put_port(struct rp_buf *b, uint16_t port)
{
	LIT(b, "\",\"port\":");
	if (port)
		rp_buf_u64(b, port);
	else
		LIT(b, "null");
}

static void put_peer(struct rp_buf *b, uint16_t family, const uint8_t *addr, uint16_t port)
{
	char t[INET6_ADDRSTRLEN];

	if (family == AF_INET) {
		LIT(b, "{\"address\":\"");
		for (int i = 0; i < 4; i++) {
			if (i)
				LIT(b, ".");
			rp_buf_u64(b, addr[i]);
		}
		put_port(b, port);
	} else if (family == AF_INET6 && inet_ntop(AF_INET6, addr, t, sizeof(t))) {
		LIT(b, "{\"address\":\"");
		rp_buf_str(b, t);
		put_port(b, port);
	} else { /* a Unix socket has neither, an unknown peer has none we know */
		LIT(b, "{\"address\":null,\"port\":null");
	}
	LIT(b, "}");
}

/* ---- the record ---- */

static const struct field_text {
	const char *key; /* "name": */
	uint8_t key_len;
	const char *dotted; /* "group.name":" */
	uint8_t dotted_len;
	enum rp_field_type type;
} fields[RP_FIELD_COUNT] = {
#define X(id, g, n, t)                                                                    \
	[RP_FIELD_##id] = { "\"" n "\":", sizeof("\"" n "\":") - 1, "\"" g "." n "\":\"", \
			    sizeof("\"" g "." n "\":\"") - 1, RP_T_##t },
	RP_FIELDS(X)
#undef X
};

/* Groups are runs in RP_FIELDS; a group without a gap collapses in `missing`. */
static const struct {
	const char *name;
	enum rp_field first, last;
} groups[] = {
	{ "tokens", RP_FIELD_TOK_PROMPT, RP_FIELD_TOK_REASONING },
	{ "metrics", RP_FIELD_M_TTFT, RP_FIELD_M_TPS },
	{ "server_timing", RP_FIELD_S_FIRST_BYTE, RP_FIELD_S_KEEPALIVES },
	{ "phases", RP_FIELD_P_RECEIVE, RP_FIELD_P_FLUSH },
	{ "frontend", RP_FIELD_FE_BEFORE, RP_FIELD_FE_LAST },
	{ "network", RP_FIELD_NET_RTT, RP_FIELD_NET_LAST_ACK },
	{ "client_estimate", RP_FIELD_C_TTFT, RP_FIELD_C_DURATION },
	{ "scheduler", RP_FIELD_SCH_PREEMPTIONS, RP_FIELD_SCH_REQUEUE },
};

static void put_field(struct rp_buf *b, const struct rp_record *r, enum rp_field f)
{
	const struct rp_value *v = &r->v[f];

	rp_buf_put(b, fields[f].key, fields[f].key_len);
	if (!v->known) {
		LIT(b, "null");
		return;
	}
	switch (fields[f].type) {
	case RP_T_NS:
		rp_buf_fixed(b, v->i, 1000000);
		break;
	case RP_T_US:
		rp_buf_fixed(b, v->i, 1000);
		break;
	case RP_T_N:
		rp_put_i64(b, v->i);
		break;
	case RP_T_MS:
	case RP_T_R:
		rp_buf_double(b, v->d);
		break;
	}
}

static void put_fields(struct rp_buf *b, const struct rp_record *r, enum rp_field first,
		       enum rp_field last)
{
	for (enum rp_field f = first; f <= last; f++) {
		if (f != first)
			LIT(b, ",");
		put_field(b, r, f);
	}
}

static void put_missing(struct rp_buf *b, const struct rp_record *r)
{
	bool any = false;

	LIT(b, "{");
	for (size_t g = 0; g < sizeof(groups) / sizeof(*groups); g++) {
		enum rp_field f, first = groups[g].first, last = groups[g].last;

		for (f = first; f <= last; f++)
			if (r->v[f].known || r->v[f].why != r->v[first].why)
				break;
		if (f > last) {
			if (any)
				LIT(b, ",");
			any = true;
			LIT(b, "\"");
			rp_buf_str(b, groups[g].name);
			LIT(b, "\":\"");
			rp_buf_str(b, rp_reason_names[r->v[first].why]);
			LIT(b, "\"");
			continue;
		}
		for (f = first; f <= last; f++) {
			if (r->v[f].known)
				continue;
			if (any)
				LIT(b, ",");
			any = true;
			rp_buf_put(b, fields[f].dotted, fields[f].dotted_len);
			rp_buf_str(b, rp_reason_names[r->v[f].why]);
			LIT(b, "\"");
		}
	}
	LIT(b, "}");
}

static void put_flags(struct rp_buf *b, uint32_t flags)
{
	bool any = false;

	LIT(b, "[");
	for (unsigned i = 0; i < RP_FLAG_COUNT; i++) {
		if (!(flags & 1u << i))
			continue;
		if (any)
			LIT(b, ",");
		any = true;
		LIT(b, "\"");
		rp_buf_str(b, rp_flag_names[i]);
		LIT(b, "\"");
	}
	LIT(b, "]");
}

struct gap_ctx {
	struct rp_buf *b;
	bool any;
};

static void put_gap(void *ctx, int64_t ns)
{
	struct gap_ctx *c = ctx;

	if (c->any)
		LIT(c->b, ",");
	c->any = true;
	rp_buf_fixed(c->b, ns, 1000000);
}

static void put_gaps(struct rp_buf *b, const struct rp_mark *m, size_t n, bool per_token)
{
	struct gap_ctx c = { .b = b };

	LIT(b, "[");
	rp_gaps(m, n, per_token, put_gap, &c);
	LIT(b, "]");
}

static const char *const itl_sources[] = {
	[RP_ITL_NONE] = NULL,
	[RP_ITL_ENGINE] = "engine",
	[RP_ITL_SERVER] = "server",
};

static void put_itl(struct rp_buf *b, const struct rp_record *r)
{
	LIT(b, ",\"itl_ms\":");
	if (r->itl_source == RP_ITL_ENGINE)
		put_gaps(b, r->eng_marks, r->n_eng_marks, true);
	else if (r->itl_source == RP_ITL_SERVER)
		put_gaps(b, r->chunk_marks, r->n_chunk_marks, true);
	else
		LIT(b, "null");
	LIT(b, ",\"icl_ms\":");
	if (r->v[RP_FIELD_S_CHUNKS].known)
		put_gaps(b, r->chunk_marks, r->n_chunk_marks, false);
	else
		LIT(b, "null");
	LIT(b, ",\"itl_source\":");
	rp_put_string_or_null(b, itl_sources[r->itl_source]);
}

static const char *const token_sources[] = {
	[RP_TOKENS_NONE] = NULL,
	[RP_TOKENS_ENGINE] = "engine",
	[RP_TOKENS_USAGE] = "usage",
	[RP_TOKENS_CHUNKS] = "chunks",
};

struct member {
	struct rp_buf *b;
	const char *group;
	bool any;
};

/* "group":{"name": -- the group begins with its first member that is known. */
static void put_name(struct member *m, const char *name)
{
	LIT(m->b, ",\"");
	if (!m->any) {
		rp_buf_str(m->b, m->group);
		LIT(m->b, "\":{\"");
	}
	m->any = true;
	rp_buf_str(m->b, name);
	LIT(m->b, "\":");
}

static void put_told_n(struct member *m, const char *name, int64_t v)
{
	if (v == RP_NONE)
		return;
	put_name(m, name);
	rp_put_i64(m->b, v);
}

static void put_told_d(struct member *m, const char *name, double v)
{
	if (!isfinite(v))
		return;
	put_name(m, name);
	rp_buf_double(m->b, v);
}

static void put_end(const struct member *m)
{
	if (m->any)
		LIT(m->b, "}");
}

/* Only there when a figure is an estimate: which, and how it was come by. */
static void put_estimated(struct rp_buf *b, const struct rp_record *r)
{
	const struct {
		const char *name;
		enum rp_estimate how;
	} all[] = { { "queue_time", r->estimate }, { "preemptions", r->preempt_estimate } };
	bool any = false;

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		if (all[i].how == RP_EST_NONE)
			continue;
		rp_buf_str(b, any ? ",\"" : ",\"estimated\":{\"");
		rp_buf_str(b, all[i].name);
		LIT(b, "\":\"");
		rp_buf_str(b, rp_estimate_names[all[i].how]);
		LIT(b, "\"");
		any = true;
	}
	if (any)
		LIT(b, "}");
}

/* What the bodies say, and nothing else: a member that is not there was not said. */
static void put_bodies(struct rp_buf *b, const struct rp_record *r)
{
	struct member q = { b, "request", false }, u = { b, "usage", false },
		      s = { b, "speculation", false }, v = { b, "video", false };

	put_told_n(&q, "max_tokens", r->max_tokens);
	put_told_n(&q, "images", r->images);
	put_told_n(&q, "audios", r->audios);
	put_told_n(&q, "videos", r->videos);
	put_end(&q);
	for (int i = 0; i < RP_USAGE_COUNT; i++)
		put_told_n(&u, rp_usage_names[i], r->usage[i]);
	put_told_d(&u, "prompt_audio_seconds", r->prompt_audio_seconds);
	put_end(&u);
	put_told_n(&s, "steps", r->spec_steps);
	put_told_n(&s, "draft_tokens", r->spec_draft_tokens);
	put_told_n(&s, "accepted_tokens", r->spec_accepted_tokens);
	put_end(&s);
	put_told_d(&v, "inference_s", r->video_inference_s);
	put_told_d(&v, "peak_memory_mb", r->video_peak_memory_mb);
	put_end(&v);
}

void rp_put_record(struct rp_buf *b, const struct rp_record *r)
{
	LIT(b, "{\"schema\":\"reqprobe.request/1\",\"id\":");
	rp_put_string_or_null(b, r->id);
	LIT(b, ",\"request_ids\":[");
	for (unsigned i = 0; i < r->n_request_ids && i < RP_REQUEST_IDS; i++) {
		if (i)
			LIT(b, ",");
		put_string(b, r->request_ids[i]);
	}
	LIT(b, "],\"x_request_id\":");
	rp_put_string_or_null(b, r->x_request_id);

	LIT(b, ",\"engine\":{\"name\":");
	rp_put_string_or_null(b, r->engine_name);
	LIT(b, ",\"version\":");
	rp_put_string_or_null(b, r->engine_version);
	LIT(b, ",\"pid\":");
	rp_put_pid(b, r->pid);
	LIT(b, ",\"core_pid\":");
	rp_put_pid(b, r->core_pid);
	LIT(b, ",\"index\":");
	rp_put_i64(b, r->engine_index);

	LIT(b, "},\"model\":");
	rp_put_string_or_null(b, r->model);
	LIT(b, ",\"operation\":\"");
	rp_buf_str(b, rp_operation_names[r->operation]);
	LIT(b, "\",\"method\":");
	rp_put_string_or_null(b, r->method);
	LIT(b, ",\"path\":");
	rp_put_string_or_null(b, r->path);
	LIT(b, ",\"status\":");
	if (r->status > 0)
		rp_put_i64(b, r->status);
	else
		LIT(b, "null");
	LIT(b, ",\"stream\":");
	if (r->stream < 0)
		LIT(b, "null");
	else
		rp_put_bool(b, r->stream);
	LIT(b, ",\"choices\":");
	rp_put_i64(b, r->choices);

	LIT(b, ",\"client\":");
	put_peer(b, r->family, r->raddr, r->rport);
	LIT(b, ",\"server\":");
	put_peer(b, r->family, r->laddr, r->lport);
	LIT(b, ",\"connection\":{\"reused\":");
	rp_put_bool(b, r->conn_reused);
	LIT(b, ",\"tls\":false,\"protocol\":\"http/1.1\"},\"start\":");
	if (r->t_start == RP_NONE)
		LIT(b, "null");
	else
		rp_put_time(b, r->t_start + r->wall_offset);

	LIT(b, ",\"end\":\"");
	rp_buf_str(b, rp_end_names[r->end]);
	LIT(b, "\",\"finish_reason\":");
	rp_put_string_or_null(b, r->finish_reason);
	LIT(b, ",\"error\":");
	if (r->has_error) {
		LIT(b, "{\"type\":");
		rp_put_string_or_null(b, r->error_type);
		LIT(b, ",\"code\":");
		rp_put_string_or_null(b, r->error_code);
		LIT(b, ",\"where\":");
		rp_put_string_or_null(b, r->error_where);
		LIT(b, ",\"context_overflow\":");
		rp_put_bool(b, r->context_overflow);
		LIT(b, "}");
	} else {
		LIT(b, "null");
	}

	LIT(b, ",\"tokens\":{");
	put_fields(b, r, RP_FIELD_TOK_PROMPT, RP_FIELD_TOK_REASONING);
	LIT(b, ",\"source\":");
	rp_put_string_or_null(b, token_sources[r->token_source]);
	LIT(b, "}");
	if (r->choices > 1 && r->n_choice_tokens) {
		LIT(b, ",\"choice_tokens\":[");
		for (unsigned i = 0; i < r->n_choice_tokens && i < RP_CHOICES_TOLD; i++) {
			if (i)
				LIT(b, ",");
			rp_buf_u64(b, r->choice_tokens[i]);
		}
		LIT(b, "]");
	}
	LIT(b, ",\"metrics\":{");
	put_fields(b, r, RP_FIELD_M_TTFT, RP_FIELD_M_TPS);
	LIT(b, "},\"server_timing\":{");
	put_fields(b, r, RP_FIELD_S_FIRST_BYTE, RP_FIELD_S_KEEPALIVES);
	LIT(b, "},\"phases\":{");
	put_fields(b, r, RP_FIELD_P_RECEIVE, RP_FIELD_P_FLUSH);
	LIT(b, "},\"frontend\":{");
	put_fields(b, r, RP_FIELD_FE_BEFORE, RP_FIELD_FE_LAST);
	LIT(b, "},\"network\":{");
	put_field(b, r, RP_FIELD_NET_RTT);
	LIT(b, ",\"source\":");
	rp_put_string_or_null(b, r->rtt_source == RP_RTTSRC_HANDSHAKE ? "handshake" : NULL);
	LIT(b, ",");
	put_fields(b, r, RP_FIELD_NET_AGE, RP_FIELD_NET_LAST_ACK);
	LIT(b, "},\"client_estimate\":{");
	put_fields(b, r, RP_FIELD_C_TTFT, RP_FIELD_C_DURATION);
	LIT(b, "},\"scheduler\":{");
	put_fields(b, r, RP_FIELD_SCH_PREEMPTIONS, RP_FIELD_SCH_REQUEUE);
	LIT(b, "},\"bytes\":{\"request\":");
	rp_buf_u64(b, r->bytes_rx);
	LIT(b, ",\"response\":");
	rp_buf_u64(b, r->bytes_tx);
	LIT(b, ",\"request_body\":");
	rp_buf_u64(b, r->body_rx);
	LIT(b, ",\"response_body\":");
	rp_buf_u64(b, r->body_tx);
	LIT(b, "},\"calls\":{\"request\":");
	rp_buf_u64(b, r->calls_rx);
	LIT(b, ",\"response\":");
	rp_buf_u64(b, r->calls_tx);
	LIT(b, "}");
	put_bodies(b, r);
	put_estimated(b, r);
	LIT(b, ",\"missing\":");
	put_missing(b, r);
	LIT(b, ",\"flags\":");
	put_flags(b, r->flags);
	if (r->itl_wanted)
		put_itl(b, r);
	LIT(b, "}");
}

/* ---- the summary ---- */

static void put_counts(struct rp_buf *b, const char *key, const char *const *names,
		       const uint64_t *v, size_t n)
{
	LIT(b, ",\"");
	rp_buf_str(b, key);
	LIT(b, "\":{");
	for (size_t i = 0; i < n; i++) {
		if (i)
			LIT(b, ",");
		LIT(b, "\"");
		rp_buf_str(b, names[i]);
		LIT(b, "\":");
		rp_buf_u64(b, v[i]);
	}
	LIT(b, "}");
}

static void put_u64(struct rp_buf *b, const char *key, uint64_t v)
{
	LIT(b, ",\"");
	rp_buf_str(b, key);
	LIT(b, "\":");
	rp_buf_u64(b, v);
}

const char *const rp_class_names[RP_CLASS_COUNT] = {
	[RP_CLASS_DATA] = "data",
	[RP_CLASS_CONN] = "conn",
	[RP_CLASS_HOOK] = "hook",
	[RP_CLASS_PROC] = "proc",
};

const char *const rp_map_names[RP_MAP_COUNT] = {
	[RP_MAP_CONNS] = "conns",
	[RP_MAP_THREADS] = "threads",
	[RP_MAP_PROCS] = "procs",
	[RP_MAP_LISTENERS] = "listeners",
};

static void put_told(struct rp_buf *b, const char *key, bool told, uint64_t v)
{
	if (told) {
		put_u64(b, key, v);
		return;
	}
	LIT(b, ",\"");
	rp_buf_str(b, key);
	LIT(b, "\":null");
}

/* Totals only: a gauge of the last message says nothing of the run. */
static void put_core(struct rp_buf *b, const struct rp_core *c)
{
	LIT(b, "{\"core_pid\":");
	rp_put_pid(b, c->pid);
	LIT(b, ",\"index\":");
	rp_put_i64(b, c->index);
	put_u64(b, "steps", c->steps);
	put_u64(b, "requests", c->outputs);
	put_u64(b, "tokens", c->tokens);
	put_told(b, "preemptions", rp_core_preemptions(c), c->preemptions);
	put_told(b, "prefix_cache_queries", rp_core_prefix(c), c->prefix_queries);
	put_told(b, "prefix_cache_hits", rp_core_prefix(c), c->prefix_hits);
	put_told(b, "spec_drafts", c->spec, c->spec_drafts);
	put_told(b, "spec_draft_tokens", c->spec, c->spec_draft_tokens);
	put_told(b, "spec_accepted_tokens", c->spec, c->spec_accepted_tokens);
	if (!c->log_stats && rp_core_preemptions(c))
		LIT(b, ",\"estimated\":{\"preemptions\":\"steps\"}");
	LIT(b, "}");
}

/* A function may have several hooks: one for each symbol that it goes by. */
static void put_hooks(struct rp_buf *b, const struct rp_stats *s, const struct rp_engine *e)
{
	size_t n = !e ? 0 : e->n_hooks < RP_MAX_HOOKS ? e->n_hooks : RP_MAX_HOOKS;

	for (size_t h = 0; h < n; h++) {
		const char *name = e->hooks[h].function;
		uint64_t hits = 0;
		size_t first = 0;

		while (strcmp(e->hooks[first].function, name) != 0)
			first++;
		if (first < h)
			continue;
		for (size_t k = h; k < n; k++)
			hits += strcmp(e->hooks[k].function, name) ? 0 : s->hook_hits[k];
		if (h)
			LIT(b, ",");
		LIT(b, "{\"function\":");
		put_string(b, name);
		put_u64(b, "hits", hits);
		LIT(b, "}");
	}
}

static void put_summary(struct rp_buf *b, const struct rp_stats *s, const struct rp_summary_info *i,
			uint64_t failed)
{
	static const char *const limit_names[] = { "conns", "requests", "tasks", "memory",
						   "marks", "cores",	"ids" };
	const uint64_t limits[] = { s->limit_conns,  s->limit_requests, s->limit_tasks,
				    s->limit_memory, s->limit_marks,	s->limit_cores,
				    s->limit_ids };
	static const char *const message_names[] = { "decoded", "cut", "bad", "repeated" };
	const uint64_t messages[] = { s->messages, s->messages_cut, s->messages_bad,
				      s->messages_repeated };
	static const char *const unobserved_names[] = { "tls", "http2", "other", "io_uring" };
	const uint64_t unobserved[] = { s->unobserved_tls, s->unobserved_http2, s->unobserved_other,
					s->unobserved_io_uring };
	static const char *const bytes_names[] = { "request", "response", "lost", "cut" };
	const uint64_t bytes[] = { s->bytes_rx, s->bytes_tx, s->bytes_lost, s->bytes_cut };
	static const char *const token_names[] = { "prompt", "completion" };
	const uint64_t tokens[] = { s->tokens_prompt, s->tokens_completion };
	static const char *const hs_names[] = { "measured", "retransmitted", "no_sample" };
	const uint64_t hs[] = { s->handshakes, s->handshakes_untrusted[RP_RTT_RETRANS],
				s->handshakes_untrusted[RP_RTT_NO_SAMPLE] };

	LIT(b, "{\"schema\":\"reqprobe.summary/1\",\"reqprobe\":\"" RP_VERSION "\",\"host\":");
	rp_put_string_or_null(b, i->host);
	LIT(b, ",\"engine\":{\"name\":");
	rp_put_string_or_null(b, i->engine);
	LIT(b, ",\"version\":");
	rp_put_string_or_null(b, i->engine_version);
	LIT(b, ",\"pid\":");
	rp_put_pid(b, i->pid);
	LIT(b, "},\"start\":");
	rp_put_time(b, i->started_wall);
	LIT(b, ",\"stop\":");
	rp_put_time(b, i->stopped_wall);
	LIT(b, ",\"clock_offset_ns\":");
	rp_put_i64(b, i->wall_offset);

	put_u64(b, "started", s->started);
	put_counts(b, "ends", rp_end_names, s->ends, RP_END_COUNT);
	put_u64(b, "in_flight", s->in_flight);
	put_u64(b, "other_paths", s->other_paths);
	put_u64(b, "proxied", s->proxied);
	put_u64(b, "not_joined", s->not_joined);
	put_u64(b, "tasks_unclaimed", s->tasks_unclaimed);
	put_counts(b, "messages", message_names, messages, 4);
	put_counts(b, "tokens", token_names, tokens, 2);
	put_counts(b, "bytes", bytes_names, bytes, 4);
	put_counts(b, "events_seen", rp_class_names, s->seen, RP_CLASS_COUNT);
	put_counts(b, "events_lost", rp_class_names, s->lost, RP_CLASS_COUNT);
	put_counts(b, "map_full", rp_map_names, s->map_full, RP_MAP_COUNT);
	put_counts(b, "limits", limit_names, limits, 7);
	put_u64(b, "invalid_order", s->invalid_order);
	put_u64(b, "parse_errors", s->parse_errors);
	put_u64(b, "records_failed", failed);
	put_u64(b, "connections", s->connections);
	put_counts(b, "unobserved_connections", unobserved_names, unobserved, 4);
	put_counts(b, "handshakes", hs_names, hs, 3);
	LIT(b, ",\"cores\":[");
	for (unsigned k = 0; k < s->n_cores && k < RP_MAX_CORES; k++) {
		if (k)
			LIT(b, ",");
		put_core(b, &s->cores[k]);
	}
	LIT(b, "],\"hooks\":[");
	put_hooks(b, s, i->table);
	LIT(b, "]}");
}

char *rp_buf_own(struct rp_buf *b, size_t *len)
{
	rp_buf_put(b, "", 1);
	if (b->oom) {
		free(b->p);
		return NULL;
	}
	*len = b->n - 1;
	return b->p;
}

char *rp_record_json(const struct rp_record *r, size_t *len)
{
	struct rp_buf b = { 0 };

	rp_put_record(&b, r);
	return rp_buf_own(&b, len);
}

char *rp_summary_json(const struct rp_stats *s, const struct rp_summary_info *i, uint64_t failed,
		      size_t *len)
{
	struct rp_buf b = { 0 };

	put_summary(&b, s, i, failed);
	return rp_buf_own(&b, len);
}

/* ---- the file ---- */

#define FLUSH_AT (256 * 1024)
#define PENDING_MAX (2 * 1024 * 1024) /* behind a pipe that nobody reads */

struct rp_jsonl {
	int fd;
	char *path;
	bool to_stdout, regular;
	bool never_wait;
	enum rp_outlet_how how; /* fd is written to */
	bool torn;		/* buf starts with the rest of a line partly written */
	bool closing;		/* the last line of buf is the summary: no record */
	struct rp_buf buf;
	uint64_t failed;
};

/* An earlier writer may have died inside a line: ours must not join it. */
static bool ends_in_line(const char *path, off_t size)
{
	char c = '\n';
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	if (pread(fd, &c, 1, size - 1) != 1)
		c = '\n';
	close(fd);
	return c != '\n';
}

static int open_path(const char *path, bool *to_stdout, bool *regular, bool *need_newline,
		     char *err, size_t errlen)
{
	struct stat st;
	int fd;

	*to_stdout = !strcmp(path, "-");
	if (*to_stdout)
		fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
	else
		fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
	if (fd < 0) {
		int e = errno;

		snprintf(err, errlen, "can't open %s: %s", *to_stdout ? "standard output" : path,
			 strerror(e));
		return -e;
	}
	*regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
	*need_newline = !*to_stdout && *regular && st.st_size > 0 && ends_in_line(path, st.st_size);
	return fd;
}

int rp_jsonl_open(const char *path, struct rp_jsonl **out, char *err, size_t errlen)
{
	struct rp_jsonl *j = calloc(1, sizeof(*j));
	bool need_newline = false;

	*out = NULL;
	if (!j || !(j->path = strdup(path)) || !rp_buf_grow(&j->buf, FLUSH_AT + 64 * 1024)) {
		snprintf(err, errlen, "no memory for %s", path);
		if (j)
			free(j->path);
		free(j);
		return -ENOMEM;
	}
	j->fd = open_path(path, &j->to_stdout, &j->regular, &need_newline, err, errlen);
	if (j->fd < 0) {
		int r = j->fd;

		free(j->buf.p);
		free(j->path);
		free(j);
		return r;
	}
	signal(SIGXFSZ, SIG_IGN);
	if (need_newline) {
		LIT(&j->buf, "\n");
		j->torn = true; /* no record of ours: not counted when it fails */
	}
	*out = j;
	return 0;
}

static uint64_t lines(const char *p, size_t n)
{
	uint64_t k = 0;

	for (const char *e = p + n; p < e && (p = memchr(p, '\n', (size_t)(e - p))); p++)
		k++;
	return k;
}

/*
 * The write failed with `done` bytes out, the last `part` of them of a line that
 * is not whole. Cut that off again if the file is ours alone and regular.
 */
static bool cut_back(struct rp_jsonl *j, size_t part)
{
	off_t pos;
	struct stat st;

	if (!part)
		return true;
	if (!j->regular)
		return false;
	pos = lseek(j->fd, 0, SEEK_CUR);
	/* somebody else appended meanwhile: theirs would be cut */
	if (pos < (off_t)part || fstat(j->fd, &st) < 0 || st.st_size != pos)
		return false;
	if (ftruncate(j->fd, pos - (off_t)part) < 0)
		return false;
	/* without O_APPEND (stdout) the position would leave a hole */
	return lseek(j->fd, pos - (off_t)part, SEEK_SET) >= 0;
}

/* All lines from there on are lost. */
static void give_up(struct rp_jsonl *j, size_t from)
{
	uint64_t k = lines(j->buf.p + from, j->buf.n - from);

	j->failed += k && j->closing ? k - 1 : k;
	j->buf.n = from;
}

int rp_jsonl_flush(struct rp_jsonl *j)
{
	const struct rp_outlet to = { .fd = j->fd, .how = j->how };
	struct rp_buf *b = &j->buf;
	size_t done = 0, whole = 0, rest;
	int err = 0;

	while (done < b->n) {
		ssize_t w = rp_outlet_write(&to, b->p + done, b->n - done);

		if (w > 0) {
			done += (size_t)w;
			continue;
		}
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0 && errno == EAGAIN) { /* or shared with somebody who set it so */
			struct pollfd p = { .fd = j->fd, .events = POLLOUT };

			if (!j->never_wait && poll(&p, 1, 200) > 0)
				continue;
			err = -EAGAIN;
			break;
		}
		err = w < 0 ? -errno : -EIO;
		break;
	}
	if (!err) {
		b->n = 0;
		j->torn = false;
		return 0;
	}
	if (done) {
		char *nl = memrchr(b->p, '\n', done);

		whole = nl ? (size_t)(nl - b->p) + 1 : 0;
	}
	if (err == -EAGAIN) {
		/* only slow: what waits is kept, rp_jsonl_line() says when it is too much */
		memmove(b->p, b->p + done, b->n - done);
		b->n -= done;
		j->torn = done ? done > whole : j->torn;
		return 0;
	}
	if ((j->torn && !whole) || !cut_back(j, done - whole)) {
		/* The line that is out in part must be finished before another
		 * starts: keep its rest, give up what comes after it. */
		char *nl = memchr(b->p + done, '\n', b->n - done);

		rest = nl ? (size_t)(nl - b->p) + 1 - done : b->n - done;
		give_up(j, done + rest);
		memmove(b->p, b->p + done, rest);
		b->n = rest;
		j->torn = true;
		return err;
	}
	give_up(j, whole);
	b->n = 0;
	j->torn = false;
	return err;
}

/* What was appended since `start` is a line, or must not be there at all. */
static int finish_line(struct rp_jsonl *j, size_t start)
{
	LIT(&j->buf, "\n");
	if (j->buf.oom) {
		j->buf.oom = false;
		j->buf.n = start;
		j->failed++;
		return -ENOMEM;
	}
	return 0;
}

int rp_jsonl_line(struct rp_jsonl *j, rp_put_fn put, const void *what)
{
	size_t start = j->buf.n, n;
	int err;

	put(&j->buf, what);
	err = finish_line(j, start);
	if (err || j->buf.n < FLUSH_AT)
		return err;
	n = j->buf.n - start;
	err = rp_jsonl_flush(j);
	if (err || j->buf.n <= PENDING_MAX || j->buf.n <= n)
		return err;
	/* Who reads is slow, and enough waits for him: that stays, this line does not. One
	 * that waits alone may be out in part already. */
	j->buf.n -= n;
	j->failed++;
	return -EAGAIN;
}

static void put_record_fn(struct rp_buf *b, const void *what)
{
	rp_put_record(b, what);
}

int rp_jsonl_record(struct rp_jsonl *j, const struct rp_record *r)
{
	return rp_jsonl_line(j, put_record_fn, r);
}

int rp_jsonl_summary(struct rp_jsonl *j, const struct rp_stats *s, const struct rp_summary_info *i)
{
	size_t start;
	int err;

	rp_jsonl_flush(j); /* so that the count of failed records is final */
	start = j->buf.n;
	put_summary(&j->buf, s, i, j->failed);
	j->closing = true;
	err = finish_line(j, start);
	return err ? err : rp_jsonl_flush(j);
}

void rp_jsonl_never_wait(struct rp_jsonl *j)
{
	int own = -1;

	j->never_wait = true;
	if (!j->regular)
		j->how = rp_outlet_way(j->fd, &own);
	if (own < 0)
		return;
	close(j->fd);
	j->fd = own;
}

int rp_jsonl_end(struct rp_jsonl *j)
{
	int r = 0;

	j->never_wait = false;
	for (int i = 0; i < 50 && j->buf.n && !r; i++) { /* each waits 200 ms */
		size_t before = j->buf.n;

		r = rp_jsonl_flush(j);
		if (j->buf.n < before)
			i = 0;
	}
	if (!j->buf.n)
		return r;
	/* what only ends an earlier writer's line is no record */
	give_up(j, j->torn && *j->buf.p == '\n');
	j->buf.n = 0;
	return r ? r : -EAGAIN;
}

int rp_jsonl_reopen(struct rp_jsonl *j, char *err, size_t errlen)
{
	bool to_stdout, regular, need_newline;
	int fd;

	if (j->to_stdout)
		return 0;
	rp_jsonl_flush(j);
	fd = open_path(j->path, &to_stdout, &regular, &need_newline, err, errlen);
	if (fd < 0)
		return fd; /* the old file goes on */
	close(j->fd);
	j->fd = fd;
	j->regular = regular;
	j->how = RP_OUTLET_PLAIN;
	if (j->never_wait)
		rp_jsonl_never_wait(j);
	/* the rest of a line torn in the old file means nothing in the new one */
	if (j->torn) {
		j->failed++;
		j->buf.n = 0;
		j->torn = false;
	}
	if (need_newline) {
		LIT(&j->buf, "\n");
		j->torn = true;
	}
	return 0;
}

uint64_t rp_jsonl_failed(const struct rp_jsonl *j)
{
	return j->failed;
}

void rp_jsonl_close(struct rp_jsonl *j)
{
	if (!j)
		return;
	/* a slow reader gets two seconds for what is left */
	for (int i = 0; i < 10 && j->buf.n; i++)
		if (rp_jsonl_flush(j))
			break;
	close(j->fd);
	free(j->buf.p);
	free(j->path);
	free(j);
}
