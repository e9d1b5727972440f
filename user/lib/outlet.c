// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "lib/outlet.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/clock.h"

enum rp_outlet_how rp_outlet_way(int fd, int *own)
{
	struct stat st;
	char path[40];

	*own = -1;
	if (fstat(fd, &st))
		return RP_OUTLET_PLAIN;
	if (S_ISSOCK(st.st_mode))
		return RP_OUTLET_SOCKET;
	if (!S_ISFIFO(st.st_mode) && !isatty(fd))
		return RP_OUTLET_PLAIN;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	*own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return *own >= 0 ? RP_OUTLET_OWN : RP_OUTLET_POLLED;
}

int rp_outlet_open(struct rp_outlet *o, int fd, size_t max)
{
	int own;

	*o = (struct rp_outlet){ .fd = fd, .max = max, .buf = malloc(max) };
	if (!o->buf)
		return -ENOMEM;
	o->how = rp_outlet_way(fd, &own);
	if (o->how == RP_OUTLET_OWN)
		o->fd = own;
	return 0;
}

ssize_t rp_outlet_write(const struct rp_outlet *o, const char *p, size_t n)
{
	struct pollfd f = { .fd = o->fd, .events = POLLOUT };

	switch (o->how) {
	case RP_OUTLET_SOCKET:
		return send(o->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	case RP_OUTLET_POLLED:
		if (poll(&f, 1, 0) <= 0) {
			errno = EAGAIN;
			return -1;
		}
		return write(o->fd, p, n < PIPE_BUF ? n : PIPE_BUF);
	default:
		return write(o->fd, p, n);
	}
}

static uint64_t lines(const char *p, size_t n)
{
	uint64_t k = 0;

	for (size_t i = 0; i < n; i++)
		k += p[i] == '\n';
	return k;
}

bool rp_outlet_flush(struct rp_outlet *o)
{
	size_t done = 0;
	bool failed = false;

	while (done < o->n) {
		/* a pipe takes up to PIPE_BUF whole or not at all: lines, where they fit */
		size_t n = o->n - done < PIPE_BUF ? o->n - done : PIPE_BUF;
		const char *nl = n < o->n - done ? memrchr(o->buf + done, '\n', n) : NULL;
		ssize_t w = rp_outlet_write(o, o->buf + done,
					    nl ? (size_t)(nl + 1 - o->buf) - done : n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0) {
			failed = w == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
			break;
		}
		done += (size_t)w;
	}
	if (failed) {
		o->dropped += lines(o->buf + done, o->n - done);
		o->n = 0;
		o->torn = false;
		return true;
	}
	if (done)
		o->torn = o->buf[done - 1] != '\n';
	memmove(o->buf, o->buf + done, o->n - done);
	o->n -= done;
	return !o->n;
}

bool rp_outlet_put(struct rp_outlet *o, const char *p, size_t n)
{
	if (n > o->max - o->n)
		rp_outlet_flush(o);
	if (n > o->max - o->n) {
		o->dropped += lines(p, n);
		return false;
	}
	memcpy(o->buf + o->n, p, n);
	o->n += n;
	rp_outlet_flush(o);
	return true;
}

bool rp_outlet_drain(struct rp_outlet *o, unsigned ms)
{
	uint64_t end = rp_now_ns() + ms * 1000000ULL, now;

	while (!rp_outlet_flush(o) && (now = rp_now_ns()) < end) {
		struct pollfd f = { .fd = o->fd, .events = POLLOUT };

		poll(&f, 1, (int)((end - now) / 1000000) + 1);
	}
	return !o->n;
}

void rp_outlet_close(struct rp_outlet *o)
{
	if (o->how == RP_OUTLET_OWN)
		close(o->fd);
	free(o->buf);
	*o = (struct rp_outlet){ .fd = -1 };
}
