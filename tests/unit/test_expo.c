// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The exposition formats, byte for byte. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sink/expo.h"

static void test_negotiation(void **s)
{
	static const struct {
		const char *accept;
		enum rp_expo_format want;
	} t[] = {
		{ NULL, RP_EXPO_TEXT },
		{ "", RP_EXPO_TEXT },
		{ "*/*", RP_EXPO_TEXT },
		{ "text/plain", RP_EXPO_TEXT },
		{ "text/plain;version=0.0.4", RP_EXPO_TEXT },
		{ "Text/Plain; Version=\"1.0.0\"; escaping=allow-utf-8", RP_EXPO_TEXT_1 },
		{ "application/openmetrics-text", RP_EXPO_OPENMETRICS },
		{ "application/openmetrics-text; version=1.0.0; charset=utf-8",
		  RP_EXPO_OPENMETRICS },
		/* one that we don't speak is passed over */
		{ "application/openmetrics-text;version=0.0.1,text/plain;q=0.1", RP_EXPO_TEXT },
		{ "application/openmetrics-text;version=2.0.0", RP_EXPO_TEXT },
		{ "application/vnd.google.protobuf", RP_EXPO_TEXT },
		{ "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
		  RP_EXPO_TEXT },
		{ "application/vnd.google.protobuf;encoding=delimited;proto=io.prometheus.client.MetricFamily",
		  RP_EXPO_PROTOBUF },
		/* Prometheus 2.42, without and with native histograms */
		{ "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
		  RP_EXPO_OPENMETRICS },
		{ "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
		  RP_EXPO_PROTOBUF },
		/* weights decide, then order */
		{ "application/openmetrics-text;q=0.5, text/plain;q=0.9", RP_EXPO_TEXT },
		{ "text/plain;q=0.85, application/openmetrics-text;q=0.850", RP_EXPO_TEXT },
		{ "text/plain;q=0.849, application/openmetrics-text;q=0.85", RP_EXPO_OPENMETRICS },
		{ "application/openmetrics-text;q=0", RP_EXPO_TEXT },
		{ "application/openmetrics-text;q=0.000,text/plain;q=0.001", RP_EXPO_TEXT },
		{ "application/openmetrics-text;q=2,text/plain;q=0.1", RP_EXPO_TEXT },
		{ "application/openmetrics-text;q=1.5,text/plain;q=0.1", RP_EXPO_OPENMETRICS },
		/* rubbish */
		{ ",,;;==,;q=,q=1;", RP_EXPO_TEXT },
		{ "application/openmetrics-text;q", RP_EXPO_TEXT },
		{ " application/openmetrics-text ;\tq = 0.3 ", RP_EXPO_OPENMETRICS },
		{ "text/html", RP_EXPO_TEXT },
	};

	(void)s;
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++)
		if (rp_expo_negotiate(t[i].accept) != t[i].want)
			fail_msg("%s: %d", t[i].accept, rp_expo_negotiate(t[i].accept));
}

static void test_gzip_asked_for(void **s)
{
	static const struct {
		const char *coding;
		bool want;
	} t[] = {
		{ NULL, false },
		{ "", false },
		{ "gzip", true }, /* Prometheus */
		{ "GZip;q=0.5", true },
		{ "x-gzip", true },
		{ "deflate, gzip;q=1.0, *;q=0.5", true },
		{ "gzip, deflate, br, zstd", true }, /* browsers */
		{ "*", true },
		{ "deflate;foo=bar;q=0.1,gzip;foo=bar;q=0.1", true },
		{ "identity", false },
		{ "deflate", false },
		{ "gzip;q=0", false },
		{ "gzip;q=0, *", false },
		{ "*;q=0", false },
		{ "identity;q=1, gzip;q=0.5", false },
		{ "identity;q=0.5, gzip;q=0.5", true },
		{ "gzippy, zip", false },
		{ "gzip;q=rubbish", false },
		{ ",;;=gzip;=,", false },
	};

	(void)s;
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++)
		if (rp_expo_takes_gzip(t[i].coding) != t[i].want)
			fail_msg("%s: %d", t[i].coding, !t[i].want);
}

/* ---- one of each type ---- */

