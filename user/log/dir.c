// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* dir.c - what lies in the log's directory, and what of it has to go. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log/internal.h"

const char *const rp_log_why_names[RP_LOG_WHY_COUNT] = {
	[RP_LOG_STAYS] = "stays",
	[RP_LOG_FILES] = "files",
	[RP_LOG_AGE] = "age",
	[RP_LOG_SIZE] = "size",
};

/* A stream of its own: reading must not move dir's position for others. */
static DIR *read_dir(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d && fd >= 0)
		close(fd);
	return d;
}

static int scan_one(int dir, bool uploaded, struct rp_log_entry **e, size_t *n, size_t *cap)
{
	DIR *d = read_dir(dir);
	struct dirent *x;
	int r = 0;

	if (!d)
		return -errno;
	while (!r && *n < RP_LOG_ENTRIES_MAX && (x = readdir(d))) {
		struct rp_log_name name;
		struct rp_log_entry *p;
		struct stat st;

		if (!rp_log_name_parse(x->d_name, &name) ||
		    fstatat(dir, x->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
			continue;
		if (*n == *cap) {
			*cap = *cap ? *cap * 2 : 64;
			p = realloc(*e, *cap * sizeof(*p));
			if (!p) {
				r = -ENOMEM;
				break;
			}
			*e = p;
		}
		p = &(*e)[(*n)++];
		*p = (struct rp_log_entry){
			.size = (uint64_t)st.st_size,
			.modified = st.st_mtim.tv_sec * 1000000000LL + st.st_mtim.tv_nsec,
			.ms = name.ms,
			.seq = name.seq,
			.uploaded = uploaded,
		};
		snprintf(p->name, sizeof(p->name), "%.*s", RP_LOG_NAME_MAX - 1, x->d_name);
	}
	closedir(d);
	return r;
}

static int older(const void *a, const void *b)
{
	const struct rp_log_entry *x = a, *y = b;

	if (x->uploaded != y->uploaded)
		return x->uploaded ? 1 : -1;
	if (x->ms != y->ms)
		return x->ms < y->ms ? -1 : 1;
	if (x->seq != y->seq)
		return x->seq < y->seq ? -1 : 1;
	return strcmp(x->name, y->name);
}

int rp_log_scan(int dir, int up, struct rp_log_entry **e, size_t *n)
{
	size_t cap = 0;
	int r;

	*e = NULL;
	*n = 0;
	r = scan_one(dir, false, e, n, &cap);
	if (!r && up >= 0)
		r = scan_one(up, true, e, n, &cap);
	if (r) {
		free(*e);
		*e = NULL;
		*n = 0;
		return r;
	}
	if (*n)
		qsort(*e, *n, sizeof(**e), older);
	return 0;
}

int rp_log_scan_partial(int dir, char **names, size_t *n)
{
	struct rp_buf b = { 0 };
	DIR *d = read_dir(dir);
	struct dirent *x;

	*names = NULL;
	*n = 0;
	if (!d)
		return -errno;
	while (*n < RP_LOG_ENTRIES_MAX && (x = readdir(d))) {
		char name[RP_LOG_NAME_MAX];

		if (!rp_log_name_partial(x->d_name, name))
			continue;
		rp_buf_put(&b, name, strlen(name) + 1);
		++*n;
	}
	closedir(d);
	rp_buf_put(&b, "", 1);
	if (b.oom) {
		free(b.p);
		return -ENOMEM;
	}
	*names = b.p;
	return 0;
}

void rp_log_pick(const struct rp_log_entry *e, size_t n, const struct rp_log_options *o,
		 uint64_t open_bytes, int64_t now, enum rp_log_why *why)
{
	uint64_t bytes = open_bytes, files = open_bytes > 0;
	size_t first = 0;

	for (size_t i = 0; i < n; i++) {
		why[i] = o->keep_ns && !e[i].busy && now - e[i].modified > o->keep_ns ?
				 RP_LOG_AGE :
				 RP_LOG_STAYS;
		if (why[i] == RP_LOG_STAYS) {
			bytes += e[i].size;
			files++;
		}
	}
	while (first < n && !e[first].uploaded)
		first++;
	/* in the order in which they go: uploaded ones, then the rest */
	for (size_t k = 0; k < n; k++) {
		size_t i = (first + k) % n;
		bool many = o->keep_files && files > o->keep_files, big = bytes > o->keep_bytes;

		if (!many && !big)
			return;
		if (why[i] != RP_LOG_STAYS || e[i].busy)
			continue;
		why[i] = big ? RP_LOG_SIZE : RP_LOG_FILES;
		bytes -= e[i].size;
		files--;
	}
}
