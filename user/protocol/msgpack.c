/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* msgpack.c - a bounded cursor over msgpack. */
#include "protocol/msgpack.h"

#include <string.h>

const struct rp_mp_type rp_mp_types[32] = {
	{ RP_MP_NIL, 0, 0 },   { RP_MP_BAD, 0, 0 },   { RP_MP_BOOL, 0, 0 },  { RP_MP_BOOL, 0, 0 },
	{ RP_MP_BIN, 1, 0 },   { RP_MP_BIN, 2, 0 },   { RP_MP_BIN, 4, 0 },   { RP_MP_EXT, 1, 0 },
	{ RP_MP_EXT, 2, 0 },   { RP_MP_EXT, 4, 0 },   { RP_MP_FLOAT, 0, 4 }, { RP_MP_FLOAT, 0, 8 },
	{ RP_MP_INT, 0, 1 },   { RP_MP_INT, 0, 2 },   { RP_MP_INT, 0, 4 },   { RP_MP_INT, 0, 8 },
	{ RP_MP_INT, 0, 1 },   { RP_MP_INT, 0, 2 },   { RP_MP_INT, 0, 4 },   { RP_MP_INT, 0, 8 },
	{ RP_MP_EXT, 0, 1 },   { RP_MP_EXT, 0, 2 },   { RP_MP_EXT, 0, 4 },   { RP_MP_EXT, 0, 8 },
	{ RP_MP_EXT, 0, 16 },  { RP_MP_STR, 1, 0 },   { RP_MP_STR, 2, 0 },   { RP_MP_STR, 4, 0 },
	{ RP_MP_ARRAY, 2, 0 }, { RP_MP_ARRAY, 4, 0 }, { RP_MP_MAP, 2, 0 },   { RP_MP_MAP, 4, 0 },
};

/* Values in an item. The sum of them all can't wrap: a head of 5 bytes declares
 * less than 2^33 of them. */
static uint64_t children(const struct rp_mp_item *it)
{
	return it->kind == RP_MP_ARRAY ? it->n : it->kind == RP_MP_MAP ? 2ull * it->n : 0;
}

int rp_mp_skip(const uint8_t *p, size_t len, size_t *at, uint64_t count)
{
	size_t i = *at;
	int rc = 0;

	while (count) {
		struct rp_mp_item it;

		rc = rp_mp_item(p + i, len - i, &it);
		if (rc)
			break;
		if (rp_mp_body(&it) > len - i - it.head) {
			rc = -ENODATA;
			break;
		}
		i += it.head + rp_mp_body(&it);
		count += children(&it) - 1;
	}
	*at = i;
	return rc;
}

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

void rp_mp_scrub(const uint8_t *p, size_t len, uint8_t *keep)
{
	uint64_t count = 1;
	size_t i = 0, head, body;

	while (count && i < len) {
		struct rp_mp_item it;
		int rc = rp_mp_item(p + i, len - i, &it);

		head = rc ? min_size(it.head, len - i) : it.head;
		memcpy(keep + i, p + i, head);
		if (rc)
			return;
		if (it.kind == RP_MP_BOOL)
			keep[i] = 0xc2;
		else if (it.kind == RP_MP_INT && !it.n)
			keep[i] = 0;
		i += head;
		body = min_size(rp_mp_body(&it), len - i);
		memset(keep + i, it.kind == RP_MP_STR ? 'x' : 0, body);
		i += body;
		count += children(&it) - 1;
	}
}
