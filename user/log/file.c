// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * file.c - a log file while it is written. Lines go through the compressor into a
 * buffer and from there to the kernel: a write that fails is tried again from where it
 * stopped, so that a full disk costs nothing but time.
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

#define WINDOW_LOG 20 /* of zstd: bounds its memory, whatever the level */

static void free_stream(struct rp_log_file *f)
{
	if (f->stream && f->compress == RP_LOG_GZIP) {
		deflateEnd(f->stream);
		free(f->stream);
	} else if (f->stream) {
		ZSTD_freeCCtx(f->stream);
	}
	f->stream = NULL;
}

static int new_stream(struct rp_log_file *f, int level)
{
	z_stream *z;

	if (f->compress == RP_LOG_GZIP) {
		f->stream = z = calloc(1, sizeof(*z));
		/* 16: the gzip format */
		if (z && deflateInit2(z, level ? level : 6, Z_DEFLATED, 15 + 16, 8,
				      Z_DEFAULT_STRATEGY) == Z_OK)
			return 0;
		free(z);
		f->stream = NULL;
		return -ENOMEM;
	}
	if (f->compress == RP_LOG_ZSTD) {
		f->stream = ZSTD_createCCtx();
		if (!f->stream)
			return -ENOMEM;
		ZSTD_CCtx_setParameter(f->stream, ZSTD_c_compressionLevel, level ? level : 3);
		ZSTD_CCtx_setParameter(f->stream, ZSTD_c_windowLog, WINDOW_LOG);
		ZSTD_CCtx_setParameter(f->stream, ZSTD_c_checksumFlag, 1);
	}
	return 0;
}

int rp_log_file_open(struct rp_log_file *f, int dir, const char *name, bool recovered,
		     enum rp_log_compress c, int level)
{
	struct rp_buf out = f->out; /* its memory is used again */
	int e;

	out.n = 0;
	*f = (struct rp_log_file){ .dir = dir, .fd = -1, .compress = c, .out = out };
	snprintf(f->name, sizeof(f->name), "%s", name);
	snprintf(f->partial, sizeof(f->partial), ".%s.%s", name,
		 recovered ? "recovered" : "partial");
	e = new_stream(f, level);
	if (e)
		return e;
	/* a recovery that was killed is done again; nothing else has a name twice */
	f->fd = openat(dir, f->partial,
		       O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (recovered ? O_TRUNC : O_EXCL),
		       0640);
	if (f->fd < 0) {
		e = -errno;
		free_stream(f);
		return e;
	}
	return 0;
}

/* One call of the compressor for as long as it has something to say. */
static int gzip(struct rp_log_file *f, const char *p, size_t n, int flush)
{
	z_stream *z = f->stream;
	int r;

	z->next_in = (Bytef *)(uintptr_t)p;
	z->avail_in = (uInt)n;
	do {
		if (!rp_buf_grow(&f->out, 65536)) {
			f->out.oom = false;
			return -EIO; /* half taken: nothing may follow */
		}
		z->next_out = (Bytef *)f->out.p + f->out.n;
		z->avail_out = (uInt)(f->out.cap - f->out.n);
		r = deflate(z, flush);
		f->out.n = f->out.cap - z->avail_out;
	} while (z->avail_in || (flush != Z_NO_FLUSH && !z->avail_out) ||
		 (flush == Z_FINISH && r == Z_OK));
	return 0;
}

static int zstd(struct rp_log_file *f, const char *p, size_t n, ZSTD_EndDirective end)
{
	ZSTD_inBuffer in = { .src = p, .size = n };
	ZSTD_outBuffer out;
	size_t left;

	do {
		if (!rp_buf_grow(&f->out, 65536)) {
			f->out.oom = false;
			return -EIO; /* half taken: nothing may follow */
		}
		out = (ZSTD_outBuffer){ .dst = f->out.p + f->out.n, .size = f->out.cap - f->out.n };
		left = ZSTD_compressStream2(f->stream, &out, &in, end);
		f->out.n += out.pos;
		if (ZSTD_isError(left))
			return -EIO;
	} while (in.pos < in.size || (end != ZSTD_e_continue && left));
	return 0;
}

int rp_log_file_put(struct rp_log_file *f, const char *p, size_t n, uint64_t records)
{
	int r = 0;

	/* so much may come out at most: what is begun is also ended */
	if (!rp_buf_grow(&f->out, n + n / 64 + 131072)) {
		f->out.oom = false;
		return -ENOMEM;
	}
	if (f->compress == RP_LOG_GZIP)
		r = gzip(f, p, n, Z_NO_FLUSH);
	else if (f->compress == RP_LOG_ZSTD)
		r = zstd(f, p, n, ZSTD_e_continue);
	else
		rp_buf_put(&f->out, p, n);
	if (r)
		return r;
	f->dirty = f->compress != RP_LOG_NONE;
	f->raw += n;
	f->records += records;
	f->unsafe += records;
	return 0;
}

static int flush(struct rp_log_file *f, int gz, ZSTD_EndDirective zs)
{
	int r = 0;

	if (f->compress == RP_LOG_GZIP)
		r = gzip(f, NULL, 0, gz);
	else if (f->compress == RP_LOG_ZSTD)
		r = zstd(f, NULL, 0, zs);
	if (!r)
		f->dirty = false;
	return r;
}

int rp_log_file_flush(struct rp_log_file *f)
{
	return f->dirty && !f->ended ? flush(f, Z_SYNC_FLUSH, ZSTD_e_flush) : 0;
}

int rp_log_file_end(struct rp_log_file *f)
{
	int r = f->ended ? 0 : flush(f, Z_FINISH, ZSTD_e_end);

	f->ended |= !r;
	return r;
}

int rp_log_file_write(struct rp_log_file *f)
{
	while (f->done < f->out.n) {
		ssize_t w = write(f->fd, f->out.p + f->done, f->out.n - f->done);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return w < 0 ? -errno : -EIO;
		f->done += (size_t)w;
		f->bytes += (uint64_t)w;
		f->unsynced = true;
	}
	f->done = f->out.n = 0;
	if (!f->dirty)
		f->unsafe = 0;
	return 0;
}

int rp_log_file_sync(struct rp_log_file *f)
{
	if (f->unsynced && fdatasync(f->fd))
		return -errno;
	f->unsynced = false;
	return 0;
}

void rp_log_file_close(struct rp_log_file *f, struct rp_log_closed *c)
{
	*c = (struct rp_log_closed){ .dir = f->dir, .fd = f->fd, .records = f->records };
	memcpy(c->name, f->name, sizeof(c->name));
	memcpy(c->partial, f->partial, sizeof(c->partial));
	free_stream(f);
	f->fd = -1;
}

int rp_log_publish(struct rp_log_closed *c, bool sync)
{
	if (sync && fsync(c->fd))
		return -errno;
	if (renameat(c->dir, c->partial, c->dir, c->name))
		return -errno;
	if (sync)
		fsync(c->dir);
	close(c->fd);
	c->fd = -1;
	return 0;
}

void rp_log_file_abandon(struct rp_log_file *f)
{
	free_stream(f);
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
	f->done = f->out.n = 0;
}
