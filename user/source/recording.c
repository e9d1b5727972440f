// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "source/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUF (256 * 1024)

struct rp_rec {
	int fd;
	bool dead;
	size_t n;
	off_t good; /* end of the last whole write */
	uint8_t buf[BUF];
};

/* A recording can't be made again: a former one of this name is put aside. */
static int keep_old(const char *path)
{
	struct stat st;
	char *old;
	int e = 0;

	/* one that holds no event is not worth another's place */
	if (stat(path, &st) || !S_ISREG(st.st_mode) ||
	    st.st_size <= (off_t)sizeof(struct rp_rec_header))
		return 0;
	if (asprintf(&old, "%s.old", path) < 0)
		return -ENOMEM;
	if (rename(path, old))
		e = -errno;
	free(old);
	return e;
}

int rp_rec_open(const char *path, bool raw, struct rp_rec **out, char *err, size_t errlen)
{
	struct rp_rec_header h = { .order = RP_REC_ORDER, .version = RP_REC_VERSION, .raw = raw };
	struct rp_rec *r = calloc(1, sizeof(*r));
	int e;

	if (!r)
		return -ENOMEM;
	e = keep_old(path);
	if (e) {
		snprintf(err, errlen,
			 "can't put the former recording %s aside as %s.old: %s; give another name",
			 path, path, strerror(-e));
		free(r);
		return e;
	}
	r->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (r->fd < 0) {
		e = -errno;
		snprintf(err, errlen, "can't write the recording %s: %s", path, strerror(-e));
		free(r);
		return e;
	}
	memcpy(h.magic, RP_REC_MAGIC, sizeof(h.magic));
	memcpy(r->buf, &h, sizeof(h));
	r->n = sizeof(h);
	*out = r;
	return 0;
}

int rp_rec_flush(struct rp_rec *r)
{
	size_t off = 0;

	while (!r->dead && off < r->n) {
		ssize_t w = write(r->fd, r->buf + off, r->n - off);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0) {
			int e = w < 0 ? -errno : -ENOSPC;

			/* what is there stays readable: cut back to whole events */
			r->dead = true;
			r->n = 0;
			if (ftruncate(r->fd, r->good))
				return e;
			return e;
		}
		off += (size_t)w;
	}
	r->good += (off_t)off;
	r->n = 0;
	return 0;
}

int rp_rec_write(struct rp_rec *r, const struct rp_event_hdr *ev)
{
	if (r->dead)
		return 0;
	if (ev->size > sizeof(r->buf))
		return -EMSGSIZE;
	if (r->n + ev->size > sizeof(r->buf)) {
		int e = rp_rec_flush(r);

		if (e)
			return e;
	}
	memcpy(r->buf + r->n, ev, ev->size);
	r->n += ev->size;
	return 0;
}

int rp_rec_close(struct rp_rec *r)
{
	int e;

	if (!r)
		return 0;
	e = rp_rec_flush(r);
	if (close(r->fd) && !e)
		e = -errno;
	free(r);
	return e;
}

static ssize_t read_full(FILE *f, void *p, size_t n)
{
	return (ssize_t)fread(p, 1, n, f);
}

/* Version 1 had no TCP numbers before the payload. */
static bool upgrade(struct rp_event_hdr *ev)
{
	const size_t now = sizeof(struct rp_ev_data), old = now - 16;

	if (ev->size < old || ev->size + 16 > RP_REC_EVENT_MAX)
		return false;
	memmove((uint8_t *)ev + now, (uint8_t *)ev + old, ev->size - old);
	memset((uint8_t *)ev + old, 0, 16);
	ev->size += 16;
	return true;
}

int rp_rec_replay(const char *path, rp_event_fn fn, void *ctx, char *err, size_t errlen)
{
	struct rp_rec_header h;
	uint8_t *buf = NULL;
	FILE *f;
	int e = 0;

	f = strcmp(path, "-") ? fopen(path, "re") : stdin;
	if (!f) {
		e = -errno;
		snprintf(err, errlen, "can't open the recording %s: %s", path, strerror(-e));
		return e;
	}
	buf = malloc(RP_REC_EVENT_MAX);
	if (!buf) {
		e = -ENOMEM;
		snprintf(err, errlen, "no memory");
		goto cleanup;
	}
	if (read_full(f, &h, sizeof(h)) != sizeof(h) || memcmp(h.magic, RP_REC_MAGIC, 8)) {
		e = -EINVAL;
		snprintf(err, errlen, "%s is no reqprobe recording", path);
		goto cleanup;
	}
	if (h.order != RP_REC_ORDER || !h.version || h.version > RP_REC_VERSION) {
		e = -EPROTO;
		snprintf(
			err, errlen,
			"%s was made on another kind of machine or by another version (recording version %u)",
			path, h.version);
		goto cleanup;
	}
	for (;;) {
		struct rp_event_hdr *ev = (struct rp_event_hdr *)buf;
		ssize_t n = read_full(f, buf, sizeof(*ev));

		if (n == 0 && !ferror(f))
			break;
		if (n != sizeof(*ev))
			goto cut;
		if (ev->size < sizeof(*ev) || ev->size > RP_REC_EVENT_MAX || ev->size % 8) {
			e = -EINVAL;
			snprintf(
				err, errlen,
				"%s is damaged: an event of %u bytes; what came before it was used",
				path, ev->size);
			goto cleanup;
		}
		if ((size_t)read_full(f, buf + sizeof(*ev), ev->size - sizeof(*ev)) !=
		    ev->size - sizeof(*ev))
			goto cut;
		if (h.version == 1 && ev->type == RP_EV_DATA && !upgrade(ev)) {
			e = -EINVAL;
			snprintf(
				err, errlen,
				"%s is damaged: an event of %u bytes; what came before it was used",
				path, ev->size);
			goto cleanup;
		}
		e = fn(ctx, ev);
		if (e < 0)
			goto cleanup;
	}
	e = 0;
	goto cleanup;
cut:
	e = -ENODATA;
	snprintf(err, errlen, "%s ends in the middle of an event; what came before it was used",
		 path);
cleanup:
	free(buf);
	if (f != stdin)
		fclose(f);
	return e;
}
