// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "options.h"

static void sizes(void **st)
{
	static const struct {
		const char *s, *units;
		uint64_t v; /* 0: refused */
	} cases[] = {
		{ "1", "", 1 },
		{ "64M", "KMG", 64 << 20 },
		{ "64m", "KMG", 64 << 20 },
		{ "3k", "KMG", 3 << 10 },
		{ "2G", "KMG", 2ULL << 30 },
		{ "1T", "KMGT", 1ULL << 40 },
		{ "1099511627776", "KMGT", 1ULL << 40 },
		{ "1T", "KMG", 0 },
		{ "1K", "", 0 },
		{ "1KB", "KMG", 0 },
		{ "1 K", "KMG", 0 },
		{ "K", "KMG", 0 },
		{ "", "KMG", 0 },
		{ " 1", "KMG", 0 },
		{ "+1", "KMG", 0 },
		{ "-1", "KMG", 0 },
		{ "0", "KMG", 0 },
		{ "1.5G", "KMG", 0 },
		{ "0x10", "KMG", 0 },
		{ "2T", "KMGT", 0 },
		{ "1099511627777", "KMG", 0 },
		{ "17179869185G", "KMG", 0 }, /* 1G, were it to wrap around */
		{ "99999999999999999999", "KMG", 0 },
	};
	(void)st;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t v = 7;
		bool ok = rp_parse_size(cases[i].s, cases[i].units, 1, 1ULL << 40, &v);

		if (ok != !!cases[i].v || v != (ok ? cases[i].v : 7))
			fail_msg("'%s' in '%s': %d, %llu", cases[i].s, cases[i].units, ok,
				 (unsigned long long)v);
	}
}

static void times(void **st)
{
	static const struct {
		const char *s;
		int64_t ns; /* 0: refused */
	} cases[] = {
		{ "1", 1000000000 },
		{ "0.02", 20000000 },
		{ "1.005", 1005000000 }, /* as a double a little less */
		{ ".5", 500000000 },
		{ "1500us", 1500000 },
		{ "20ms", 20000000 },
		{ "2s", 2000000000 },
		{ "1.5m", 90000000000 },
		{ "1h", 3600000000000 },
		{ "366d", 366 * 86400000000000 },
		{ "36500d", RP_TIME_MAX_NS },
		{ "36501d", 0 },
		{ "99999999999h", 0 },
		{ "0.0000000001", 0 },
		{ "0", 0 },
		{ "0s", 0 },
		{ "", 0 },
		{ ".", 0 },
		{ "ms", 0 },
		{ "-1", 0 },
		{ "+1", 0 },
		{ " 1", 0 },
		{ "1 s", 0 },
		{ "1x", 0 },
		{ "1sm", 0 },
		{ "1..2", 0 },
		{ "1e3", 0 },
		{ "0x1", 0 },
		{ "inf", 0 },
		{ "nan", 0 },
	};
	int64_t ns;

	(void)st;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool ok;

		ns = 7;
		ok = rp_parse_time(cases[i].s, 1, RP_TIME_MAX_NS, &ns);
		if (ok != !!cases[i].ns || ns != (ok ? cases[i].ns : 7))
			fail_msg("'%s': %d, %lld", cases[i].s, ok, (long long)ns);
	}
	assert_true(rp_parse_time("0", 0, 5, &ns));
	assert_int_equal(ns, 0);
	assert_false(rp_parse_time("", 0, 5, &ns));
	assert_false(rp_parse_time("ms", 0, 5, &ns));
	assert_true(rp_parse_time("10ms", 10000000, 10000000, &ns));
	assert_false(rp_parse_time("9.999999ms", 10000000, 10000000, &ns));
	assert_false(rp_parse_time("10.000001ms", 10000000, 10000000, &ns));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(sizes), cmocka_unit_test(times) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
