// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "protocol/zmtp.h"

#include <stdlib.h>
#include <string.h>

#define GREETING 64

void rp_zmtp_init(struct rp_zmtp *z, size_t max)
{
	*z = (struct rp_zmtp){ .max = max, .fresh = true, .lost = true };
}

void rp_zmtp_free(struct rp_zmtp *z)
{
	free(z->buf);
	z->buf = NULL;
	z->cap = 0;
}

static void lose(struct rp_zmtp *z)
{
	z->lost = true;
	z->in_body = false;
	z->head_n = 0;
	z->greeting = 0;
	z->resyncs++;
}

static size_t head_size(uint8_t flags)
{
	return flags & RP_ZMTP_LONG ? 9 : 2;
}

static bool flags_fit(uint8_t flags)
{
	/* a command stands alone */
	return flags < 8 &&
	       (flags & (RP_ZMTP_MORE | RP_ZMTP_COMMAND)) != (RP_ZMTP_MORE | RP_ZMTP_COMMAND);
}

/* The head is whole: how long is the body? False: it is no head. */
static bool head_read(struct rp_zmtp *z)
{
	uint64_t n = 0;

	if (z->head[0] & RP_ZMTP_LONG)
		for (int i = 1; i < 9; i++)
			n = n << 8 | z->head[i];
	else
		n = z->head[1];
	/* libzmq writes a length that fits one byte in one byte */
	if (n > RP_ZMTP_FRAME_MAX || (z->head[0] & RP_ZMTP_LONG && n < 256))
		return false;
	z->total = z->left = n;
	z->len = 0;
	z->broken = false;
	z->in_body = true;
	z->head_n = 0;
	return true;
}

static void keep(struct rp_zmtp *z, const uint8_t *p, size_t n)
{
	size_t want = z->total < z->max ? (size_t)z->total : z->max;
	uint8_t *b;

	if (z->broken || z->len >= want)
		return;
	if (n > want - z->len)
		n = want - z->len;
	if (z->cap < z->len + n) {
		size_t cap = z->cap ? z->cap : 256;

		while (cap < z->len + n)
			cap *= 2;
		if (cap > z->max)
			cap = z->max;
		b = realloc(z->buf, cap);
		if (!b) {
			z->broken = true;
			return;
		}
		z->buf = b;
		z->cap = cap;
	}
	memcpy(z->buf + z->len, p, n);
	z->len += n;
}

static void frame_end(struct rp_zmtp *z, rp_zmtp_fn fn, void *ctx)
{
	const struct rp_zmtp_frame f = { .flags = z->head[0],
					 .body = z->buf,
					 .len = z->len,
					 .total = (size_t)z->total,
					 .ts = z->ts };

	z->in_body = false;
	fn(ctx, &f);
}

void rp_zmtp_feed(struct rp_zmtp *z, uint64_t ts, bool start, const uint8_t *p, size_t n,
		  rp_zmtp_fn fn, void *ctx)
{
	size_t k;

	if (z->lost) {
		if (!start || !n)
			return;
		z->lost = false;
		if (z->fresh && p[0] == 0xff)
			z->greeting = GREETING;
	}
	z->fresh = false;
	while (n || (z->in_body && !z->left)) {
		if (z->greeting) {
			k = n < z->greeting ? n : z->greeting;
			z->greeting -= (unsigned)k;
		} else if (z->in_body) {
			k = n < z->left ? n : (size_t)z->left;
			if (k)
				keep(z, p, k);
			z->left -= k;
			if (!z->left)
				frame_end(z, fn, ctx);
		} else {
			if (!z->head_n)
				z->ts = ts;
			z->head[z->head_n++] = *p;
			k = 1;
			if (!flags_fit(z->head[0]) ||
			    (z->head_n == head_size(z->head[0]) && !head_read(z))) {
				lose(z);
				return;
			}
		}
		p += k;
		n -= k;
	}
}

void rp_zmtp_gap(struct rp_zmtp *z, uint64_t n, rp_zmtp_fn fn, void *ctx)
{
	if (z->lost || !n)
		return;
	/* inside one body the position survives */
	if (z->in_body && n <= z->left) {
		z->broken = true;
		z->left -= n;
		if (!z->left)
			frame_end(z, fn, ctx);
		return;
	}
	lose(z);
}
