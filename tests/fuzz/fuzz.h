/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * fuzz.h - what the parser fuzzers share. An input is four bytes of choices
 * (printable in the corpus) and then the data.
 */
#ifndef REQPROBE_FUZZ_H
#define REQPROBE_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(c)                                                                \
	do {                                                                    \
		if (!(c)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #c); \
			abort();                                                \
		}                                                               \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One way to feed the data. */
struct way {
	uint8_t cuts;  /* 0: whole; 1: byte by byte; else a seed */
	size_t gap_at; /* SIZE_MAX: none */
	uint64_t gap;
	uint8_t *keep; /* n bytes, or NULL */
};

/* What came out, for comparison. */
struct trace {
	uint8_t *b;
	size_t n, cap;
};

static inline void trace_put(struct trace *t, const void *p, size_t n)
{
	if (t->n + n > t->cap) {
		t->cap = (t->n + n) * 2 + 64;
		t->b = realloc(t->b, t->cap);
	}
	memcpy(t->b + t->n, p, n);
	t->n += n;
}

static inline void trace_num(struct trace *t, uint64_t type, uint64_t a, uint64_t b)
{
	uint64_t v[3] = { type, a, b };

	trace_put(t, v, sizeof(v));
}

/* A span that goes on where the last entry ended is the same span. */
static inline void trace_span(struct trace *t, uint64_t type, uint64_t from, uint64_t to)
{
	uint64_t v[3];

	if (t->n >= sizeof(v)) {
		memcpy(v, t->b + t->n - sizeof(v), sizeof(v));
		if (v[0] == type && v[2] == from) {
			v[2] = to;
			memcpy(t->b + t->n - sizeof(v), v, sizeof(v));
			return;
		}
	}
	trace_num(t, type, from, to);
}

typedef void feed_fn(void *ctx, const uint8_t *in, uint8_t *keep, size_t n);
typedef void gap_fn(void *ctx, uint64_t n);

/* Each piece is a heap block of its own size, so that ASan sees its ends. */
static inline void feed_way(const struct way *w, const uint8_t *data, size_t n, feed_fn *feed,
			    gap_fn *gap, void *ctx)
{
	uint32_t s = w->cuts * 2654435761u | 1;
	size_t i = 0, m;

	for (;;) {
		uint8_t *in, *keep = NULL;

		if (i == w->gap_at)
			gap(ctx, w->gap);
		if (i == n)
			return;
		s ^= s << 13;
		s ^= s >> 17;
		s ^= s << 5;
		m = w->cuts == 0 ? n : w->cuts == 1 ? 1 : 1 + s % (1u << (s >> 8) % 9);
		if (m > n - i)
			m = n - i;
		if (i < w->gap_at && m > w->gap_at - i)
			m = w->gap_at - i;
		in = malloc(m);
		memcpy(in, data + i, m);
		if (w->keep) {
			keep = malloc(m);
			memset(keep, 'x', m);
		}
		feed(ctx, in, keep, m);
		if (keep)
			memcpy(w->keep + i, keep, m);
		free(in);
		free(keep);
		i += m;
	}
}

/*
 * whole == cut == byte by byte, the scrubbed copies are one and the same, and
 * say what the original said. run() fills the trace of one way.
 */
static inline void
compare_ways(const uint8_t *data, size_t n, uint8_t cuts, size_t gap_at, uint64_t gap,
	     void (*run)(const uint8_t *, size_t, const struct way *, struct trace *, void *),
	     void *arg)
{
	struct trace ref = { 0 }, t = { 0 };
	uint8_t *keep[3];
	struct way w = { 0, gap_at, gap, NULL };

	for (int i = 0; i < 3; i++)
		keep[i] = malloc(n + 1);
	run(data, n, &w, &ref, arg);
	for (int i = 0; i < 7; i++) {
		static const uint8_t kind[7] = { 0, 1, 2, 2, 0, 2, 0 };
		const uint8_t *from = i < 4 ? data : keep[0];

		w.cuts = kind[i] == 2 ? cuts : kind[i];
		/* 0-2: scrub; 3: only read; 4, 5: read the copy; 6: scrub it again */
		w.keep = i < 3 ? keep[i] : i == 6 ? keep[1] : NULL;
		t.n = 0;
		run(from, n, &w, &t, arg);
		CHECK(t.n == ref.n && (!t.n || !memcmp(t.b, ref.b, t.n)));
		if (i < 3)
			CHECK(!memcmp(keep[i], keep[0], n));
		if (i == 6)
			CHECK(!memcmp(keep[1], keep[0], n));
	}
	for (size_t i = 0; i < n; i++)
		CHECK(keep[0][i] == data[i] || keep[0][i] == 'x' || keep[0][i] == 'z');
	for (int i = 0; i < 3; i++)
		free(keep[i]);
	free(ref.b);
	free(t.b);
}

#endif