static const struct rp_bound bounds[] = {
	{ "0.00001", 10000 }, { "0.000025", 25000 },	 { "0.25", 250000000 },
	{ "1", 1000000000 },  { "2560", 2560000000000 },
};
static const struct rp_scale scale = { bounds, 5, false, true };
static const struct rp_bound count_bounds[] = { { NULL, 1 }, { NULL, 500000 }, { NULL, 1000000 } };
static const struct rp_scale counts = { count_bounds, 3, true, false };
static struct rp_hist_room room = { .max_exemplars = 10, .max_native = 10 };

static void some(struct rp_expo *e)
{
	const struct rp_label l[] = { { "model", "a\"b\\c\nd\x01\xff" }, { "x", "" } };
	struct rp_exemplar_of of = { "req-\"1\"", 1700000000123456789 };
	struct rp_hist h = { .count = 0 }, n = { .count = 0 };

	rp_hist_add(&h, &scale, &room, 250000000, 1, &of);
	rp_hist_add(&h, &scale, &room, 250000001, 2, NULL);
	rp_hist_add(&h, &scale, &room, 0, 1, NULL);
	rp_hist_add(&h, &scale, &room, 3000000000000, 1, &of);
	rp_hist_add(&h, &scale, &room, -1, 1, &of);
	rp_hist_add(&n, &counts, &room, 2, 3, NULL);
	rp_expo_family(e, "a_total", RP_EXPO_COUNTER, "Of \"a\\b\".");
	rp_expo_u64(e, l, 2, 7);
	rp_expo_family(e, "b_seconds_total", RP_EXPO_COUNTER, "B.");
	rp_expo_seconds(e, l + 1, 1, 1500000001);
	rp_expo_family(e, "c_bytes", RP_EXPO_GAUGE, "C.");
	rp_expo_double(e, NULL, 0, 0.5);
	rp_expo_double(e, l + 1, 1, NAN);
	rp_expo_family(e, "d_seconds", RP_EXPO_HISTOGRAM, "D.");
	rp_expo_hist(e, l + 1, 1, &scale, &h);
	rp_expo_family(e, "e_total", RP_EXPO_HISTOGRAM, "E.");
	rp_expo_hist(e, NULL, 0, &counts, &n);
	rp_expo_family(e, "f", RP_EXPO_SUMMARY, "F.");
	rp_expo_summary(e, NULL, 0, 2, 12.5);
	rp_expo_end(e);
	rp_hist_free(&h, &room);
	rp_hist_free(&n, &room);
	assert_int_equal(room.exemplars, 0);
	assert_int_equal(room.native, 0);
}

static void compare(const struct rp_buf *b, const char *want)
{
	assert_false(b->oom);
	if (b->n != strlen(want) || memcmp(b->p, want, b->n))
		fail_msg("got\n%.*s\nwant\n%s", (int)b->n, b->p, want);
}

static void test_text(void **s)
{
	struct rp_buf b = { 0 };
	struct rp_expo e = { .b = &b };

	(void)s;
	some(&e);
	compare(&b, "# HELP a_total Of \"a\\\\b\".\n"
		    "# TYPE a_total counter\n"
		    "a_total{model=\"a\\\"b\\\\c\\nd\xef\xbf\xbd\xef\xbf\xbd\",x=\"\"} 7\n"
		    "# HELP b_seconds_total B.\n"
		    "# TYPE b_seconds_total counter\n"
		    "b_seconds_total{x=\"\"} 1.500000001\n"
		    "# HELP c_bytes C.\n"
		    "# TYPE c_bytes gauge\n"
		    "c_bytes 0.5\n"
		    "c_bytes{x=\"\"} NaN\n"
		    "# HELP d_seconds D.\n"
		    "# TYPE d_seconds histogram\n"
		    "d_seconds_bucket{x=\"\",le=\"0.00001\"} 1\n"
		    "d_seconds_bucket{x=\"\",le=\"0.000025\"} 1\n"
		    "d_seconds_bucket{x=\"\",le=\"0.25\"} 2\n"
		    "d_seconds_bucket{x=\"\",le=\"1\"} 4\n"
		    "d_seconds_bucket{x=\"\",le=\"2560\"} 4\n"
		    "d_seconds_bucket{x=\"\",le=\"+Inf\"} 5\n"
		    "d_seconds_sum{x=\"\"} 3000.750000002\n"
		    "d_seconds_count{x=\"\"} 5\n"
		    "# HELP e_total E.\n"
		    "# TYPE e_total histogram\n"
		    "e_total_bucket{le=\"1.0\"} 0\n"
		    "e_total_bucket{le=\"500000.0\"} 3\n"
		    "e_total_bucket{le=\"1e+06\"} 3\n"
		    "e_total_bucket{le=\"+Inf\"} 3\n"
		    "e_total_sum 6\n"
		    "e_total_count 3\n"
		    "# HELP f F.\n"
		    "# TYPE f summary\n"
		    "f_count 2\n"
		    "f_sum 12.5\n");
	free(b.p);
}

