// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * recover.c - makes a whole file of what a killed run left. A plain one is cut in its
 * place; a compressed one has no end, and is written anew from the lines that can be
 * read from it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "log/internal.h"

#define CHUNK 65536

static ssize_t read_some(int fd, char *p, size_t n)
{
	ssize_t got;

	do
		got = read(fd, p, n);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : got;
}

/* After a power cut the kernel may show zeros that were never written over: whatever
 * follows them is not ours to judge. */
static int cut_plain(int dir, const char *partial, const char *name, uint64_t *lines)
{
	char buf[CHUNK];
	off_t at = 0, good = 0;
	ssize_t got;
	bool end = false;
	int fd, r = 0;

	fd = openat(dir, partial, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	while (!end && (got = read_some(fd, buf, sizeof(buf))) != 0) {
		if (got < 0) {
			r = (int)got;
			goto cleanup;
		}
		for (ssize_t i = 0; i < got && !end; i++) {
			end = !buf[i];
			if (buf[i] == '\n') {
				good = at + i + 1;
				++*lines;
			}
		}
		at += got;
	}
	if (!good)
		r = unlinkat(dir, partial, 0) ? -errno : 0;
	else if (ftruncate(fd, good) || fsync(fd) || renameat(dir, partial, dir, name))
		r = -errno;
cleanup:
	close(fd);
	return r;
}

/* ---- compressed ---- */

struct copy {
	struct rp_log_file f;
	struct rp_buf line; /* begun, and not ended yet */
	bool skip;	    /* it is longer than a line of ours can be */
	uint64_t lines;
	int error;
};

static bool whole(const char *p, size_t n)
{
	if (n < 2 || p[0] != '{' || p[n - 1] != '}')
		return false;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)p[i] < 0x20)
			return false;
	return true;
}

/* Text came out: its whole lines go on. */
static void take(struct copy *c, const char *p, size_t n)
{
	while (n && !c->error) {
		const char *nl = memchr(p, '\n', n);
		size_t len = nl ? (size_t)(nl - p) + 1 : n;

		if (c->line.n + len > RP_LOG_LINE_MAX)
			c->skip = true;
		if (!c->skip)
			rp_buf_put(&c->line, p, len);
		p += len;
		n -= len;
		if (c->line.oom)
			c->error = -ENOMEM;
		if (!nl)
			continue;
		if (!c->skip && whole(c->line.p, c->line.n - 1)) {
			c->error = rp_log_file_put(&c->f, c->line.p, c->line.n, 1);
			c->lines++;
		}
		c->line.n = 0;
		c->skip = false;
		if (!c->error && c->f.out.n >= 4 * (size_t)CHUNK)
			c->error = rp_log_file_write(&c->f);
	}
}

/* All that can be read; where it is torn it ends. -errno of reading only. */
static int inflate_all(int fd, struct copy *c)
{
	char in[CHUNK], out[CHUNK];
	z_stream z = { 0 };
	ssize_t got;
	int r = Z_OK;

	if (inflateInit2(&z, 15 + 16) != Z_OK)
		return -ENOMEM;
	while (r == Z_OK && !c->error && (got = read_some(fd, in, sizeof(in))) != 0) {
		if (got < 0) {
			inflateEnd(&z);
			return (int)got;
		}
		z.next_in = (Bytef *)in;
		z.avail_in = (uInt)got;
		do {
			z.next_out = (Bytef *)out;
			z.avail_out = sizeof(out);
			r = inflate(&z, Z_NO_FLUSH);
			take(c, out, sizeof(out) - z.avail_out);
		} while ((r == Z_OK && !c->error) && (z.avail_in || !z.avail_out));
		if (r == Z_BUF_ERROR) /* it wants more input, that is all */
			r = Z_OK;
	}
	inflateEnd(&z);
	return 0;
}

static int zstd_all(int fd, struct copy *c)
{
	char inb[CHUNK], outb[CHUNK];
	ZSTD_DCtx *d = ZSTD_createDCtx();
	size_t r = 1;
	ssize_t got;

	if (!d)
		return -ENOMEM;
	while (!ZSTD_isError(r) && !c->error && (got = read_some(fd, inb, sizeof(inb))) != 0) {
		ZSTD_inBuffer in = { .src = inb, .size = (size_t)(got > 0 ? got : 0) };
		ZSTD_outBuffer out;

		if (got < 0) {
			ZSTD_freeDCtx(d);
			return (int)got;
		}
		do {
			out = (ZSTD_outBuffer){ .dst = outb, .size = sizeof(outb) };
			r = ZSTD_decompressStream(d, &out, &in);
			take(c, outb, out.pos);
		} while (!ZSTD_isError(r) && !c->error &&
			 (in.pos < in.size || out.pos == out.size));
	}
	ZSTD_freeDCtx(d);
	return 0;
}

static int write_anew(int dir, const char *partial, const char *name, enum rp_log_compress how,
		      uint64_t *lines)
{
	struct copy c = { .f = { .fd = -1 } };
	struct rp_log_closed closed;
	int fd, r;

	fd = openat(dir, partial, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	r = rp_log_file_open(&c.f, dir, name, true, how, 0);
	if (r)
		goto cleanup;
	r = how == RP_LOG_GZIP ? inflate_all(fd, &c) : zstd_all(fd, &c);
	r = r ? r : c.error;
	r = r ? r : rp_log_file_end(&c.f);
	r = r ? r : rp_log_file_write(&c.f);
	if (!r && c.lines) {
		rp_log_file_close(&c.f, &closed);
		r = rp_log_publish(&closed, true);
		if (r)
			close(closed.fd);
	}
	if (r || !c.lines) /* nothing to keep, or nowhere */
		unlinkat(dir, c.f.partial, 0);
	rp_log_file_abandon(&c.f);
	if (!r && unlinkat(dir, partial, 0))
		r = -errno;
	*lines = r ? 0 : c.lines;
cleanup:
	close(fd);
	free(c.f.out.p);
	free(c.line.p);
	return r;
}

int rp_log_recover(int dir, const char *name, uint64_t *lines)
{
	char partial[RP_LOG_NAME_MAX + 12];
	struct rp_log_name n;

	*lines = 0;
	if (!rp_log_name_parse(name, &n))
		return -EINVAL;
	snprintf(partial, sizeof(partial), ".%s.partial", name);
	if (n.compress == RP_LOG_NONE)
		return cut_plain(dir, partial, name, lines);
	return write_anew(dir, partial, name, n.compress, lines);
}
