// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lib/map.h"

/* To replace takes no memory: at any fill the table stays as it is. */
static void replace(void **st)
{
	struct rp_map m = { 0 };
	int a, b;

	(void)st;
	for (uint64_t i = 0; i < 1000; i++) {
		size_t cap, len;

		assert_int_equal(rp_map_put(&m, 1, i, &a), 0);
		cap = m.cap;
		len = m.len;
		assert_int_equal(rp_map_put(&m, 1, i, &b), 0);
		assert_int_equal(m.cap, cap);
		assert_int_equal(m.len, len);
		assert_ptr_equal(rp_map_get(&m, 1, i), &b);
	}
	for (uint64_t i = 0; i < 1000; i++)
		assert_ptr_equal(rp_map_del(&m, 1, i), &b);
	assert_int_equal(m.len, 0);
	assert_null(rp_map_get(&m, 1, 5));
	rp_map_free(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(replace) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
