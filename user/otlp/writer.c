// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "otlp/writer.h"

#include "lib/pb.h"
#include "sink/put.h"

/* JSON: what separates it from what is before, and its name. */
static void key(struct rp_ow *w, const char *name)
{
	struct rp_buf *b = w->b;

	if (b->n && b->p[b->n - 1] != '{' && b->p[b->n - 1] != '[')
		LIT(b, ",");
	if (!name)
		return;
	LIT(b, "\"");
	rp_buf_str(b, name);
	LIT(b, "\":");
}

size_t rp_ow_begin(struct rp_ow *w, uint32_t field, const char *name)
{
	if (!w->json)
		return field ? rp_pb_begin(w->b, field) : 0;
	if (field)
		key(w, name);
	LIT(w->b, "{");
	return field;
}

void rp_ow_end(struct rp_ow *w, size_t mark)
{
	if (w->json)
		LIT(w->b, "}");
	else if (mark)
		rp_pb_end(w->b, mark);
}

void rp_ow_list(struct rp_ow *w, const char *name)
{
	if (!w->json)
		return;
	key(w, name);
	LIT(w->b, "[");
}

size_t rp_ow_item(struct rp_ow *w, uint32_t field)
{
	return rp_ow_begin(w, field, NULL);
}

void rp_ow_list_end(struct rp_ow *w)
{
	if (w->json)
		LIT(w->b, "]");
}

void rp_ow_str(struct rp_ow *w, uint32_t field, const char *name, const char *s)
{
	if (!w->json) {
		rp_pb_string(w->b, field, s);
		return;
	}
	key(w, name);
	if (*s)
		rp_put_string_or_null(w->b, s);
	else
		LIT(w->b, "\"\"");
}

void rp_ow_id(struct rp_ow *w, uint32_t field, const char *name, const uint8_t *id, size_t n)
{
	static const char hex[] = "0123456789abcdef";
	char t[2];

	if (!w->json) {
		rp_pb_bytes(w->b, field, id, n);
		return;
	}
	key(w, name);
	LIT(w->b, "\"");
	for (size_t i = 0; i < n; i++) {
		t[0] = hex[id[i] >> 4];
		t[1] = hex[id[i] & 15];
		rp_buf_put(w->b, t, 2);
	}
	LIT(w->b, "\"");
}

void rp_ow_bool(struct rp_ow *w, uint32_t field, const char *name, bool v)
{
	if (!w->json) {
		rp_pb_u64(w->b, field, v);
		return;
	}
	key(w, name);
	rp_put_bool(w->b, v);
}

void rp_ow_u32(struct rp_ow *w, uint32_t field, const char *name, uint32_t v)
{
	if (!w->json) {
		rp_pb_u64(w->b, field, v);
		return;
	}
	key(w, name);
	rp_buf_u64(w->b, v);
}

void rp_ow_fixed32(struct rp_ow *w, uint32_t field, const char *name, uint32_t v)
{
	if (!w->json) {
		rp_pb_fixed32(w->b, field, v);
		return;
	}
	key(w, name);
	rp_buf_u64(w->b, v);
}

void rp_ow_sint32(struct rp_ow *w, uint32_t field, const char *name, int32_t v)
{
	if (!w->json) {
		rp_pb_sint(w->b, field, v);
		return;
	}
	key(w, name);
	rp_put_i64(w->b, v);
}

static void quoted(struct rp_ow *w, int64_t v)
{
	LIT(w->b, "\"");
	rp_put_i64(w->b, v);
	LIT(w->b, "\"");
}

static void quoted_u64(struct rp_ow *w, uint64_t v)
{
	LIT(w->b, "\"");
	rp_buf_u64(w->b, v);
	LIT(w->b, "\"");
}

void rp_ow_i64(struct rp_ow *w, uint32_t field, const char *name, int64_t v)
{
	if (!w->json) {
		rp_pb_u64(w->b, field, (uint64_t)v);
		return;
	}
	key(w, name);
	quoted(w, v);
}

void rp_ow_fixed64(struct rp_ow *w, uint32_t field, const char *name, uint64_t v)
{
	if (!w->json) {
		rp_pb_fixed64(w->b, field, v);
		return;
	}
	key(w, name);
	quoted_u64(w, v);
}