static void test_openmetrics(void **s)
{
	struct rp_buf b = { 0 };
	struct rp_expo e = { .b = &b, .format = RP_EXPO_OPENMETRICS };

	(void)s;
	some(&e);
	compare(&b,
		"# TYPE a counter\n"
		"# HELP a Of \\\"a\\\\b\\\".\n"
		"a_total{model=\"a\\\"b\\\\c\\nd\xef\xbf\xbd\xef\xbf\xbd\",x=\"\"} 7\n"
		"# TYPE b_seconds counter\n"
		"# UNIT b_seconds seconds\n"
		"# HELP b_seconds B.\n"
		"b_seconds_total{x=\"\"} 1.500000001\n"
		"# TYPE c_bytes gauge\n"
		"# UNIT c_bytes bytes\n"
		"# HELP c_bytes C.\n"
		"c_bytes 0.5\n"
		"c_bytes{x=\"\"} NaN\n"
		"# TYPE d_seconds histogram\n"
		"# UNIT d_seconds seconds\n"
		"# HELP d_seconds D.\n"
		"d_seconds_bucket{x=\"\",le=\"1e-05\"} 1\n"
		"d_seconds_bucket{x=\"\",le=\"2.5e-05\"} 1\n"
		"d_seconds_bucket{x=\"\",le=\"0.25\"} 2 # {request_id=\"req-\\\"1\\\"\"} 0.25 1700000000.123456789\n"
		"d_seconds_bucket{x=\"\",le=\"1.0\"} 4\n"
		"d_seconds_bucket{x=\"\",le=\"2560.0\"} 4\n"
		"d_seconds_bucket{x=\"\",le=\"+Inf\"} 5 # {request_id=\"req-\\\"1\\\"\"} 3000 1700000000.123456789\n"
		"d_seconds_sum{x=\"\"} 3000.750000002\n"
		"d_seconds_count{x=\"\"} 5\n"
		"# TYPE e_total histogram\n"
		"# HELP e_total E.\n"
		"e_total_bucket{le=\"1.0\"} 0\n"
		"e_total_bucket{le=\"500000.0\"} 3\n"
		"e_total_bucket{le=\"1e+06\"} 3\n"
		"e_total_bucket{le=\"+Inf\"} 3\n"
		"e_total_sum 6\n"
		"e_total_count 3\n"
		"# TYPE f summary\n"
		"# HELP f F.\n"
		"f_count 2\n"
		"f_sum 12.5\n"
		"# EOF\n");
	free(b.p);
}

/* ---- protobuf, by a reader of its own ---- */

struct pb {
	const uint8_t *p, *end;
};

static uint64_t varint(struct pb *m)
{
	uint64_t v = 0;

	for (int shift = 0;; shift += 7) {
		assert_true(m->p < m->end && shift < 64);
		v |= (uint64_t)(*m->p & 0x7f) << shift;
		if (!(*m->p++ & 0x80))
			return v;
	}
}

static struct pb span(struct pb *m, uint64_t n)
{
	struct pb s = { m->p, m->p + n };

	assert_true((uint64_t)(m->end - m->p) >= n);
	m->p += n;
	return s;
}

/* One field into text: NUMBER:VALUE, submessages in braces by `messages`, a list of
 * the paths that are ones, as " 4 4.7 ". */
static void show(struct pb m, const char *path, const char *messages, char *out, size_t len)
{
	while (m.p < m.end) {
		uint64_t tag = varint(&m), v;
		size_t at = strlen(out);
		char here[64], want[70];
		double d;

		snprintf(here, sizeof(here), "%s%s%d", path, *path ? "." : "", (int)(tag >> 3));
		snprintf(want, sizeof(want), " %s ", here);
		snprintf(out + at, len - at, "%s%d:", at && out[at - 1] != '{' ? " " : "",
			 (int)(tag >> 3));
		at = strlen(out);
		switch (tag & 7) {
		case 0:
			snprintf(out + at, len - at, "%llu", (unsigned long long)varint(&m));
			break;
		case 1:
			memcpy(&v, span(&m, 8).p, 8);
			memcpy(&d, &v, 8);
			snprintf(out + at, len - at, "%.15g", d);
			break;
		case 2: {
			struct pb sub = span(&m, varint(&m));

			if (strstr(messages, want)) {
				strcat(out, "{");
				show(sub, here, messages, out, len);
				strcat(out, "}");
				break;
			}
			for (; sub.p < sub.end; sub.p++, at++)
				snprintf(out + at, len - at,
					 *sub.p >= 0x20 && *sub.p < 0x7f ? "%c" : "\\%02x", *sub.p),
					at += *sub.p >= 0x20 && *sub.p < 0x7f ? 0 : 2;
			break;
		}
		default:
			fail_msg("wire type %d", (int)(tag & 7));
		}
	}
}

