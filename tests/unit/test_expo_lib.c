// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* lib/pb.c and lib/exphist.c */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/exphist.h"
#include "lib/pb.h"

/* ---- protobuf ---- */

static void wrote(const struct rp_buf *b, const char *want, size_t n)
{
	assert_false(b->oom);
	assert_int_equal(b->n, n);
	assert_memory_equal(b->p, want, n);
}
#define WROTE(b, s) wrote(b, s, sizeof(s) - 1)

/* The examples of protobuf.dev, "Encoding", and edges. */
static void test_pb_values(void **s)
{
	struct rp_buf b = { 0 };

	(void)s;
	rp_pb_u64(&b, 1, 150);
	WROTE(&b, "\x08\x96\x01");
	b.n = 0;
	rp_pb_string(&b, 2, "testing");
	WROTE(&b, "\x12\x07testing");
	b.n = 0;
	rp_pb_u64(&b, 16, UINT64_MAX);
	WROTE(&b, "\x80\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
	b.n = 0;
	rp_pb_u64(&b, 1, 0);
	rp_pb_u64(&b, 1, 127);
	rp_pb_u64(&b, 1, 128);
	WROTE(&b, "\x08\x00\x08\x7f\x08\x80\x01");
	b.n = 0;
	rp_pb_sint(&b, 6, -1);
	rp_pb_sint(&b, 6, 1);
	rp_pb_sint(&b, 6, INT64_MIN);
	WROTE(&b, "\x30\x01\x30\x02\x30\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
	b.n = 0;
	rp_pb_double(&b, 5, 1.0);
	rp_pb_fixed64(&b, 4, 0x0102030405060708);
	WROTE(&b, "\x29\x00\x00\x00\x00\x00\x00\xf0\x3f\x21\x08\x07\x06\x05\x04\x03\x02\x01");
	b.n = 0;
	rp_pb_string(&b, 1, "a\xff\xc3\xa9");
	WROTE(&b, "\x0a\x06"
		  "a\xef\xbf\xbd\xc3\xa9");
	free(b.p);
}

static void test_pb_nesting(void **s)
{
	struct rp_buf b = { 0 };
	size_t outer, inner, packed;
	char big[200];

	(void)s;
	outer = rp_pb_begin(&b, 0);
	inner = rp_pb_begin(&b, 3);
	rp_pb_u64(&b, 1, 150);
	rp_pb_end(&b, inner);
	inner = rp_pb_begin(&b, 4);
	rp_pb_end(&b, inner);
	packed = rp_pb_begin(&b, 13);
	rp_pb_varint(&b, rp_pb_zigzag(-2));
	rp_pb_varint(&b, rp_pb_zigzag(300));
	rp_pb_end(&b, packed);
	rp_pb_end(&b, outer);
	WROTE(&b, "\x0c\x1a\x03\x08\x96\x01\x22\x00\x6a\x03\x03\xd8\x04");

	/* a length of two bytes at both levels */
	b.n = 0;
	memset(big, 'x', sizeof(big));
	outer = rp_pb_begin(&b, 1);
	rp_pb_bytes(&b, 2, big, sizeof(big));
	rp_pb_end(&b, outer);
	assert_int_equal(b.n, 1 + 2 + 1 + 2 + 200);
	assert_memory_equal(b.p, "\x0a\xcb\x01\x12\xc8\x01xx", 8);
	assert_int_equal(b.p[b.n - 1], 'x');
	free(b.p);
}

/* ---- exponential histograms ---- */

static uint64_t total(const struct rp_exphist *h)
{
	uint64_t n = h->zero;

	for (uint32_t i = 0; i < h->n; i++)
		n += h->bucket[i];
	return n;
}

static void sane(const struct rp_exphist *h)
{
	assert_true(h->n <= h->most);
	assert_int_equal(total(h), h->count);
	if (h->n) {
		assert_true(h->bucket[0] > 0);
		assert_true(h->bucket[h->n - 1] > 0);
	}
}

/* (base^i, base^(i+1)]: exact at powers of two, on both sides of every bound. */
static void test_exp_index(void **s)
{
	(void)s;
	for (int scale = -4; scale <= 20; scale++) {
		assert_int_equal(rp_exphist_index(1, scale), -1);
		assert_int_equal(rp_exphist_index(nextafter(1, 2), scale), 0);
		for (int e = -300; e <= 300; e += 7) {
			double v = ldexp(1, e);
			int32_t want = scale >= 0 ? e * (1 << scale) - 1 : (e - 1) >> -scale;

			assert_int_equal(rp_exphist_index(v, scale), want);
			assert_int_equal(rp_exphist_index(nextafter(v, 1e308), scale),
					 scale >= 0 ? want + 1 : e >> -scale);
		}
	}
	/* what the scheme is by its definition */
	for (int scale = 1; scale <= 8; scale++) {
		for (double v = 1e-6; v < 1e4; v *= 1.37) {
			int32_t i = rp_exphist_index(v, scale);
			double low = exp2(ldexp(i, -scale)), high = exp2(ldexp(i + 1, -scale));

			assert_true(v > low * (1 - 1e-12) && v <= high * (1 + 1e-12));
			/* coarser is the same, shifted */
			assert_int_equal(rp_exphist_index(v, scale - 1), i >> 1);
		}
	}
	assert_int_equal(rp_exphist_index(DBL_MIN / 4, 0), rp_exphist_index(DBL_MIN, 0));
}

static void test_exp_bounded(void **s)
{
	struct rp_exphist h;

	(void)s;
	rp_exphist_init(&h, 160);
	rp_exphist_add(&h, 0.25, 3);
	assert_int_equal(h.scale, 20);
	rp_exphist_add(&h, -1, 1);
	rp_exphist_add(&h, NAN, 1);
	rp_exphist_add(&h, INFINITY, 1);
	rp_exphist_add(&h, 5, 0);
	assert_int_equal(h.count, 3);
	rp_exphist_add(&h, 0, 2);
	assert_int_equal(h.zero, 2);
	assert_true(h.min == 0 && h.max == 0.25 && h.sum == 0.75);
	sane(&h);
	/* upwards, downwards, and the whole range of doubles */
	rp_exphist_add(&h, 0.26, 1);
	sane(&h);
	rp_exphist_add(&h, 1e-5, 1);
	sane(&h);
	rp_exphist_add(&h, DBL_MAX, 1);
	sane(&h);
	rp_exphist_add(&h, DBL_MIN, 1);
	sane(&h);
	assert_int_equal(h.count, 9);
	assert_int_equal(h.scale, -4);

	rp_exphist_init(&h, 2);
	for (int e = -1000; e <= 1000; e += 100)
		rp_exphist_add(&h, ldexp(1.5, e), 1);
	sane(&h);
	assert_int_equal(h.count, 21);
	assert_true(h.n == 2 && h.scale == -10);
}

/* In which order, and in how many parts, makes no difference. */
static void test_exp_merge(void **s)
{
	struct rp_exphist all, part[3], sum;

	(void)s;
	srand(5);
	rp_exphist_init(&all, 160);
	for (int i = 0; i < 3; i++)
		rp_exphist_init(&part[i], 160);
	for (int i = 0; i < 3000; i++) {
		/* each part its own range, as servers differ */
		double v = exp2((double)(rand() % 1000) / 100 * (1 + i % 3) - 12);

		rp_exphist_add(&all, v, 1 + i % 2);
		rp_exphist_add(&part[i % 3], v, 1 + i % 2);
	}
	sane(&all);
	rp_exphist_init(&sum, 160);
	for (int i = 2; i >= 0; i--)
		rp_exphist_merge(&sum, &part[i]);
	sane(&sum);
	assert_int_equal(sum.count, all.count);
	assert_true(sum.min == all.min && sum.max == all.max);
	assert_true(fabs(sum.sum - all.sum) < 1e-9 * all.sum);
	/* a scale once given up is not had back: compare at the coarser */
	rp_exphist_limit_scale(&sum, all.scale);
	rp_exphist_limit_scale(&all, sum.scale);
	assert_int_equal(sum.scale, all.scale);
	assert_int_equal(sum.offset, all.offset);
	assert_int_equal(sum.n, all.n);
	assert_memory_equal(sum.bucket, all.bucket, all.n * sizeof(*all.bucket));

	rp_exphist_limit_scale(&all, 8);
	assert_true(all.scale <= 8);
	rp_exphist_limit_scale(&all, 0);
	assert_int_equal(all.scale, 0);
	sane(&all);
	for (uint32_t i = 0; i < all.n; i++)
		assert_true(all.n <= 32);
	rp_exphist_init(&part[0], 160);
	rp_exphist_merge(&all, &part[0]); /* of nothing */
	sane(&all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pb_values), cmocka_unit_test(test_pb_nesting),
		cmocka_unit_test(test_exp_index), cmocka_unit_test(test_exp_bounded),
		cmocka_unit_test(test_exp_merge),
	};

	return cmocka_run_group_tests_name("expo_lib", tests, NULL, NULL);
}
