// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * drive.c - plays events on standard input to user/lrm and prints what it renders.
 * tests/live/t_lrm.py plays the same to the package that it is compared with.
 *   drive WINDOW_S PREFIX Q,Q,... ITL_RATE [KEY=VALUE...]
 * Lines: INSTANT_NS and one of
 *   open                                the series begin
 *   start ID INPUT FEATURES TIER RANK   ("-" no tier, no rank)
 *   tokens ID N CACHED                  ("-" not told)
 *   success ID | cancel ID              an ID that is over is passed over
 *   print                               the text, then a line "."
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lrm/lrm.h"

#define MAX_IDS 1024

static int64_t number(const char *s)
{
	return strcmp(s, "-") ? strtoll(s, NULL, 10) : INT64_MIN;
}

static void fail(const char *what, const char *line)
{
	fprintf(stderr, "drive: %s: %s\n", what, line);
	exit(1);
}

int main(int argc, char **argv)
{
	static struct rp_lrm_request *q[MAX_IDS];
	struct rp_lrm_opts o;
	struct rp_lrm *l = NULL;
	struct rp_buf b = { 0 };
	struct rp_expo e = { .b = &b };
	char line[256];

	if (argc < 5)
		fail("usage", "drive WINDOW_S PREFIX Q,... ITL_RATE [KEY=VALUE...]");
	rp_lrm_defaults(&o);
	o.window_s = strtod(argv[1], NULL);
	o.prefix = argv[2];
	o.n_quantiles = 0;
	for (char *p = strtok(argv[3], ","); p; p = strtok(NULL, ","))
		o.quantiles[o.n_quantiles++] = strtod(p, NULL);
	o.itl_rate = strtod(argv[4], NULL);
	for (int i = 5; i < argc; i++) {
		char *eq = strchr(argv[i], '=');

		*eq = '\0';
		o.labels[o.n_labels++] = (struct rp_label){ argv[i], eq + 1 };
	}
	while (fgets(line, sizeof(line), stdin)) {
		char op[16] = "", a[5][32] = { "", "", "", "", "" };
		long long ts;
		unsigned id;

		if (sscanf(line, "%lld %15s %31s %31s %31s %31s %31s", &ts, op, a[0], a[1], a[2],
			   a[3], a[4]) < 2)
			fail("not understood", line);
		if (!strcmp(op, "open")) {
			l = rp_lrm_new(&o, ts);
			continue;
		}
		if (!l)
			fail("not open", line);
		if (!strcmp(op, "print")) {
			b.n = 0;
			rp_lrm_render(l, ts, &e);
			if (b.oom)
				fail("no memory", line);
			fwrite(b.p, 1, b.n, stdout);
			puts(".");
			continue;
		}
		id = (unsigned)number(a[0]);
		if (id >= MAX_IDS)
			fail("which one", line);
		if (!strcmp(op, "start")) {
			struct rp_lrm_start s = { .begun = ts,
						  .input = number(a[1]),
						  .features = (unsigned)number(a[2]),
						  .rank = number(a[4]),
						  .seed = id };

			for (int i = 1; i < RP_LRM_TIERS; i++)
				if (!strcmp(a[3], rp_lrm_tier_names[i]))
					s.tier = (enum rp_lrm_tier)i;
			q[id] = rp_lrm_start(l, ts, &s);
			if (!q[id])
				fail("no memory", line);
		} else if (!q[id]) {
			continue;
		} else if (!strcmp(op, "tokens")) {
			rp_lrm_tokens(l, q[id], ts, ts, (uint64_t)number(a[1]), number(a[2]));
		} else if (!strcmp(op, "success") || !strcmp(op, "cancel")) {
			rp_lrm_end(l, q[id], ts, op[0] == 's');
			q[id] = NULL;
		} else {
			fail("not understood", line);
		}
	}
	rp_lrm_free(l);
	free(b.p);
	return 0;
}
