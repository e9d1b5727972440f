/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * blake3.h - the BLAKE3 hash and its keyed mode, 32 bytes of output, fed in
 * pieces of any size. Written after the specification (draft-aumasson-blake3).
 * Portable and small: it hashes ids, not files. No allocation.
 */
#ifndef REQPROBE_LIB_BLAKE3_H
#define REQPROBE_LIB_BLAKE3_H

#include <stddef.h>
#include <stdint.h>

#define RP_BLAKE3_LEN 32
#define RP_BLAKE3_HEX (2 * RP_BLAKE3_LEN + 1) /* with the NUL */

struct rp_blake3 {
	uint32_t key[8];
	uint32_t cv[8];	       /* of the chunk being read */
	uint8_t block[64];     /* its last block: compressed when a further byte comes */
	uint8_t block_len;     /* bytes in it */
	uint8_t blocks;	       /* of this chunk, compressed */
	uint8_t mode;	       /* flags of every node */
	uint8_t depth;	       /* of stack */
	uint64_t chunk;	       /* its number */
	uint32_t stack[54][8]; /* left subtrees that still wait for their right one */
};

void rp_blake3_init(struct rp_blake3 *h);
void rp_blake3_init_keyed(struct rp_blake3 *h, const uint8_t key[RP_BLAKE3_LEN]);
void rp_blake3_update(struct rp_blake3 *h, const void *data, size_t n);
/* The hash of what was fed so far; feeding may go on. */
void rp_blake3_final(const struct rp_blake3 *h, uint8_t out[RP_BLAKE3_LEN]);

/* Lower case, NUL-terminated. */
void rp_blake3_hex(const uint8_t hash[RP_BLAKE3_LEN], char out[RP_BLAKE3_HEX]);

#endif
