/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * zmtp.h - ZMTP 3.x framing (RFC 23/ZMTP 3.0, 37/ZMTP 3.1): one direction of a
 * connection, as its writes come, to frames.
 *
 *   frame   = flags (1)  size (1, or 8 big endian when LONG)  body
 *   flags   : bit 0 MORE, bit 1 LONG, bit 2 COMMAND; the others are 0
 *   greeting: 64 bytes, the first 0xff, the tenth 0x7f
 *
 * Incremental at every byte. What was missed (a connection older than the
 * attach, a loss) is found again at the start of a later write: libzmq writes
 * batches of whole frames unless a frame is longer than its batch. A start that
 * does not look like a frame is skipped up to the next write.
 */
#ifndef REQPROBE_ZMTP_H
#define REQPROBE_ZMTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rp_zmtp_flags { RP_ZMTP_MORE = 1, RP_ZMTP_LONG = 2, RP_ZMTP_COMMAND = 4 };

#define RP_ZMTP_FRAME_MAX (64u << 20) /* a longer one is no frame but lost position */

struct rp_zmtp_frame {
	uint8_t flags;
	const uint8_t *body; /* valid during the callback */
	size_t len;	     /* of body: the first bytes of the frame */
	size_t total; /* of the frame; len < total: the rest was not seen, or over the limit */
	uint64_t ts;  /* as given with its first byte */
};

struct rp_zmtp {
	size_t max;	 /* bytes kept of a frame */
	uint8_t *buf;	 /* owned */
	size_t cap, len; /* of the frame at hand */
	uint8_t head[9];
	unsigned head_n;
	bool in_body, broken; /* broken: bytes of this frame are missing */
	uint64_t total, left;
	uint64_t ts;
	unsigned greeting; /* bytes of it still to come */
	bool lost;	   /* position unknown until the next write */
	bool fresh;	   /* nothing was read yet */
	uint64_t resyncs;
};

typedef void (*rp_zmtp_fn)(void *ctx, const struct rp_zmtp_frame *f);

/* max: bytes kept of each frame; the buffer grows up to it. */
void rp_zmtp_init(struct rp_zmtp *z, size_t max);
void rp_zmtp_free(struct rp_zmtp *z);

/*
 * Bytes of a write, in order. start: these are the first bytes of a write. fn is
 * called for each frame that ends in them, COMMANDs included. Never fails: what
 * can't be a frame makes `lost`, and resyncs counts how often.
 */
void rp_zmtp_feed(struct rp_zmtp *z, uint64_t ts, bool start, const uint8_t *p, size_t n,
		  rp_zmtp_fn fn, void *ctx);
/* n bytes of the stream were not seen. */
void rp_zmtp_gap(struct rp_zmtp *z, uint64_t n, rp_zmtp_fn fn, void *ctx);

#endif
