// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "report/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * A cell is 64 bits whatever it holds. Unknown (RP_NONE, and NAN as its bits) sorts
 * out of the range, so it is code 0 and known values are counted from 1. A column is
 * told as the difference from another one where that is smaller: most instants of a
 * request lie close to their neighbour.
 */
enum type { I64, F64, I32, U32, BOOL, WHERE };

static const struct column {
	uint16_t at;
	uint8_t type;
	bool near; /* to the column before it */
} columns[] = {
#define C(m, t)                                        \
	{                                              \
		offsetof(struct rp_facts, m), t, false \
	}
#define D(m, t)                                       \
	{                                             \
		offsetof(struct rp_facts, m), t, true \
	}
	/* server scope: each from the one before */
	C(first_byte, I64),
	D(first_body, I64),
	D(first_event, I64),
	D(ttft, I64),
	D(first_output, I64),
	C(last_token, I64),
	D(last_body, I64),
	D(duration, I64),
	C(receive, I64),
	C(second, I64),
	C(chunks, I64),
	C(keepalives, I64),
	C(first_chunk_tokens, I64),
	C(start_wall, I64),
	/* engine scope */
	C(frontend, I64),
	C(queue, I64),
	C(prefill, I64),
	C(decode, I64),
	C(flush, I64),
	C(after_first, I64),
	C(after_last, I64),
	C(preempted, I64),
	C(requeue, I64),
	C(preemptions, I64),
	C(requeues, I64),
	C(steps, I64),
	/* tokens */
	C(prompt, I64),
	D(usage[RP_USAGE_PROMPT], I64),
	C(completion, I64),
	D(usage[RP_USAGE_COMPLETION], I64),
	C(usage[RP_USAGE_TOTAL], I64),
	C(reasoning, I64),
	D(usage[RP_USAGE_REASONING], I64),
	C(cached, I64),
	D(usage[RP_USAGE_CACHE_READ], I64),
	C(usage[RP_USAGE_CACHE_WRITE], I64),
	C(usage[RP_USAGE_CACHE_MISS], I64),
	C(usage[RP_USAGE_PROMPT_AUDIO], I64),
	C(usage[RP_USAGE_COMPLETION_AUDIO], I64),
	C(usage[RP_USAGE_ACCEPTED], I64),
	C(usage[RP_USAGE_REJECTED], I64),
	C(usage[RP_USAGE_TOOL_USE], I64),
	C(prompt_audio_seconds, F64),
	C(max_tokens, I64),
	C(images, I64),
	C(audios, I64),
	C(videos, I64),
	C(spec_steps, I64),
	C(spec_draft_tokens, I64),
	C(spec_accepted_tokens, I64),
	C(video_inference_s, F64),
	C(video_peak_memory_mb, F64),
	/* network and HTTP */
	C(rtt, I64),
	C(accept_wait, I64),
	C(last_ack, I64),
	C(retransmits, I64),
	C(request_bytes, I64),
	D(request_body, I64),
	C(response_bytes, I64),
	D(response_body, I64),
	C(request_calls, I64),
	C(response_calls, I64),
	/* what it is */
	C(operation, I32),
	C(end, I32),
	C(status, I32),
	C(stream, I32),
	C(choices, I32),
	C(flags, U32),
	C(has_error, BOOL),
	C(context_overflow, BOOL),
	C(reused, BOOL),
	C(error_where, WHERE),
#undef C
#undef D
};
#define N_FACTS (sizeof(columns) / sizeof(*columns))
/* then which set of reasons it is, then the group */
#define WHY N_FACTS
#define GROUP (N_FACTS + 1)
#define N_COLUMNS (N_FACTS + 2)

static const char *const wheres[] = { "", "status", "stream", "engine" };

struct packed {
	uint64_t least;	 /* of the known values, or of their differences */
	uint32_t at;	 /* in the block's bytes */
	uint8_t width;	 /* bits a row; 0: all the same */
	bool delta;	 /* added to the column before */
	bool some, none; /* some are known; some are not: code 0, and least is one less */
	bool raw;	 /* too far apart for all that: as they are */
};

struct block {
	uint32_t rows;
	uint32_t size; /* of bytes */
	struct packed col[N_COLUMNS];
	uint8_t *bytes;
};

