// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "given.h"

#include <stdio.h>
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

int rp_given(const struct argp *a, int argc, char **argv, struct rp_given *g)
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
				return i; /* whether the next is its value, who knows */
			add(g, o);
			i += wants_next(o) && !s[n];
			continue;
		}
		for (s++; *s; s++) {
			o = find(a, NULL, 0, (unsigned char)*s, &longer);
			if (!o)
				return i;
			add(g, o);
			if (!wants_next(o))
				continue;
			i += !s[1];
			break;
		}
	}
	return 0;
}

/* argp puts a blank after a usage without arguments, and begins each heading of options
 * with an empty line, before whose children it has put one already. */
static void put_tidy(FILE *to, const char *text, size_t n)
{
	const char *end = text + n;
	bool empty = false;

	while (text < end) {
		const char *nl = memchr(text, '\n', (size_t)(end - text)), *e = nl ? nl : end;
		const char *next = nl ? nl + 1 : end;

		while (e > text && e[-1] == ' ')
			e--;
		if (e > text || !empty) {
			fwrite(text, 1, (size_t)(e - text), to);
			fputc('\n', to);
		}
		empty = e == text;
		text = next;
	}
}

void rp_help(const struct argp *a, unsigned flags, const char *name)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	/* the one way to tell argp; who has set it means it */
	setenv("ARGP_HELP_FMT", "opt-doc-col=32,rmargin=79,no-dup-args-note", 0);
	argp_help(a, f ? f : stdout, flags, (char *)name);
	if (f && !fclose(f))
		put_tidy(stdout, text, n);
	free(text);
}