void rp_ow_sfixed64(struct rp_ow *w, uint32_t field, const char *name, int64_t v)
{
	if (!w->json) {
		rp_pb_fixed64(w->b, field, (uint64_t)v);
		return;
	}
	key(w, name);
	quoted(w, v);
}

void rp_ow_double(struct rp_ow *w, uint32_t field, const char *name, double v)
{
	if (!w->json) {
		rp_pb_double(w->b, field, v);
		return;
	}
	key(w, name);
	rp_buf_double(w->b, v);
}

void rp_ow_fixed64s(struct rp_ow *w, uint32_t field, const char *name, const uint64_t *v, size_t n)
{
	size_t mark;

	if (!w->json) {
		mark = rp_pb_begin(w->b, field);
		for (size_t i = 0; i < n; i++)
			rp_pb_raw64(w->b, v[i]);
		rp_pb_end(w->b, mark);
		return;
	}
	rp_ow_list(w, name);
	for (size_t i = 0; i < n; i++) {
		key(w, NULL);
		quoted_u64(w, v[i]);
	}
	rp_ow_list_end(w);
}

void rp_ow_u64s(struct rp_ow *w, uint32_t field, const char *name, const uint64_t *v, size_t n)
{
	size_t mark;

	if (w->json) {
		rp_ow_fixed64s(w, field, name, v, n);
		return;
	}
	mark = rp_pb_begin(w->b, field);
	for (size_t i = 0; i < n; i++)
		rp_pb_varint(w->b, v[i]);
	rp_pb_end(w->b, mark);
}

void rp_ow_doubles(struct rp_ow *w, uint32_t field, const char *name, const double *v, size_t n)
{
	uint64_t bits;
	size_t mark;

	if (!w->json) {
		mark = rp_pb_begin(w->b, field);
		for (size_t i = 0; i < n; i++) {
			memcpy(&bits, &v[i], sizeof(bits));
			rp_pb_raw64(w->b, bits);
		}
		rp_pb_end(w->b, mark);
		return;
	}
	rp_ow_list(w, name);
	for (size_t i = 0; i < n; i++) {
		key(w, NULL);
		rp_buf_double(w->b, v[i]);
	}
	rp_ow_list_end(w);
}

/* KeyValue: 1 key, 2 value. AnyValue: 1 string, 2 bool, 3 int, 4 double, 5 array. */
struct kv {
	size_t item, value;
};

static struct kv kv_begin(struct rp_ow *w, uint32_t field, const char *k)
{
	struct kv m;

	m.item = rp_ow_item(w, field);
	rp_ow_str(w, 1, "key", k);
	m.value = rp_ow_begin(w, 2, "value");
	return m;
}

static void kv_end(struct rp_ow *w, struct kv m)
{
	rp_ow_end(w, m.value);
	rp_ow_end(w, m.item);
}

void rp_ow_attr(struct rp_ow *w, uint32_t field, const char *k, const char *value)
{
	struct kv m = kv_begin(w, field, k);

	rp_ow_str(w, 1, "stringValue", value);
	kv_end(w, m);
}

void rp_ow_attr_i64(struct rp_ow *w, uint32_t field, const char *k, int64_t v)
{
	struct kv m = kv_begin(w, field, k);

	rp_ow_i64(w, 3, "intValue", v);
	kv_end(w, m);
}

void rp_ow_attr_double(struct rp_ow *w, uint32_t field, const char *k, double v)
{
	struct kv m = kv_begin(w, field, k);

	rp_ow_double(w, 4, "doubleValue", v);
	kv_end(w, m);
}

void rp_ow_attr_bool(struct rp_ow *w, uint32_t field, const char *k, bool v)
{
	struct kv m = kv_begin(w, field, k);

	rp_ow_bool(w, 2, "boolValue", v);
	kv_end(w, m);
}

void rp_ow_attr_strs(struct rp_ow *w, uint32_t field, const char *k, const char *const *v, size_t n)
{
	struct kv m = kv_begin(w, field, k);
	size_t array = rp_ow_begin(w, 5, "arrayValue"), item;

	rp_ow_list(w, "values");
	for (size_t i = 0; i < n; i++) {
		item = rp_ow_item(w, 1);
		rp_ow_str(w, 1, "stringValue", v[i]);
		rp_ow_end(w, item);
	}
	rp_ow_list_end(w);
	rp_ow_end(w, array);
	kv_end(w, m);
}
