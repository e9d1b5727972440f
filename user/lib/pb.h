/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * pb.h - writes protobuf's wire format (protobuf.dev, "Encoding") into a struct
 * rp_buf. Nothing is left out: that a field has its default, and need not be
 * written, is the caller's to know. A full memory shows as oom of the buffer.
 */
#ifndef REQPROBE_LIB_PB_H
#define REQPROBE_LIB_PB_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "sink/sink.h"

enum rp_pb_wire { RP_PB_VARINT = 0, RP_PB_FIXED64 = 1, RP_PB_LEN = 2, RP_PB_FIXED32 = 5 };

void rp_pb_varint(struct rp_buf *b, uint64_t v);
static inline void rp_pb_tag(struct rp_buf *b, uint32_t field, enum rp_pb_wire wire)
{
	rp_pb_varint(b, (uint64_t)field << 3 | wire);
}
/* For elements of packed fields; a field of its own is rp_pb_sint(), rp_pb_fixed64(). */
static inline uint64_t rp_pb_zigzag(int64_t v)
{
	return (uint64_t)v << 1 ^ (uint64_t)(v >> 63);
}
void rp_pb_raw64(struct rp_buf *b, uint64_t v);

/* uint32, uint64, bool, enum; int32 and int64 as (uint64_t)(int64_t)v */
static inline void rp_pb_u64(struct rp_buf *b, uint32_t field, uint64_t v)
{
	rp_pb_tag(b, field, RP_PB_VARINT);
	rp_pb_varint(b, v);
}
/* sint32, sint64 */
static inline void rp_pb_sint(struct rp_buf *b, uint32_t field, int64_t v)
{
	rp_pb_u64(b, field, rp_pb_zigzag(v));
}
/* fixed64, sfixed64 */
static inline void rp_pb_fixed64(struct rp_buf *b, uint32_t field, uint64_t v)
{
	rp_pb_tag(b, field, RP_PB_FIXED64);
	rp_pb_raw64(b, v);
}
static inline void rp_pb_fixed32(struct rp_buf *b, uint32_t field, uint32_t v)
{
	const char t[4] = { (char)v, (char)(v >> 8), (char)(v >> 16), (char)(v >> 24) };

	rp_pb_tag(b, field, RP_PB_FIXED32);
	rp_buf_put(b, t, sizeof(t));
}
static inline void rp_pb_double(struct rp_buf *b, uint32_t field, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	rp_pb_fixed64(b, field, bits);
}
void rp_pb_bytes(struct rp_buf *b, uint32_t field, const void *p, size_t n);
/* Of text that may be no UTF-8, which receivers refuse: what is ill-formed becomes
 * U+FFFD. */
void rp_pb_string(struct rp_buf *b, uint32_t field, const char *s);

/*
 * A submessage, or a packed field: what is written between the two is its content.
 * They nest. begin returns what its end wants. Field 0: no tag, only the length, as
 * in a stream of delimited messages.
 */
size_t rp_pb_begin(struct rp_buf *b, uint32_t field);
void rp_pb_end(struct rp_buf *b, size_t mark);

#endif