struct rp_store {
	struct block *blocks; /* full ones */
	size_t n, cap, size;
	/* the one that is being filled, by columns */
	uint64_t (*cell)[RP_STORE_ROWS]; /* N_COLUMNS */
	uint32_t rows;
	/* sets of reasons: requests of one kind have the same */
	uint8_t (*whys)[RP_FIELD_COUNT];
	uint32_t *why_index; /* 1 + index, a hash table of 2 * RP_STORE_WHYS */
	uint32_t n_whys, last_why;
};

struct rp_store_cursor {
	const struct rp_store *s;
	uint64_t (*out)[RP_STORE_ROWS]; /* one block, by columns */
	struct rp_facts *facts;		/* and by rows */
	const uint8_t *why[RP_STORE_ROWS];
	uint32_t group[RP_STORE_ROWS];
	/* columns of facts that hold one value in all rows, and which */
	uint64_t hold[N_FACTS];
	bool held[N_FACTS];
};

#define UNKNOWN ((uint64_t)RP_NONE)

struct rp_store *rp_store_new(void)
{
	struct rp_store *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->cell = malloc(N_COLUMNS * sizeof(*s->cell));
	s->whys = malloc(RP_STORE_WHYS * sizeof(*s->whys));
	s->why_index = calloc(2 * RP_STORE_WHYS, sizeof(*s->why_index));
	if (!s->cell || !s->whys || !s->why_index) {
		rp_store_free(s);
		return NULL;
	}
	s->size = sizeof(*s) + N_COLUMNS * sizeof(*s->cell) +
		  2 * RP_STORE_WHYS * sizeof(*s->why_index);
	return s;
}

struct rp_store_cursor *rp_store_cursor_new(const struct rp_store *s)
{
	struct rp_store_cursor *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->s = s;
	c->out = malloc(N_COLUMNS * sizeof(*c->out));
	c->facts = malloc(RP_STORE_ROWS * sizeof(*c->facts));
	if (!c->out || !c->facts) {
		rp_store_cursor_free(c);
		return NULL;
	}
	for (unsigned i = 0; i < RP_STORE_ROWS; i++)
		rp_facts_init(&c->facts[i]);
	return c;
}

void rp_store_cursor_free(struct rp_store_cursor *c)
{
	if (!c)
		return;
	free(c->out);
	free(c->facts);
	free(c);
}

static uint64_t get(const struct rp_facts *f, const struct column *c)
{
	const void *p = (const char *)f + c->at;
	const char *where;
	uint64_t v;
	double d;

	switch (c->type) {
	case I64:
		return (uint64_t) * (const int64_t *)p;
	case F64:
		d = *(const double *)p;
		if (d != d)
			return UNKNOWN;
		memcpy(&v, &d, sizeof(v));
		return v;
	case I32:
		return (uint64_t)(int64_t) * (const int *)p;
	case U32:
		return *(const uint32_t *)p;
	case BOOL:
		return *(const bool *)p;
	default:
		where = *(const char *const *)p;
		for (unsigned i = 1; i < sizeof(wheres) / sizeof(*wheres); i++)
			if (!strcmp(where, wheres[i]))
				return i;
		return 0;
	}
}

static void set(struct rp_facts *f, const struct column *c, uint64_t v)
{
	void *p = (char *)f + c->at;

	switch (c->type) {
	case I64:
		*(int64_t *)p = (int64_t)v;
		break;
	case F64:
		if (v == UNKNOWN)
			*(double *)p = __builtin_nan("");
		else
			memcpy(p, &v, sizeof(v));
		break;
	case I32:
		*(int *)p = (int)(int64_t)v;
		break;
	case U32:
		*(uint32_t *)p = (uint32_t)v;
		break;
	case BOOL:
		*(bool *)p = v != 0;
		break;
	default:
		*(const char **)p = wheres[v & 3];
		break;
	}
}

/* The range of the known values; false: none is. As signed numbers. */
struct range {
	int64_t least, most;
	bool any, none; /* known and unknown ones */
};

static struct range range_of(const uint64_t *v, const uint64_t *base, unsigned n)
{
	struct range r = { INT64_MAX, INT64_MIN, false, false };

	for (unsigned i = 0; i < n; i++) {
		int64_t x;

		if (v[i] == UNKNOWN) {
			r.none = true;
			continue;
		}
		x = (int64_t)(base ? v[i] - base[i] : v[i]);
		r.least = x < r.least ? x : r.least;
		r.most = x > r.most ? x : r.most;
		r.any = true;
	}
	return r;
}

