// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "util.h"

#include "protocol/zmtp.h"

#define MAX 300

struct seen {
	struct log l;
	uint64_t ts;	 /* of the last */
	uint8_t body[8]; /* its beginning */
};

static void on_frame(void *ctx, const struct rp_zmtp_frame *f)
{
	struct seen *s = ctx;
	uint32_t sum = 0;

	for (size_t i = 0; i < f->len; i++)
		sum = sum * 31 + f->body[i];
	s->ts = f->ts;
	memset(s->body, 0, sizeof(s->body));
	if (f->len)
		memcpy(s->body, f->body, f->len < 8 ? f->len : 8);
	log_add(&s->l, "%u:%zu/%zu:%08x ", f->flags, f->len, f->total, sum);
}

struct out {
	uint8_t b[8192];
	size_t n;
	size_t start[64]; /* of writes */
	unsigned writes;
};

static void frame(struct out *o, uint8_t flags, size_t len)
{
	o->b[o->n++] = flags | (len > 255 ? RP_ZMTP_LONG : 0);
	if (len > 255)
		for (int i = 7; i >= 0; i--)
			o->b[o->n++] = (uint8_t)((uint64_t)len >> (8 * i));
	else
		o->b[o->n++] = (uint8_t)len;
	for (size_t i = 0; i < len; i++)
		o->b[o->n++] = (uint8_t)(i * 7 + len);
}

static void new_write(struct out *o)
{
	o->start[o->writes++] = o->n;
}

static void greeting(struct out *o)
{
	uint8_t g[64] = {
		0xff, [9] = 0x7f, [10] = 3, [12] = 'N', [13] = 'U', [14] = 'L', [15] = 'L'
	};

	memcpy(o->b + o->n, g, sizeof(g));
	o->n += sizeof(g);
}

static bool is_start(const struct out *o, size_t at)
{
	for (unsigned i = 0; i < o->writes; i++)
		if (o->start[i] == at)
			return true;
	return false;
}

/* from..n in pieces of at most k bytes, all of a write in one event's run */
static void run(struct rp_zmtp *z, const struct out *o, size_t from, size_t to, size_t k,
		struct seen *s)
{
	while (from < to) {
		size_t n = 1;
		bool start = is_start(o, from);
		uint8_t *p;

		while (n < k && from + n < to && !is_start(o, from + n))
			n++;
		p = guard_buf(0, n);
		memcpy(p, o->b + from, n);
		rp_zmtp_feed(z, from, start, p, n, on_frame, s);
		from += n;
	}
}

static void make(struct out *o)
{
	memset(o, 0, sizeof(*o));
	new_write(o);
	greeting(o);
	new_write(o);
	frame(o, RP_ZMTP_COMMAND, 40);
	new_write(o);
	frame(o, RP_ZMTP_MORE, 2);
	frame(o, RP_ZMTP_MORE, 1);
	frame(o, 0, 255);
	frame(o, 0, 0);
	new_write(o);
	frame(o, 0, 256);
	new_write(o);
	frame(o, 0, 1000); /* over the limit of 300 */
	frame(o, 0, 3);
}

static void splits(void **st)
{
	struct out o;
	struct rp_zmtp z;
	char *want = NULL;

	(void)st;
	make(&o);
	for (size_t k = o.n; k; k = k > 40 ? k / 2 : k - 1) {
		struct seen s = { 0 };

		rp_zmtp_init(&z, MAX);
		run(&z, &o, 0, o.n, k, &s);
		assert_int_equal(z.resyncs, 0);
		assert_true(z.cap <= MAX);
		if (k == o.n) {
			want = strdup(log_str(&s.l));
			assert_non_null(strstr(want, "4:40/40:"));
			assert_non_null(strstr(want, "1:2/2:"));
			assert_non_null(strstr(want, "0:255/255:"));
			assert_non_null(strstr(want, "0:0/0:"));
			assert_non_null(strstr(want, "2:256/256:"));
			assert_non_null(strstr(want, "2:300/1000:"));
			assert_non_null(strstr(want, "0:3/3:"));
		}
		same_text("split", &s.l, want);
		rp_zmtp_free(&z);
		free(s.l.s);
	}
	free(want);
}

/* Attached in the middle of a write: from the next one on all is there. */
static void midway(void **st)
{
	struct out o;

	(void)st;
	make(&o);
	for (size_t from = 1; from < o.n; from++) {
		struct seen s = { 0 }, all = { 0 };
		struct rp_zmtp z;
		size_t next = o.n;

		for (unsigned i = 0; i < o.writes; i++)
			if (o.start[i] >= from && o.start[i] < next)
				next = o.start[i];
		rp_zmtp_init(&z, MAX);
		run(&z, &o, from, o.n, 17, &s);
		rp_zmtp_free(&z);
		rp_zmtp_init(&z, MAX);
		run(&z, &o, next, o.n, 17, &all);
		rp_zmtp_free(&z);
		same_text("midway", &s.l, log_str(&all.l));
		free(s.l.s);
		free(all.l.s);
	}
}

