/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * writer.h - OTLP messages as protobuf or as JSON, from one description. Every field
 * has its number and its lowerCamelCase name (opentelemetry-proto). OTLP/JSON is not
 * proto3's JSON in full: enums are numbers, ids are hex (OTLP specification, "JSON
 * Protobuf Encoding"); 64-bit integers are decimal strings as there.
 *
 * A default (0, "", false) is written only where a field's presence says something:
 * that is the caller's to decide. A full memory shows as oom of the buffer.
 */
#ifndef REQPROBE_OTLP_WRITER_H
#define REQPROBE_OTLP_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sink/sink.h"

struct rp_ow {
	struct rp_buf *b;
	bool json;
};

/* A message, the only one of its field; begin returns what its end wants. Field 0: the
 * outermost. */
size_t rp_ow_begin(struct rp_ow *w, uint32_t field, const char *name);
void rp_ow_end(struct rp_ow *w, size_t mark);
/* A repeated message: list, then item and end for each, then list_end. */
void rp_ow_list(struct rp_ow *w, const char *name);
size_t rp_ow_item(struct rp_ow *w, uint32_t field);
void rp_ow_list_end(struct rp_ow *w);

void rp_ow_str(struct rp_ow *w, uint32_t field, const char *name, const char *s);
void rp_ow_id(struct rp_ow *w, uint32_t field, const char *name, const uint8_t *id, size_t n);
void rp_ow_bool(struct rp_ow *w, uint32_t field, const char *name, bool v);
void rp_ow_u32(struct rp_ow *w, uint32_t field, const char *name, uint32_t v); /* and enums */
void rp_ow_fixed32(struct rp_ow *w, uint32_t field, const char *name, uint32_t v);
void rp_ow_sint32(struct rp_ow *w, uint32_t field, const char *name, int32_t v);
void rp_ow_i64(struct rp_ow *w, uint32_t field, const char *name, int64_t v);
void rp_ow_fixed64(struct rp_ow *w, uint32_t field, const char *name, uint64_t v);
void rp_ow_sfixed64(struct rp_ow *w, uint32_t field, const char *name, int64_t v);
void rp_ow_double(struct rp_ow *w, uint32_t field, const char *name, double v);
/* packed */
void rp_ow_fixed64s(struct rp_ow *w, uint32_t field, const char *name, const uint64_t *v, size_t n);
void rp_ow_u64s(struct rp_ow *w, uint32_t field, const char *name, const uint64_t *v, size_t n);
void rp_ow_doubles(struct rp_ow *w, uint32_t field, const char *name, const double *v, size_t n);

/* One KeyValue, an item of a list whose field this is. */
void rp_ow_attr(struct rp_ow *w, uint32_t field, const char *key, const char *value);
void rp_ow_attr_i64(struct rp_ow *w, uint32_t field, const char *key, int64_t v);
void rp_ow_attr_double(struct rp_ow *w, uint32_t field, const char *key, double v);
void rp_ow_attr_bool(struct rp_ow *w, uint32_t field, const char *key, bool v);
void rp_ow_attr_strs(struct rp_ow *w, uint32_t field, const char *key, const char *const *v,
		     size_t n);

#endif