/* Can v be told from base? Where it is known base must be, and nothing may wrap. */
static bool fits(const uint64_t *v, const uint64_t *base, unsigned n)
{
	int64_t x;

	for (unsigned i = 0; i < n; i++)
		if (v[i] != UNKNOWN &&
		    (base[i] == UNKNOWN ||
		     __builtin_sub_overflow((int64_t)v[i], (int64_t)base[i], &x)))
			return false;
	return true;
}

/* Bits; 64: no room for a code for unknown, or none that one load would get. */
static unsigned width_of(const struct range *r)
{
	uint64_t span = (uint64_t)r->most - (uint64_t)r->least;

	if (!r->any || (!span && !r->none))
		return 0;
	if (span >= 1ULL << 56)
		return 64;
	return 64 - (unsigned)__builtin_clzll(span + r->none);
}

/* w bits at bit `at` of p, where there is nothing yet. */
static void put_bits(uint8_t *p, size_t at, unsigned w, uint64_t v)
{
	uint64_t x;

	p += at / 8;
	if (w == 64) {
		memcpy(p, &v, sizeof(v));
		return;
	}
	memcpy(&x, p, sizeof(x)); /* little endian, as all that this is built for */
	x |= v << at % 8;
	memcpy(p, &x, sizeof(x));
}

static uint64_t get_bits(const uint8_t *p, size_t at, unsigned w)
{
	uint64_t x;

	memcpy(&x, p + at / 8, sizeof(x));
	return w == 64 ? x : x >> at % 8 & ((1ULL << w) - 1);
}

static int pack(struct rp_store *s)
{
	struct block *b;
	size_t total = 0;
	uint8_t *bytes;

	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 64;
		struct block *more = realloc(s->blocks, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		s->size += (cap - s->cap) * sizeof(*more);
		s->blocks = more;
		s->cap = cap;
	}
	b = &s->blocks[s->n];
	memset(b, 0, sizeof(*b));
	b->rows = s->rows;
	for (unsigned c = 0; c < N_COLUMNS; c++) {
		struct packed *k = &b->col[c];
		struct range r = range_of(s->cell[c], NULL, s->rows), d;
		unsigned w = width_of(&r), wd;

		if (w && c < N_FACTS && columns[c].near &&
		    fits(s->cell[c], s->cell[c - 1], s->rows)) {
			d = range_of(s->cell[c], s->cell[c - 1], s->rows);
			wd = width_of(&d);
			if (wd < w) {
				k->delta = true;
				r = d;
				w = wd;
			}
		}
		k->some = r.any;
		k->none = r.none;
		k->raw = w == 64;
		k->least = (uint64_t)r.least - (w && r.none);
		k->at = (uint32_t)total;
		k->width = (uint8_t)w;
		total += ((size_t)w * s->rows + 7) / 8;
	}
	/* 8: a cell is read with one load */
	bytes = calloc(1, total + 8);
	if (!bytes)
		return -ENOMEM;
	for (unsigned c = 0; c < N_COLUMNS; c++) {
		const struct packed *k = &b->col[c];
		const uint64_t *v = s->cell[c], *base = k->delta ? s->cell[c - 1] : NULL;

		for (unsigned i = 0; k->width && i < s->rows; i++) {
			uint64_t x = v[i];

			if (!k->raw)
				x = x == UNKNOWN ? 0 : x - (base ? base[i] : 0) - k->least;
			put_bits(bytes + k->at, (size_t)i * k->width, k->width, x);
		}
	}
	b->bytes = bytes;
	b->size = (uint32_t)total + 8;
	s->size += b->size;
	s->n++;
	s->rows = 0;
	return 0;
}