static void test_protobuf(void **s)
{
	static const char *const want[] = {
		"1:a_total 2:Of \"a\\b\". 3:0 4:{1:{1:model 2:a\"b\\c\\0ad\\01\\ef\\bf\\bd} 1:{1:x 2:} 3:{1:7}}",
		"1:b_seconds_total 2:B. 3:0 4:{1:{1:x 2:} 3:{1:1.500000001}}",
		"1:c_bytes 2:C. 3:1 4:{2:{1:0.5}} 4:{1:{1:x 2:} 2:{1:nan}}",
		/* 0.25 closes its bucket of scale 8: index -2*256 - 1, one more in schema 8 */
		NULL,
		"1:e_total 2:E. 3:4 4:{7:{1:3 2:6 3:{1:0 2:1} 3:{1:3 2:500000} 3:{1:3 2:1000000} 3:{1:3 2:inf}}}",
		"1:f 2:F. 3:2 4:{4:{1:2 2:12.5}}",
	};
	static const char messages[] =
		" 4 4.1 4.2 4.3 4.4 4.7 4.7.3 4.7.3.3 4.7.3.3.1 4.7.3.3.3 4.7.12 ";
	struct rp_buf b = { 0 };
	struct rp_expo e = { .b = &b, .format = RP_EXPO_PROTOBUF };
	char text[4096];
	struct pb all;

	(void)s;
	some(&e);
	assert_false(b.oom);
	all = (struct pb){ (uint8_t *)b.p, (uint8_t *)b.p + b.n };
	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
		struct pb one = span(&all, varint(&all));

		text[0] = '\0';
		show(one, "", messages, text, sizeof(text));
		if (want[i]) {
			assert_string_equal(text, want[i]);
			continue;
		}
		/* of the histogram: what is not the native part, then that */
		assert_non_null(strstr(
			text,
			"7:{1:5 2:3000.750000002 3:{1:1 2:1e-05} 3:{1:1 2:2.5e-05} 3:{1:2 2:0.25 3:{1:{1:request_id 2:req-\"1\"} 2:0.25 3:{1:1700000000 2:123456789}}} 3:{1:4 2:1}"));
		assert_non_null(strstr(text, " 7:1 12:{"));
		assert_non_null(strstr(text, " 6:2.93873587705572e-39 "));
	}
	assert_ptr_equal(all.p, all.end);
	free(b.p);
}

