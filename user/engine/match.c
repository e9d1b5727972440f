// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* match.c - which engine is it, and where are its functions? See proc.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/proc.h"

#define PLACES_MAX 256
#define FILES_MAX 16 /* candidate files of one process */

const struct rp_engine *const rp_engines[] = {
	&rp_engine_llamacpp, &rp_engine_vllm, &rp_engine_aphrodite, &rp_engine_generic, NULL,
};

const struct rp_engine *rp_engine_by_name(const char *name)
{
	size_t i;

	for (i = 0; rp_engines[i]; i++)
		if (!strcmp(rp_engines[i]->name, name))
			return rp_engines[i];
	return NULL;
}

static bool symbol_matches(const char *pattern, const char *name)
{
	size_t n = strlen(pattern);

	if (n && pattern[n - 1] == '*')
		return !strncmp(pattern, name, n - 1);
	return !strcmp(pattern, name);
}

static int want_hook(void *ctx, const char *name)
{
	const struct rp_engine *e = ctx;
	size_t i;

	/* every symbol of a program comes through here: most differ in the first byte */
	for (i = 0; i < e->n_hooks; i++)
		if (e->hooks[i].symbol[0] == name[0] && symbol_matches(e->hooks[i].symbol, name))
			return i;
	return -1;
}

static int add_place(struct rp_match *m, uint32_t hook, uint64_t offset, const struct rp_object *o)
{
	struct rp_hook_place *pl;

	if (m->n_places >= PLACES_MAX)
		return 0;
	pl = realloc(m->places, (m->n_places + 1) * sizeof(*pl));
	if (!pl)
		return -ENOMEM;
	m->places = pl;
	pl += m->n_places;
	memset(pl, 0, sizeof(*pl));
	pl->hook = hook;
	pl->offset = offset;
	memcpy(pl->open_path, o->open_path, sizeof(pl->open_path));
	pl->path = strdup(o->path);
	if (!pl->path)
		return -ENOMEM;
	m->n_places++;
	return 0;
}