static int find_why(struct rp_store *s, const uint8_t *why, uint32_t *set)
{
	uint64_t h = 0, w;
	uint32_t at;

	if (s->n_whys && !memcmp(s->whys[s->last_why], why, RP_FIELD_COUNT)) {
		*set = s->last_why;
		return 0;
	}
	for (size_t i = 0; i < RP_FIELD_COUNT; i += sizeof(w)) {
		w = 0;
		memcpy(&w, why + i,
		       RP_FIELD_COUNT - i < sizeof(w) ? RP_FIELD_COUNT - i : sizeof(w));
		h = (h ^ w) * 0x9e3779b97f4a7c15ULL;
		h ^= h >> 29;
	}
	for (at = (uint32_t)h % (2 * RP_STORE_WHYS); s->why_index[at];
	     at = (at + 1) % (2 * RP_STORE_WHYS)) {
		*set = s->last_why = s->why_index[at] - 1;
		if (!memcmp(s->whys[*set], why, RP_FIELD_COUNT))
			return 0;
	}
	if (s->n_whys == RP_STORE_WHYS)
		return -ENOSPC;
	memcpy(s->whys[s->n_whys], why, RP_FIELD_COUNT);
	s->size += sizeof(*s->whys);
	*set = s->last_why = s->n_whys++;
	s->why_index[at] = s->n_whys;
	return 0;
}

int rp_store_add(struct rp_store *s, const struct rp_facts *f, const uint8_t why[RP_FIELD_COUNT],
		 uint32_t group)
{
	uint32_t set;
	int err = find_why(s, why, &set);

	if (!err && s->rows == RP_STORE_ROWS)
		err = pack(s);
	if (err)
		return err;
	for (unsigned c = 0; c < N_FACTS; c++)
		s->cell[c][s->rows] = get(f, &columns[c]);
	s->cell[WHY][s->rows] = set;
	s->cell[GROUP][s->rows++] = group;
	return 0;
}

size_t rp_store_rows(const struct rp_store *s)
{
	return s->n * RP_STORE_ROWS + s->rows;
}

size_t rp_store_bytes(const struct rp_store *s)
{
	return s->size;
}

size_t rp_store_blocks(const struct rp_store *s)
{
	return s->n + (s->rows > 0);
}

static void unpack(const struct block *b, unsigned c, const uint64_t *base, uint64_t *out)
{
	const struct packed *k = &b->col[c];
	const uint8_t *p = b->bytes + k->at;

	for (unsigned i = 0; i < b->rows; i++) {
		uint64_t x = k->width ? get_bits(p, (size_t)i * k->width, k->width) : 0;

		if (k->raw)
			out[i] = x;
		else if (k->none && !x)
			out[i] = UNKNOWN;
		else
			out[i] = x + k->least + (k->delta ? base[i] : 0);
	}
}

/* One column into the rows of facts, why or group. */
static void spread(struct rp_store_cursor *r, unsigned c, const uint64_t *v, unsigned n)
{
	if (c == GROUP)
		for (unsigned i = 0; i < n; i++)
			r->group[i] = (uint32_t)v[i];
	else if (c == WHY)
		for (unsigned i = 0; i < n; i++)
			r->why[i] = r->s->whys[v[i]];
	else
		for (unsigned i = 0; i < n; i++)
			set(&r->facts[i], &columns[c], v[i]);
}

void rp_store_block(struct rp_store_cursor *r, size_t at, struct rp_store_rows *rows)
{
	const struct rp_store *s = r->s;
	const struct block *b = at < s->n ? &s->blocks[at] : NULL;
	unsigned n = b ? b->rows : s->rows;

	for (unsigned c = 0; c < N_COLUMNS; c++) {
		const struct packed *k = b ? &b->col[c] : NULL;
		bool still = k && c < N_FACTS && !k->width && !k->delta;
		uint64_t one = still && k->some ? k->least : UNKNOWN;

		/* most columns stand still from block to block; who is told from one that
		 * does needs it by columns all the same */
		if (still && r->held[c] && r->hold[c] == one && !b->col[c + 1].delta)
			continue;
		if (b)
			unpack(b, c, r->out[c ? c - 1 : 0], r->out[c]);
		spread(r, c, b ? r->out[c] : s->cell[c], n);
		if (c < N_FACTS) {
			r->held[c] = still && n == RP_STORE_ROWS;
			r->hold[c] = one;
		}
	}
	*rows = (struct rp_store_rows){ r->facts, r->why, r->group, n };
}

void rp_store_drop(struct rp_store *s, size_t b)
{
	if (b >= s->n)
		return;
	free(s->blocks[b].bytes);
	s->size -= s->blocks[b].bytes ? s->blocks[b].size : 0;
	s->blocks[b].bytes = NULL;
	s->blocks[b].rows = 0;
}

void rp_store_free(struct rp_store *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++)
		free(s->blocks[i].bytes);
	free(s->blocks);
	free(s->cell);
	free(s->whys);
	free(s->why_index);
	free(s);
}
