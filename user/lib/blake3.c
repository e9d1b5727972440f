// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "lib/blake3.h"

#include <stdbool.h>
#include <string.h>

#define CHUNK_LEN 1024
#define BLOCK_LEN 64

enum {
	CHUNK_START = 1 << 0,
	CHUNK_END = 1 << 1,
	PARENT = 1 << 2,
	ROOT = 1 << 3,
	KEYED_HASH = 1 << 4,
};

static const uint32_t iv[8] = {
	0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
	0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

static uint32_t rotr(uint32_t x, unsigned n)
{
	return x >> n | x << (32 - n);
}

static uint32_t load32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

/* The quarter round of section 2.2. */
static void quarter(uint32_t v[16], int a, int b, int c, int d, uint32_t x, uint32_t y)
{
	v[a] += v[b] + x;
	v[d] = rotr(v[d] ^ v[a], 16);
	v[c] += v[d];
	v[b] = rotr(v[b] ^ v[c], 12);
	v[a] += v[b] + y;
	v[d] = rotr(v[d] ^ v[a], 8);
	v[c] += v[d];
	v[b] = rotr(v[b] ^ v[c], 7);
}

/* One node: its first eight output words. */
static void compress(const uint32_t cv[8], const uint8_t block[BLOCK_LEN], uint32_t len,
		     uint64_t counter, uint32_t flags, uint32_t out[8])
{
	static const uint8_t permutation[16] = { 2, 6,	3,  10, 7, 0,  4,  13,
						 1, 11, 12, 5,	9, 14, 15, 8 };
	uint32_t v[16], m[16], t[16];

	for (int i = 0; i < 8; i++)
		v[i] = cv[i];
	for (int i = 0; i < 4; i++)
		v[8 + i] = iv[i];
	v[12] = (uint32_t)counter;
	v[13] = (uint32_t)(counter >> 32);
	v[14] = len;
	v[15] = flags;
	for (int i = 0; i < 16; i++)
		m[i] = load32(block + 4 * (size_t)i);
	for (int round = 0; round < 7; round++) {
		for (int i = 0; i < 4; i++) /* the columns */
			quarter(v, i, 4 + i, 8 + i, 12 + i, m[2 * i], m[2 * i + 1]);
		for (int i = 0; i < 4; i++) /* the diagonals */
			quarter(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4,
				m[8 + 2 * i], m[9 + 2 * i]);
		for (int i = 0; i < 16; i++)
			t[i] = m[permutation[i]];
		memcpy(m, t, sizeof(m));
	}
	for (int i = 0; i < 8; i++)
		out[i] = v[i] ^ v[8 + i];
}

static void parent(const struct rp_blake3 *h, const uint32_t left[8], const uint32_t right[8],
		   uint32_t flags, uint32_t out[8])
{
	uint8_t block[BLOCK_LEN];

	for (int i = 0; i < 8; i++) {
		store32(block + 4 * (size_t)i, left[i]);
		store32(block + 32 + 4 * (size_t)i, right[i]);
	}
	compress(h->key, block, BLOCK_LEN, 0, h->mode | PARENT | flags, out);
}

static void start(struct rp_blake3 *h)
{
	memcpy(h->cv, h->key, sizeof(h->cv));
	h->block_len = 0;
	h->blocks = 0;
}

void rp_blake3_init(struct rp_blake3 *h)
{
	memset(h, 0, sizeof(*h));
	memcpy(h->key, iv, sizeof(h->key));
	start(h);
}

void rp_blake3_init_keyed(struct rp_blake3 *h, const uint8_t key[RP_BLAKE3_LEN])
{
	memset(h, 0, sizeof(*h));
	for (int i = 0; i < 8; i++)
		h->key[i] = load32(key + 4 * (size_t)i);
	h->mode = KEYED_HASH;
	start(h);
}

/* The last block of a chunk, as it stands: zeros behind its bytes. */
static void last_block(const struct rp_blake3 *h, uint32_t flags, uint32_t out[8])
{
	uint8_t block[BLOCK_LEN] = { 0 };

	memcpy(block, h->block, h->block_len);
	compress(h->cv, block, h->block_len, h->chunk,
		 h->mode | (h->blocks ? 0 : CHUNK_START) | CHUNK_END | flags, out);
}

/* The chunk is full and more follows: join it with the subtrees it completes,
 * one for each trailing zero of the number of chunks so far. */
static void next_chunk(struct rp_blake3 *h)
{
	uint32_t cv[8];

	last_block(h, 0, cv);
	h->chunk++;
	for (uint64_t n = h->chunk; !(n & 1); n >>= 1)
		parent(h, h->stack[--h->depth], cv, 0, cv);
	memcpy(h->stack[h->depth++], cv, sizeof(cv));
	start(h);
}

void rp_blake3_update(struct rp_blake3 *h, const void *data, size_t n)
{
	const uint8_t *p = data;

	while (n) {
		size_t take;

		if (h->block_len == BLOCK_LEN) {
			if (h->blocks == CHUNK_LEN / BLOCK_LEN - 1) {
				next_chunk(h);
			} else {
				compress(h->cv, h->block, BLOCK_LEN, h->chunk,
					 h->mode | (h->blocks ? 0 : CHUNK_START), h->cv);
				h->blocks++;
				h->block_len = 0;
			}
		}
		take = BLOCK_LEN - (size_t)h->block_len;
		take = take < n ? take : n;
		memcpy(h->block + h->block_len, p, take);
		h->block_len = (uint8_t)(h->block_len + take);
		p += take;
		n -= take;
	}
}

void rp_blake3_final(const struct rp_blake3 *h, uint8_t out[RP_BLAKE3_LEN])
{
	uint32_t cv[8];

	last_block(h, h->depth ? 0 : ROOT, cv);
	for (unsigned i = h->depth; i > 0; i--)
		parent(h, h->stack[i - 1], cv, i == 1 ? ROOT : 0, cv);
	for (int i = 0; i < 8; i++)
		store32(out + 4 * (size_t)i, cv[i]);
}

void rp_blake3_hex(const uint8_t hash[RP_BLAKE3_LEN], char out[RP_BLAKE3_HEX])
{
	static const char hex[] = "0123456789abcdef";

	for (int i = 0; i < RP_BLAKE3_LEN; i++) {
		out[2 * i] = hex[hash[i] >> 4];
		out[2 * i + 1] = hex[hash[i] & 15];
	}
	out[RP_BLAKE3_HEX - 1] = 0;
}
