// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/find.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/proc.h"

#define UP_MAX 64 /* pids may be used again while we look: no endless way up */

struct node {
	uint32_t pid, ppid;
	const struct rp_engine *engine; /* NULL: none */
};

static int by_pid(const void *a, const void *b)
{
	const struct node *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

/* NULL: none that has more to tell than its sockets. */
static const struct rp_engine *recognise(const struct rp_proc *p)
{
	int score;
	const struct rp_engine *e = rp_recognise(p, &score);

	return e && e->n_hooks ? e : NULL;
}

/* All processes, by pid. Their number or a negative errno. */
static ssize_t read_all(struct node **out)
{
	struct node *v = NULL, *bigger;
	size_t n = 0, room = 0;
	struct dirent *d;
	struct rp_proc p;
	ssize_t err = 0;
	unsigned long pid;
	char *end;
	DIR *dir = opendir("/proc");

	if (!dir)
		return -errno;
	while (n < RP_FIND_PROCS_MAX && (d = readdir(dir))) {
		pid = strtoul(d->d_name, &end, 10);
		if (*end || !pid || pid > UINT32_MAX)
			continue;
		if (n == room) {
			room = room ? 2 * room : 256;
			bigger = realloc(v, room * sizeof(*v));
			if (!bigger) {
				err = -ENOMEM;
				goto cleanup;
			}
			v = bigger;
		}
		err = rp_proc_read((uint32_t)pid, &p);
		if (!err || err == -EACCES)
			v[n++] = (struct node){ (uint32_t)pid, p.ppid, recognise(&p) };
		rp_proc_free(&p);
		if (err == -ENOMEM)
			goto cleanup;
	}
	err = 0;
	if (n)
		qsort(v, n, sizeof(*v), by_pid);
	*out = v;
	v = NULL;
cleanup:
	free(v);
	closedir(dir);
	return err ? err : (ssize_t)n;
}

/* Is one of those above it the same engine's? */
static bool below_another(const struct node *v, size_t n, const struct node *x)
{
	const struct node *up = x;

	for (unsigned i = 0; up && up->ppid && i < UP_MAX; i++) {
		const struct node key = { .pid = up->ppid };

		up = bsearch(&key, v, n, sizeof(*v), by_pid);
		if (up && up->engine == x->engine)
			return true;
	}
	return false;
}

uint32_t rp_find_top(uint32_t pid)
{
	const struct rp_engine *e = NULL, *its;
	uint32_t top = pid, up = pid;
	struct rp_proc p;
	int err;

	for (unsigned i = 0; up && i < UP_MAX; i++) {
		err = rp_proc_read(up, &p);
		its = err && err != -EACCES ? NULL : recognise(&p);
		if (!i)
			e = its;
		else if (its == e)
			top = up;
		up = err && err != -EACCES ? 0 : p.ppid;
		rp_proc_free(&p);
		if (!e)
			break;
	}
	return top;
}

ssize_t rp_find_engines(struct rp_found *out, size_t max)
{
	struct node *v = NULL;
	ssize_t n = read_all(&v), found = 0;
	struct rp_proc p;
	int err;

	for (ssize_t i = 0; v && i < n; i++) {
		struct rp_found *f;

		if (!v[i].engine || below_another(v, (size_t)n, &v[i]) || (size_t)found++ >= max)
			continue;
		f = &out[found - 1];
		*f = (struct rp_found){ .pid = v[i].pid, .engine = v[i].engine };
		err = rp_proc_read(f->pid, &p);
		if ((!err || err == -EACCES) && f->engine->version)
			f->engine->version(&p, f->version, sizeof(f->version));
		rp_proc_free(&p);
	}
	free(v);
	return n < 0 ? n : found;
}
