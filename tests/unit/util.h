/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * util.h - what the parser tests share: input that ends at a guard page, and a
 * driver that feeds one script cut at every point.
 *
 * A script is the input with controls in it: \1, a letter, an optional decimal
 * number, ';'. What a letter means is the test's business (G12; = a gap of 12).
 */
#ifndef REQPROBE_TEST_UTIL_H
#define REQPROBE_TEST_UTIL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

/* Anything that must not leave the machine carries this. */
#define MARKER "SECRETmarker"

#define GUARD_SLOTS 2
#define GUARD_MAX (4u << 20)

/* n bytes that end where an unreadable page begins. */
static inline uint8_t *guard_buf(int slot, size_t n)
{
	static uint8_t *end[GUARD_SLOTS];

	if (!end[slot]) {
		size_t page = sysconf(_SC_PAGESIZE);
		uint8_t *m = mmap(NULL, GUARD_MAX + page, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (m == MAP_FAILED || mprotect(m + GUARD_MAX, page, PROT_NONE))
			abort();
		end[slot] = m + GUARD_MAX;
	}
	if (n > GUARD_MAX)
		abort();
	return end[slot] - n;
}

struct ctl {
	size_t at; /* before this byte of the data */
	char op;
	uint64_t arg;
};

struct script {
	uint8_t *data;
	size_t n;
	struct ctl ctl[32];
	size_t nctl;
};

static inline void script_parse(struct script *s, const char *text, size_t n)
{
	memset(s, 0, sizeof(*s));
	s->data = malloc(n + 1);
	for (size_t i = 0; i < n; i++) {
		struct ctl *c = &s->ctl[s->nctl];

		if (text[i] != 1) {
			s->data[s->n++] = text[i];
			continue;
		}
		assert_true(s->nctl < COUNT_OF(s->ctl));
		c->at = s->n;
		c->op = text[++i];
		while (text[++i] != ';')
			c->arg = c->arg * 10 + (text[i] - '0');
		s->nctl++;
	}
}

static inline void script_free(struct script *s)
{
	free(s->data);
}

/* Growing text. */
struct log {
	char *s;
	size_t n, cap;
};

static inline void log_bytes(struct log *l, const void *p, size_t n)
{
	if (l->n + n + 1 > l->cap) {
		l->cap = (l->n + n + 1) * 2 + 256;
		l->s = realloc(l->s, l->cap);
	}
	memcpy(l->s + l->n, p, n);
	l->n += n;
	l->s[l->n] = 0;
}

__attribute__((format(printf, 2, 3))) static inline void log_add(struct log *l, const char *fmt,
								 ...)
{
	char b[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(b, sizeof(b), fmt, ap);
	va_end(ap);
	log_bytes(l, b, strlen(b));
}

static inline const char *log_str(const struct log *l)
{
	return l->s ? l->s : "";
}

/* What is under test. ctx is reset by open; close may write to the logs. */
struct subject {
	void (*open)(void *ctx);
	void (*feed)(void *ctx, const uint8_t *in, uint8_t *keep, size_t n);
	void (*ctl)(void *ctx, const struct ctl *c);
	void (*close)(void *ctx);
	/* items or facts, without contents: equal for every cut and for replay */
	struct log *(*facts)(void *ctx);
	/* for the table's expectation: with contents */
	struct log *(*story)(void *ctx);
};

/* Run with cuts where cut[i] is set (before byte i). keep: n bytes, or NULL. */
static inline void run_cut(const struct subject *t, void *ctx, const struct script *s,
			   const uint8_t *data, const uint8_t *cut, uint8_t *keep)
{
	size_t i = 0, c = 0, e;

	t->open(ctx);
	for (;;) {
		uint8_t *in, *k = NULL;

		while (c < s->nctl && s->ctl[c].at == i)
			t->ctl(ctx, &s->ctl[c++]);
		if (i == s->n)
			break;
		for (e = i + 1;
		     e < s->n && !(cut && cut[e]) && !(c < s->nctl && s->ctl[c].at == e);)
			e++;
		in = guard_buf(0, e - i);
		memcpy(in, data + i, e - i);
		if (keep) {
			k = guard_buf(1, e - i);
			memset(k, 'x', e - i);
		}
		t->feed(ctx, in, k, e - i);
		if (keep)
			memcpy(keep + i, k, e - i);
		i = e;
	}
	t->close(ctx);
}

static inline void same_text(const char *what, const struct log *a, const char *b)
{
	if (strcmp(log_str(a), b)) {
		print_error("%s:\n  have %s\n  want %s\n", what, log_str(a), b);
		fail();
	}
}

static inline uint32_t rnd(uint32_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 17;
	*s ^= *s << 5;
	return *s;
}

/* Inputs longer than this are cut at a sample of points. */
#define EVERY_POINT_MAX 1500

/*
 * Whole, in two at every point, byte by byte and at random: the same facts and
 * the same scrubbed copy. The copy, whole and cut, gives the same facts again,
 * and has no marker in it. want: the story, or NULL.
 */
static inline void check_script(const struct subject *t, void *ctx, const char *name,
				const char *text, size_t len, const char *want)
{
	struct script s;
	struct log ref = { 0 };
	uint8_t *cut, *keep0, *keep1;
	uint32_t seed = 0x9e3779b9;
	size_t runs, step;

	script_parse(&s, text, len);
	cut = calloc(1, s.n + 1);
	keep0 = calloc(1, s.n + 1);
	keep1 = calloc(1, s.n + 1);

	run_cut(t, ctx, &s, s.data, NULL, NULL);
	log_bytes(&ref, log_str(t->facts(ctx)), t->facts(ctx)->n);
	if (want)
		same_text(name, t->story(ctx), want);
	run_cut(t, ctx, &s, s.data, NULL, keep0);
	same_text(name, t->facts(ctx), log_str(&ref));
	if (memmem(keep0, s.n, MARKER, strlen(MARKER))) {
		print_error("%s: marker survived: %.*s\n", name, (int)s.n, keep0);
		fail();
	}
	/* nothing may be made up, except the filler of a key that must not match */
	for (size_t i = 0; i < s.n; i++)
		if (keep0[i] != s.data[i] && keep0[i] != 'x' && keep0[i] != 'z')
			fail_msg("%s: byte %zu was made up", name, i);

	step = s.n <= EVERY_POINT_MAX ? 1 : s.n / 97;
	runs = s.n / step + 1 + 6;
	for (size_t r = 0; r < runs; r++) {
		size_t at = r * step;

		memset(cut, 0, s.n);
		if (at < s.n)
			cut[at] = 1;
		else if (r == runs - 1)
			memset(cut, 1, s.n);
		else
			for (size_t i = 0; i < s.n; i++)
				cut[i] = rnd(&seed) % (2u << (r % 6)) == 0;
		run_cut(t, ctx, &s, s.data, cut, NULL);
		same_text(name, t->facts(ctx), log_str(&ref));
		if (want)
			same_text(name, t->story(ctx), want);
		run_cut(t, ctx, &s, s.data, cut, keep1);
		same_text(name, t->facts(ctx), log_str(&ref));
		if (memcmp(keep0, keep1, s.n)) {
			print_error("%s: scrubbed copies differ, cut at %zu\n%.*s\n%.*s\n", name,
				    at, (int)s.n, keep0, (int)s.n, keep1);
			fail();
		}
		run_cut(t, ctx, &s, keep0, cut, NULL);
		same_text(name, t->facts(ctx), log_str(&ref));
	}
	run_cut(t, ctx, &s, keep0, NULL, keep1);
	same_text(name, t->facts(ctx), log_str(&ref));
	if (memcmp(keep0, keep1, s.n)) {
		print_error("%s: scrubbing twice differs\n%.*s\n%.*s\n", name, (int)s.n, keep0,
			    (int)s.n, keep1);
		fail();
	}
	free(cut);
	free(keep0);
	free(keep1);
	free(ref.s);
	script_free(&s);
}

#endif