/* Any hole: frames that are told whole were whole, and the end is found again. */
static void gaps(void **st)
{
	struct out o;

	(void)st;
	make(&o);
	for (size_t at = 64; at < o.n - 6; at += 3) {
		for (size_t n = 1; at + n <= o.n - 6; n = n * 2 + 1) {
			struct seen s = { 0 };
			struct rp_zmtp z;
			size_t from = 0;

			rp_zmtp_init(&z, MAX);
			run(&z, &o, 0, at, 100, &s);
			rp_zmtp_gap(&z, n, on_frame, &s);
			from = at + n;
			run(&z, &o, from, o.n, 100, &s);
			/* the last frame's write began before or after the hole */
			if (from <= o.start[4] || z.resyncs == 0)
				assert_non_null(strstr(log_str(&s.l), "0:3/3:"));
			rp_zmtp_free(&z);
			free(s.l.s);
		}
	}
}

static void fed(struct rp_zmtp *z, uint64_t ts, bool start, const char *p, size_t n, struct seen *s)
{
	rp_zmtp_feed(z, ts, start, (const uint8_t *)p, n, on_frame, s);
}

/* What was not seen of a frame costs the rest of it, and no more. */
static void holes(void **st)
{
	struct seen s = { 0 };
	struct rp_zmtp z;

	(void)st;
	rp_zmtp_init(&z, MAX);
	/* in a body: what comes behind is not what was kept of it */
	fed(&z, 5, true, "\0\7ab", 4, &s);
	rp_zmtp_gap(&z, 2, on_frame, &s);
	fed(&z, 6, false, "efg", 3, &s);
	assert_non_null(strstr(log_str(&s.l), "0:2/7:"));
	assert_memory_equal(s.body, "ab\0", 3);
	assert_int_equal(s.ts, 5);
	/* up to its end, and a whole one behind it in the same write */
	fed(&z, 7, true, "\0\3a", 3, &s);
	rp_zmtp_gap(&z, 2, on_frame, &s);
	assert_non_null(strstr(log_str(&s.l), "0:1/3:"));
	fed(&z, 8, false, "\0\5hello", 7, &s);
	assert_non_null(strstr(log_str(&s.l), "0:5/5:"));
	assert_memory_equal(s.body, "hello", 5);
	assert_int_equal(s.ts, 8);
	assert_int_equal(z.resyncs, 0);
	/* beyond it, or in a head: up to the next write; once lost it can't be more so */
	for (unsigned i = 0; i < 2; i++) {
		fed(&z, 9, true, "\0\3a", 3 - i * 2, &s);
		rp_zmtp_gap(&z, 3 - i * 2, on_frame, &s);
		rp_zmtp_gap(&z, 1, on_frame, &s);
		assert_int_equal(z.resyncs, i + 1);
		s.l.n = 0;
		fed(&z, 10, false, "\0\1b", 3, &s);
		assert_int_equal(s.l.n, 0);
		fed(&z, 11, true, "\0\1c", 3, &s);
		assert_int_equal(s.body[0], 'c');
	}
	rp_zmtp_free(&z);
	/* in a greeting: no more of it is waited for */
	rp_zmtp_init(&z, MAX);
	fed(&z, 1, true, "\xff\0\0", 3, &s);
	rp_zmtp_gap(&z, 1, on_frame, &s);
	fed(&z, 2, true, "\0\1d", 3, &s);
	assert_int_equal(s.body[0], 'd');
	/* and later there is none */
	rp_zmtp_gap(&z, 1, on_frame, &s);
	fed(&z, 3, true, "\xff\0\1e", 4, &s);
	assert_int_equal(z.resyncs, 3);
	fed(&z, 4, true, "\0\1f", 3, &s);
	assert_int_equal(s.body[0], 'f');
	rp_zmtp_free(&z);
	free(s.l.s);
}

/* What is no ZMTP is given up at once, and does not grow. */
static void nonsense(void **st)
{
	static const char *const no[] = {
		"POST / HTTP/1.1\r\n",
		"\x16\x03\x01",
		"\x05\x10",
		"\x08\x01",
		"\x02\xff\xff\xff\xff\xff\xff\xff\xff",
		"\x02\0\0\0\0\0\0\0\x10",
	};
	static const size_t len[] = { 17, 3, 2, 2, 9, 9 };

	(void)st;
	for (size_t i = 0; i < COUNT_OF(no); i++) {
		struct seen s = { 0 };
		struct rp_zmtp z;

		rp_zmtp_init(&z, MAX);
		rp_zmtp_feed(&z, 1, true, (const uint8_t *)no[i], len[i], on_frame, &s);
		assert_int_equal(z.resyncs, 1);
		assert_int_equal(s.l.n, 0);
		/* the rest of that write is not looked at, the next one is */
		rp_zmtp_feed(&z, 2, false, (const uint8_t *)"\0\1a", 3, on_frame, &s);
		assert_int_equal(s.l.n, 0);
		rp_zmtp_feed(&z, 3, true, (const uint8_t *)"\0\1a", 3, on_frame, &s);
		assert_non_null(strstr(log_str(&s.l), "0:1/1:00000061"));
		rp_zmtp_free(&z);
		free(s.l.s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(splits), cmocka_unit_test(midway),   cmocka_unit_test(gaps),
		cmocka_unit_test(holes),  cmocka_unit_test(nonsense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