/* The native part counts what the bounds count, whatever the range. */
static void test_native(void **s)
{
	struct rp_hist h = { .count = 0 };
	struct rp_hist_room none = { .max_native = 0 };
	struct rp_buf b = { 0 };
	struct rp_expo e = { .b = &b, .format = RP_EXPO_PROTOBUF };
	char text[8192] = "";
	struct pb all;

	(void)s;
	/* 1 s three times and 2 s once: neighbours 256 buckets apart do not fit in 160 */
	rp_hist_add(&h, &scale, &room, 1000000000, 3, NULL);
	rp_hist_add(&h, &scale, &room, 2000000000, 1, NULL);
	rp_expo_family(&e, "d_seconds", RP_EXPO_HISTOGRAM, "D.");
	rp_expo_hist(&e, NULL, 0, &scale, &h);
	rp_expo_end(&e);
	all = (struct pb){ (uint8_t *)b.p, (uint8_t *)b.p + b.n };
	show(span(&all, varint(&all)), "", " 4 4.7 4.7.12 ", text, sizeof(text));
	/* schema 7 (zigzag 14), offset 0: (.., 1] is index 0; 129 buckets */
	assert_non_null(strstr(text, " 5:14 "));
	assert_non_null(strstr(text, " 7:0 12:{1:0 2:129} 13:\\06\\05\\00"));
	assert_memory_equal(b.p + b.n - 2, "\x00\x02", 2);

	/* with nothing in it: a mark that it is one */
	rp_hist_free(&h, &room);
	b.n = 0;
	text[0] = '\0';
	rp_expo_family(&e, "d_seconds", RP_EXPO_HISTOGRAM, "D.");
	rp_expo_hist(&e, NULL, 0, &scale, &h);
	rp_expo_end(&e);
	all = (struct pb){ (uint8_t *)b.p, (uint8_t *)b.p + b.n };
	show(span(&all, varint(&all)), "", " 4 4.7 4.7.12 ", text, sizeof(text));
	assert_non_null(strstr(text, " 5:16 6:2.93873587705572e-39 7:0 12:{1:0 2:0}}"));

	/* without room it has its bounds alone, and that is counted, once */
	rp_hist_add(&h, &scale, &none, 1000000000, 3, NULL);
	rp_hist_add(&h, &scale, &none, 1000000000, 3, NULL);
	assert_int_equal(none.no_native, 1);
	assert_int_equal(h.count, 6);
	b.n = 0;
	text[0] = '\0';
	rp_expo_family(&e, "d_seconds", RP_EXPO_HISTOGRAM, "D.");
	rp_expo_hist(&e, NULL, 0, &scale, &h);
	rp_expo_end(&e);
	all = (struct pb){ (uint8_t *)b.p, (uint8_t *)b.p + b.n };
	show(span(&all, varint(&all)), "", " 4 4.7 4.7.12 ", text, sizeof(text));
	assert_null(strstr(text, " 12:{"));
	free(b.p);
	rp_hist_free(&h, &none);
}

static void test_exemplar_limits(void **s)
{
	struct rp_hist_room two = { .max_exemplars = 2 };
	struct rp_hist h = { .count = 0 };
	struct rp_record r;
	char id[RP_EXEMPLAR_ID_MAX + 2];

	(void)s;
	memset(id, 'i', sizeof(id) - 1);
	id[sizeof(id) - 1] = '\0';
	rp_hist_add(&h, &counts, &two, 1, 1, &(struct rp_exemplar_of){ id, 5 }); /* too long */
	rp_hist_add(&h, &counts, &two, 1, 1, &(struct rp_exemplar_of){ "", 5 });
	assert_null(h.ex);
	rp_hist_add(&h, &counts, &two, 1, 1, &(struct rp_exemplar_of){ id + 1, 5 });
	rp_hist_add(&h, &counts, &two, 2, 1, &(struct rp_exemplar_of){ "b", 6 });
	rp_hist_add(&h, &counts, &two, 3, 1, &(struct rp_exemplar_of){ "c", 7 }); /* the last */
	rp_hist_add(&h, &counts, &two, 900000, 1, &(struct rp_exemplar_of){ "d", 8 });
	assert_int_equal(two.exemplars, 2);
	assert_int_equal(two.no_exemplar, 1);
	assert_string_equal(h.ex[0]->id, id + 1);
	assert_string_equal(h.ex[1]->id, "c");
	assert_int_equal(h.ex[1]->value, 3);
	assert_null(h.ex[2]);
	rp_hist_free(&h, &two);

	memset(&r, 0, sizeof(r));
	r.t_start = 10;
	r.t_end = RP_NONE;
	r.wall_offset = 1000;
	strcpy(r.id, "cmpl-1");
	assert_string_equal(rp_exemplar_of(&r).id, "cmpl-1");
	assert_int_equal(rp_exemplar_of(&r).wall, 1010);
	strcpy(r.x_request_id, "mine");
	r.t_end = 20;
	assert_string_equal(rp_exemplar_of(&r).id, "mine");
	assert_int_equal(rp_exemplar_of(&r).wall, 1020);
	memset(r.x_request_id, 'x', RP_EXEMPLAR_ID_MAX + 1);
	assert_string_equal(rp_exemplar_of(&r).id, "cmpl-1");
	r.t_start = r.t_end = RP_NONE;
	assert_int_equal(rp_exemplar_of(&r).wall, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_negotiation),
		cmocka_unit_test(test_gzip_asked_for),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_openmetrics),
		cmocka_unit_test(test_protobuf),
		cmocka_unit_test(test_native),
		cmocka_unit_test(test_exemplar_limits),
	};

	return cmocka_run_group_tests_name("expo", tests, NULL, NULL);
}