static int by_hook(const void *a, const void *b)
{
	const struct rp_hook_place *x = a, *y = b;

	if (x->hook != y->hook)
		return x->hook < y->hook ? -1 : 1;
	return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Keep, of each role, the hooks of the lowest rank found. */
static void drop_fallbacks(struct rp_match *m, uint64_t found)
{
	const struct rp_engine_hook *h, *other;
	size_t i, j, kept = 0;
	bool drop;

	for (i = 0; i < m->n_places; i++) {
		h = &m->engine->hooks[m->places[i].hook];
		for (j = 0, drop = false; j < m->engine->n_hooks && !drop; j++) {
			other = &m->engine->hooks[j];
			drop = found >> j & 1 && other->role == h->role &&
			       other->fallback < h->fallback;
		}
		if (drop)
			free(m->places[i].path);
		else
			m->places[kept++] = m->places[i];
	}
	m->n_places = kept;
}

static bool role_found(const struct rp_match *m, enum rp_role role)
{
	size_t i;

	for (i = 0; i < m->n_places; i++)
		if (m->engine->hooks[m->places[i].hook].role == role)
			return true;
	return false;
}

static bool essential(enum rp_role role)
{
	return role == RP_ROLE_QUEUED || role == RP_ROLE_SCHEDULED || role == RP_ROLE_TOKEN ||
	       role == RP_ROLE_VLLM;
}

/* The end of a path is what tells files apart. */
static void put_path(char *buf, size_t len, const char *path)
{
	size_t n = strlen(path), i;

	if (n < len)
		snprintf(buf, len, "%s", path);
	else
		snprintf(buf, len, "...%s", path + n - (len - 4));
	for (i = 0; buf[i]; i++)
		if ((unsigned char)buf[i] < ' ' || buf[i] == 0x7f)
			buf[i] = '?'; /* it goes to a terminal */
}

static void explain(struct rp_match *m, const char *file, bool stripped, int files, bool library)
{
	char names[128] = "", path[80];
	const struct rp_engine_hook *h;
	const char *member;
	uint32_t roles = 0;
	size_t i, n = 0;

	for (i = 0; i < m->engine->n_hooks; i++) {
		h = &m->engine->hooks[i];
		if (!(m->missing >> i & 1) || roles >> h->role & 1)
			continue;
		roles |= 1u << h->role;
		member = strrchr(h->function, ':');
		if (n < sizeof(names))
			n += snprintf(names + n, sizeof(names) - n, "%s%s", n ? ", " : "",
				      member ? member + 1 : h->function);
	}
	if (!roles)
		return;
	if (!files) {
		snprintf(m->why, sizeof(m->why), "no mapped file can hold %s", names);
		return;
	}
	if (roles >> RP_ROLE_VLLM & 1 && !library) {
		/* it is never in the program itself, and loaded after some seconds */
		snprintf(m->why, sizeof(m->why), "libzmq is not loaded, or not yet: no symbol %s",
			 names);
		return;
	}
	put_path(path, sizeof(path), file);
	snprintf(m->why, sizeof(m->why), "%s %s: no symbol %s", path,
		 stripped ? "is stripped" : "lacks functions (inlined or renamed)", names);
}

int rp_match_hooks(const struct rp_engine *engine, const struct rp_proc *p, struct rp_match *m)
{
	const struct rp_object *o, *shown = NULL;
	bool symtab, any_symtab = false, denied = false, library = false;
	enum rp_object_kind kind;
	struct rp_sym_hit *hits;
	size_t i, files = 0;
	uint64_t found = 0;
	ssize_t n, k;
	int fd, err = 0;

	memset(m, 0, sizeof(*m));
	m->engine = engine;
	m->pid = p->pid;
	if (engine->version)
		engine->version(p, m->version, sizeof(m->version));
	if (!engine->n_hooks) {
		m->reason = RP_HOOKS_NONE_FOR_ENGINE;
		snprintf(m->why, sizeof(m->why), "%s is seen from its sockets only", engine->title);
		return 0;
	}
	for (i = 0; i < p->n_objects && files < FILES_MAX; i++) {
		o = &p->objects[i];
		kind = engine->hook_object ? engine->hook_object(o->path) : RP_OBJECT_NONE;
		if (!kind && !(p->exe && !strcmp(p->exe, o->path)))
			continue;
		fd = rp_object_open(p, o);
		if (fd < 0) {
			denied |= fd == -EACCES;
			if (fd == -EACCES)
				shown = o;
			continue;
		}
		n = rp_elf_find_fd(fd, want_hook, (void *)engine, &hits, &symtab, NULL);
		close(fd);
		if (n == -ENOMEM)
			err = n;
		if (n < 0)
			continue;
		files++;
		any_symtab |= symtab && kind != RP_OBJECT_LIBRARY;
		library |= kind == RP_OBJECT_SERVER;
		/* Name the library before the small program that loads it. */
		if (!shown || kind == RP_OBJECT_SERVER)
			shown = o;
		for (k = 0; k < n && !err; k++) {
			found |= 1ULL << hits[k].idx;
			err = add_place(m, hits[k].idx, hits[k].sym.file_off, o);
		}
		rp_elf_free(hits, n);
	}
	if (err) {
		rp_match_free(m);
		return err;
	}
	drop_fallbacks(m, found);
	if (m->n_places)
		qsort(m->places, m->n_places, sizeof(*m->places), by_hook);
	for (i = 0; i < engine->n_hooks; i++) {
		if (role_found(m, engine->hooks[i].role))
			continue;
		m->missing |= 1ULL << i;
		if (essential(engine->hooks[i].role))
			m->reason = RP_HOOKS_STRIPPED;
	}
	explain(m, shown ? shown->path : "", !any_symtab, files, library);
	if (!m->n_places && (denied || (!p->n_objects && rp_proc_alive(p->pid) != -ESRCH))) {
		char path[80];

		m->reason = RP_HOOKS_NOT_PERMITTED;
		put_path(path, sizeof(path), shown ? shown->path : p->comm);
		snprintf(m->why, sizeof(m->why),
			 "not permitted to read the files of pid %" PRIu32 " (%s); run as root",
			 p->pid, path);
	}
	return 0;
}

void rp_match_free(struct rp_match *m)
{
	size_t i;

	for (i = 0; i < m->n_places; i++)
		free(m->places[i].path);
	free(m->places);
	m->places = NULL;
	m->n_places = 0;
}

const struct rp_engine *rp_recognise(const struct rp_proc *p, int *score)
{
	const struct rp_engine *best = NULL;
	int s;

	*score = 0;
	for (size_t i = 0; rp_engines[i]; i++) {
		s = rp_engines[i]->recognise(p);
		if (s > *score) {
			*score = s;
			best = rp_engines[i];
		}
	}
	return best;
}

const struct rp_engine *rp_match_engine(const uint32_t *pids, size_t n, uint32_t *pid)
{
	const struct rp_engine *best = &rp_engine_generic, *e;
	int score, top = 0;
	struct rp_proc p;
	size_t i;
	int err;

	if (pid)
		*pid = n ? pids[0] : 0;
	for (i = 0; i < n; i++) {
		err = rp_proc_read(pids[i], &p);
		if (err && err != -EACCES)
			continue;
		e = rp_recognise(&p, &score);
		if (score > top) {
			top = score;
			best = e;
			if (pid)
				*pid = pids[i];
		}
		rp_proc_free(&p);
	}
	return best;
}
