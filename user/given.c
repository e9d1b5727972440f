// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "given.h"

#include <stdlib.h>
#include <string.h>

#include "options.h"

/* The option of that name (n characters) or key; *longer: one that begins so. */
static const struct argp_option *find(const struct argp *a, const char *name, size_t n, int key,
				      const struct argp_option **longer)
{
	const struct argp_option *o = a->options, *found;

	for (; o && (o->name || o->key || o->doc); o++) {
		if (!name && o->name && o->key == key)
			return o;
		if (!name || !o->name || strncmp(o->name, name, n) != 0)
			continue;
		if (!o->name[n])
			return o;
		if (!(o->flags & OPTION_HIDDEN))
			*longer = o;
	}
	for (const struct argp_child *c = a->children; c && c->argp; c++) {
		found = find(c->argp, name, n, key, longer);
		if (found)
			return found;
	}
	return NULL;
}

static void add(struct rp_given *g, const struct argp_option *o)
{
	if (!g)
		return;
	for (unsigned i = 0; i < g->n; i++)
		if (g->o[i] == o)
			return;
	if (g->n < RP_GIVEN_MAX)
		g->o[g->n++] = o;
}

static bool wants_next(const struct argp_option *o)
{
	return o->arg && !(o->flags & OPTION_ARG_OPTIONAL);
}

void rp_given(const struct argp *a, int argc, char **argv, struct rp_given *g)
{
	const struct argp_option *o, *longer = NULL;

	if (g)
		g->n = 0;
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		const char *s = argv[i];
		size_t n;

		if (s[0] != '-' || !s[1])
			continue;
		if (s[1] == '-') {
			s += 2;
			n = strcspn(s, "=");
			o = find(a, s, n, 0, &longer);
			if (!o && longer)
				rp_refuse("'--%.*s' is not understood; is --%s meant?", (int)n, s,
					  longer->name);
			if (!o)
				return; /* argp's to refuse: whether the next is its value, who knows */
			add(g, o);
			i += wants_next(o) && !s[n];
			continue;
		}
		for (s++; *s; s++) {
			o = find(a, NULL, 0, (unsigned char)*s, &longer);
			if (!o)
				return;
			add(g, o);
			if (!wants_next(o))
				continue;
			i += !s[1];
			break;
		}
	}
}

void rp_help(const struct argp *a, unsigned flags, const char *name)
{
	/* the one way to tell argp; who has set it means it */
	setenv("ARGP_HELP_FMT", "opt-doc-col=32,rmargin=79,no-dup-args-note", 0);
	argp_help(a, stdout, flags, (char *)name);
}
