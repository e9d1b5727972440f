/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A line of a request log; the four bytes of choices are not used. What is let through
 * must be JSON to another parser, too, and its facts must be what a second look has. */
#include "fuzz.h"

#include <errno.h>
#include <jansson.h>

#include "report/compact.h"
#include "report/reader.h"

static void inside(const char *p, size_t n, const struct rp_slice *s)
{
	CHECK(!s->p || (s->p >= p && s->p + s->n <= p + n && s->n));
}

static void check(const char *p, size_t n)
{
	static struct rp_reader_room room;
	struct rp_buf b = { 0 };
	struct rp_facts f;
	struct rp_line l;
	char host[64];
	json_error_t e;
	json_t *v;

	rp_line_summary(p, n, host, sizeof(host));
	if (rp_line_scan(p, n, &l) == -EBADMSG)
		return;
	/* jansson refuses numbers that no double holds, and nothing else */
	v = json_loadb(p, n, JSON_DECODE_INT_AS_REAL, &e);
	CHECK(v || json_error_code(&e) == json_error_numeric_overflow);
	json_decref(v);
	if (rp_line_scan(p, n, &l))
		return;
	for (unsigned i = 0; i < RP_LEAF_COUNT; i++)
		inside(p, n, &l.v[i]);
	inside(p, n, &l.missing);
	for (int i = 0; i < RP_FIELD_COUNT; i++)
		CHECK(l.why[i] < RP_WHY_COUNT);
	rp_facts_of_line(&l, &f, &room);
	CHECK(rp_line_key(&l, 1) == rp_line_key(&l, 1));
	/* a flat row is one line of JSON */
	rp_flat_row(&b, &l, 1);
	CHECK(!b.oom && b.p[b.n - 1] == '\n' && !memchr(b.p, '\n', b.n - 1));
	v = json_loadb(b.p, b.n, JSON_DECODE_INT_AS_REAL, &e);
	CHECK(v || json_error_code(&e) == json_error_numeric_overflow);
	json_decref(v);
	free(b.p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *p;
	size_t n;

	if (size < 4)
		return 0;
	n = size - 4;
	/* a line has no newline inside, and a block of its own size shows its end */
	if (memchr(data + 4, '\n', n))
		return 0;
	p = malloc(n + 1);
	memcpy(p, data + 4, n);
	p[n] = '\n';
	check(p, n);
	free(p);
	return 0;
}
