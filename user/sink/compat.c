// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "sink/compat.h"

#include <string.h>

#include "options.h"

#define NAMES "vllm, aphrodite, llm-runtime-metrics"

static const struct {
	const char *name;
	enum rp_compat bit;
} names[] = {
	{ "vllm", RP_COMPAT_VLLM },
	{ "aphrodite", RP_COMPAT_APHRODITE },
	{ "llm-runtime-metrics", RP_COMPAT_LRM },
};

static void take(struct rp_options *o, const char *list)
{
	for (const char *p = list;; p++) {
		size_t n = strcspn(p, ","), i;

		for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			if (strlen(names[i].name) == n && !memcmp(names[i].name, p, n))
				break;
		if (i == sizeof(names) / sizeof(names[0]))
			rp_refuse("--compat %s: '%.*s' is none of " NAMES, list, (int)n, p);
		o->compat |= names[i].bit;
		p += n;
		if (!*p)
			return;
	}
}

enum { OPT_COMPAT = 1024 };

static error_t parse(int key, char *arg, struct argp_state *st)
{
	struct rp_options *o = st->input;

	switch (key) {
	case OPT_COMPAT:
		take(o, arg);
		return 0;
	case ARGP_KEY_END:
		if (o->compat && (o->verb != RP_VERB_WATCH || !strcmp(o->metrics, "off")))
			rp_refuse("--compat adds to /metrics, which is %s here",
				  o->verb == RP_VERB_WATCH ? "off" : "not served");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{ "compat", OPT_COMPAT, "NAME[,NAME]", 0, "Serve metrics under these names too: " NAMES,
	  0 },
	{ 0 },
};

const struct argp rp_compat_argp = { options, parse, NULL, NULL, NULL, NULL, NULL };
