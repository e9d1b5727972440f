/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* series.h - the series of a page in the text format. */
#ifndef REQPROBE_TEST_SERIES_H
#define REQPROBE_TEST_SERIES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A series that is there twice makes Prometheus refuse the whole scrape. */
static inline void no_series_twice(const char *text)
{
	char *copy = strdup(text), *series[8192], *save, *value;
	size_t n = 0;

	for (char *l = strtok_r(copy, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		if (*l == '#')
			continue;
		value = strrchr(l, ' ');
		assert_non_null(value);
		*value = '\0';
		assert_true(n < sizeof(series) / sizeof(*series));
		series[n++] = l;
	}
	assert_true(n > 0);
	qsort(series, n, sizeof(*series), by_text);
	for (size_t i = 1; i < n; i++)
		if (!strcmp(series[i - 1], series[i]))
			fail_msg("%s is there twice", series[i]);
	free(copy);
}

#endif
