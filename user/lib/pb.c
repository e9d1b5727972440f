// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "lib/pb.h"

static size_t encode(uint8_t out[10], uint64_t v)
{
	size_t n = 0;

	while (v >= 0x80) {
		out[n++] = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	out[n++] = (uint8_t)v;
	return n;
}

void rp_pb_varint(struct rp_buf *b, uint64_t v)
{
	uint8_t t[10];

	rp_buf_put(b, (const char *)t, encode(t, v));
}

void rp_pb_raw64(struct rp_buf *b, uint64_t v)
{
	uint8_t t[8];

	for (int i = 0; i < 8; i++)
		t[i] = (uint8_t)(v >> 8 * i);
	rp_buf_put(b, (const char *)t, sizeof(t));
}

void rp_pb_bytes(struct rp_buf *b, uint32_t field, const void *p, size_t n)
{
	rp_pb_tag(b, field, RP_PB_LEN);
	rp_pb_varint(b, n);
	rp_buf_put(b, p, n);
}

void rp_pb_string(struct rp_buf *b, uint32_t field, const char *str)
{
	const unsigned char *s = (const unsigned char *)str;
	size_t mark = rp_pb_begin(b, field);

	while (*s) {
		int n = rp_utf8_len(s);

		if (n < 0)
			rp_buf_put(b, "\xef\xbf\xbd", 3);
		else
			rp_buf_put(b, (const char *)s, (size_t)n);
		s += n < 0 ? -n : n;
	}
	rp_pb_end(b, mark);
}

size_t rp_pb_begin(struct rp_buf *b, uint32_t field)
{
	if (field)
		rp_pb_tag(b, field, RP_PB_LEN);
	return b->n;
}

/* The length is known only now: the content makes room for it. */
void rp_pb_end(struct rp_buf *b, size_t mark)
{
	uint8_t t[10];
	size_t len, n;

	if (b->oom || mark > b->n)
		return;
	len = b->n - mark;
	n = encode(t, len);
	if (b->cap - b->n < n && !rp_buf_grow(b, n))
		return;
	memmove(b->p + mark + n, b->p + mark, len);
	memcpy(b->p + mark, t, n);
	b->n += n;
}
