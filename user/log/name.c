// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* name.c - names of log files: made, and read again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "log/internal.h"

static const char *const suffixes[] = {
	[RP_LOG_NONE] = ".jsonl",
	[RP_LOG_GZIP] = ".jsonl.gz",
	[RP_LOG_ZSTD] = ".jsonl.zst",
};

#define DIGITS "0123456789"
#define HOST_CHARS DIGITS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-"

void rp_log_name(char out[RP_LOG_NAME_MAX], const char *host, int64_t wall, uint64_t seq,
		 enum rp_log_compress c)
{
	char h[RP_LOG_HOST_MAX];
	time_t s = (time_t)(wall / 1000000000);
	struct tm t;

	snprintf(h, sizeof(h), "%s", host && *host ? host : "localhost");
	for (char *p = h; *p; p++)
		if (!strchr(HOST_CHARS, *p))
			*p = '_';
	gmtime_r(&s, &t);
	snprintf(out, RP_LOG_NAME_MAX, "reqprobe-%s-%04u%02u%02uT%02u%02u%02u.%03uZ-%06llu%s", h,
		 (unsigned)(t.tm_year + 1900) % 10000, (unsigned)(t.tm_mon + 1) % 100,
		 (unsigned)t.tm_mday % 100, (unsigned)t.tm_hour % 100, (unsigned)t.tm_min % 100,
		 (unsigned)t.tm_sec % 100, (unsigned)(wall / 1000000 % 1000),
		 (unsigned long long)seq, suffixes[c]);
}

/* "20261130T035900.123Z", where 0 stands for any digit */
static bool is_time(const char *p)
{
	static const char form[] = "00000000T000000.000Z";

	for (size_t i = 0; form[i]; i++)
		if (form[i] == '0' ? !strchr(DIGITS, p[i]) || !p[i] : p[i] != form[i])
			return false;
	return true;
}

#define TIME_LEN 20

bool rp_log_name_parse(const char *name, struct rp_log_name *n)
{
	size_t len = strlen(name), end, at;
	int c;

	if (len >= RP_LOG_NAME_MAX || strncmp(name, "reqprobe-", 9) != 0 ||
	    name[strspn(name, HOST_CHARS)])
		return false;
	for (c = RP_LOG_ZSTD; c >= 0; c--)
		if (len > strlen(suffixes[c]) &&
		    !strcmp(name + len - strlen(suffixes[c]), suffixes[c]))
			break;
	if (c < 0)
		return false;
	end = len - strlen(suffixes[c]);
	for (at = end; at && strchr(DIGITS, name[at - 1]); at--)
		;
	/* reqprobe-H-TIME-NNNNNN */
	if (end - at < 6 || end - at > 18 || at < 9 + 1 + 1 + TIME_LEN + 1 || name[at - 1] != '-' ||
	    !is_time(name + at - 1 - TIME_LEN) || name[at - 2 - TIME_LEN] != '-')
		return false;
	if (n) {
		const char *t = name + at - 1 - TIME_LEN;
		char digits[18];

		snprintf(n->date, sizeof(n->date), "%.8s", t);
		snprintf(digits, sizeof(digits), "%.8s%.6s%.3s", t, t + 9, t + 16);
		n->ms = strtoll(digits, NULL, 10);
		n->seq = strtoull(name + at, NULL, 10);
		n->compress = (enum rp_log_compress)c;
	}
	return true;
}

bool rp_log_name_partial(const char *partial, char out[RP_LOG_NAME_MAX])
{
	size_t n = strlen(partial);

	if (n < 10 || n - 9 >= RP_LOG_NAME_MAX || partial[0] != '.' ||
	    strcmp(partial + n - 8, ".partial") != 0)
		return false;
	memcpy(out, partial + 1, n - 9);
	out[n - 9] = 0;
	return rp_log_name_parse(out, NULL);
}

bool rp_log_key(const char *prefix, const char *name, char *out, size_t size)
{
	struct rp_log_name n;
	int r;

	if (!rp_log_name_parse(name, &n))
		return false;
	r = snprintf(out, size, "%s%.4s/%.2s/%.2s/%s", prefix, n.date, n.date + 4, n.date + 6,
		     name);
	return r > 0 && (size_t)r < size;
}
