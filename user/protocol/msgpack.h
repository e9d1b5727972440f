/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * msgpack.h - a bounded cursor over msgpack. No allocation and no recursion:
 * nesting is a counter of values still to come, and each step takes at least a
 * byte, so no depth or declared count costs more than the bytes at hand.
 */
#ifndef REQPROBE_MSGPACK_H
#define REQPROBE_MSGPACK_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

enum rp_mp_kind {
	RP_MP_NIL,
	RP_MP_BOOL,
	RP_MP_INT,
	RP_MP_FLOAT,
	RP_MP_STR,
	RP_MP_BIN,
	RP_MP_EXT,
	RP_MP_ARRAY,
	RP_MP_MAP,
	RP_MP_BAD, /* 0xc1 */
};

struct rp_mp_item {
	enum rp_mp_kind kind;
	uint8_t head; /* bytes of type, length and ext type */
	uint32_t n;   /* bytes of the body behind them; elements of an array; pairs of a map */
};

/* Of the types 0xc0 to 0xdf: bytes of a length, else the body's size. */
extern const struct rp_mp_type {
	uint8_t kind, len, body;
} rp_mp_types[32];

static inline uint32_t rp_mp_be(const uint8_t *p, unsigned n)
{
	uint32_t v = 0;

	while (n--)
		v = v << 8 | *p++;
	return v;
}

/*
 * The item that begins at p. 0, -EBADMSG, or -ENODATA: its head isn't wholly in
 * `left` bytes. Whether its body is there is the caller's question.
 */
static inline int rp_mp_item(const uint8_t *p, size_t left, struct rp_mp_item *it)
{
	const struct rp_mp_type *t;
	uint8_t c;

	it->head = 1;
	it->n = 0;
	if (!left)
		return -ENODATA;
	c = *p;
	if (c < 0x80 || c >= 0xe0) {
		it->kind = RP_MP_INT;
		return 0;
	}
	if (c < 0xc0) {
		it->kind = c < 0x90 ? RP_MP_MAP : c < 0xa0 ? RP_MP_ARRAY : RP_MP_STR;
		it->n = c < 0xa0 ? c & 0x0f : c & 0x1f;
		return 0;
	}
	t = &rp_mp_types[c - 0xc0];
	it->kind = t->kind;
	if (t->kind == RP_MP_BAD)
		return -EBADMSG;
	it->head = 1 + t->len + (t->kind == RP_MP_EXT);
	if (it->head > left)
		return -ENODATA;
	it->n = t->len ? rp_mp_be(p + 1, t->len) : t->body;
	return 0;
}

/* Bytes behind the head that belong to the item itself. */
static inline size_t rp_mp_body(const struct rp_mp_item *it)
{
	return it->kind < RP_MP_ARRAY ? it->n : 0;
}

/*
 * Skip `count` values, with all that is in them, from p[*at]. 0, or -ENODATA or
 * -EBADMSG; *at is then where the first item stands that is not wholly there.
 */
int rp_mp_skip(const uint8_t *p, size_t len, size_t *at, uint64_t count);

/*
 * Write one value to `keep` without its contents: heads stay, strings become
 * 'x', all else of the same size 0 (nil stays, a bool is false). Of what is cut,
 * the part at hand; of what is malformed, the byte that says so.
 */
void rp_mp_scrub(const uint8_t *p, size_t len, uint8_t *keep);

#endif
