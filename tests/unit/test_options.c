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

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(sizes) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
