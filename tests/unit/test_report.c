// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Lines of request logs: what is let through, what comes out, whatever their order. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "calibrate/calibrate.h"
#include "report/reader.h"
#include "report/stats.h"
#include "report/store.h"
#include "sink/sink.h"

static uint64_t rnd_state = 88172645463325252ULL;
static uint64_t rnd(void)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 7;
	rnd_state ^= rnd_state << 17;
	return rnd_state;
}

/* A record with anything in it. */
static void make(struct rp_record *r)
{
	static const char *const strings[] = { "", "tiny", "a \"b\" \\ \t",
					       "m\303\266del \342\202\254",
					       "chatcmpl-8c64c5e74d88f57a" };
	static const char *const wheres[] = { "status", "stream", "engine" };
	static struct rp_mark marks[40];

	memset(r, 0, sizeof(*r));
	snprintf(r->id, sizeof(r->id), "%s", strings[rnd() % 5]);
	snprintf(r->x_request_id, sizeof(r->x_request_id), "%s", strings[rnd() % 5]);
	snprintf(r->model, sizeof(r->model), "%s", strings[rnd() % 5]);
	r->engine_name = rnd() % 4 ? "vllm" : NULL;
	r->engine_version = rnd() % 4 ? "0.32.0" : "";
	r->pid = (uint32_t)(rnd() % 100000);
	r->operation = (enum rp_operation)(rnd() % RP_OP_COUNT);
	snprintf(r->method, sizeof(r->method), "POST");
	snprintf(r->path, sizeof(r->path), "/v1/chat/completions");
	r->status = rnd() % 3 ? 200 : rnd() % 2 ? 500 : 0;
	r->stream = (int)(rnd() % 3) - 1;
	r->choices = 1 + (int)(rnd() % 3);
	r->family = AF_INET;
	memcpy(r->raddr, "\x0a\0\0\x07", 4);
	r->rport = (uint16_t)rnd();
	r->conn_reused = rnd() % 2;
	r->t_start = rnd() % 8 ? (int64_t)(rnd() % 1000000000000) : RP_NONE;
	r->wall_offset = 1795964250000000000LL;
	r->end = (enum rp_end)(rnd() % RP_END_COUNT);
	snprintf(r->finish_reason, sizeof(r->finish_reason), "%s", rnd() % 2 ? "length" : "");
	r->has_error = rnd() % 4 == 0;
	if (r->has_error) {
		snprintf(r->error_type, sizeof(r->error_type), "%s", strings[rnd() % 4]);
		snprintf(r->error_code, sizeof(r->error_code), "%s", rnd() % 2 ? "400" : "");
		r->error_where = wheres[rnd() % 3];
	}
	r->bytes_rx = rnd() % 100000;
	r->bytes_tx = rnd() % 10000000;
	r->flags = (uint32_t)(rnd() & ((1u << RP_FLAG_COUNT) - 1));
	for (int f = 0; f < RP_FIELD_COUNT; f++) {
		struct rp_value *v = &r->v[f];

		v->known = rnd() % 4 != 0;
		v->why = (enum rp_reason)(1 + rnd() % (RP_WHY_COUNT - 1));
		if (rp_field_defs[f].type == RP_T_MS || rp_field_defs[f].type == RP_T_R)
			v->d = (double)(rnd() % 1000000000) / (double)(1 + rnd() % 1000000);
		else
			v->i = (int64_t)(rnd() >> (24 + rnd() % 36));
	}
	r->itl_wanted = rnd() % 2;
	if (r->itl_wanted) {
		r->n_chunk_marks = rnd() % 40;
		for (size_t i = 0; i < r->n_chunk_marks; i++)
			marks[i] = (struct rp_mark){ (int64_t)(i ? (uint64_t)marks[i - 1].ts : 0) +
							     (int64_t)(rnd() % 100000000),
						     1, 0 };
		r->chunk_marks = marks;
	}
}

static char *line_of(const struct rp_record *r, size_t *n)
{
	char *p = rp_record_json(r, n);

	assert_non_null(p);
	p = realloc(p, *n + 1);
	p[*n] = '\n';
	return p;
}

static bool same_double(double a, double b)
{
	return (isnan(a) && isnan(b)) || a == b;
}

#define EQ(m) assert_int_equal(a->m, b->m)
#define EQS(m) assert_string_equal(a->m, b->m)
#define EQD(m) assert_true(same_double(a->m, b->m))
static void same_facts(const struct rp_facts *a, const struct rp_facts *b, bool strings)
{
	if (strings) {
		EQS(id);
		EQS(x_request_id);
		EQS(model);
		EQS(engine);
		EQS(engine_version);
		EQS(finish_reason);
		if (a->has_error) {
			EQS(error_type);
			EQS(error_code);
		}
		EQ(n_icl);
		assert_int_equal(a->icl != NULL, b->icl != NULL);
		for (size_t i = 0; i < a->n_icl; i++)
			EQ(icl[i]);
	}
	EQS(error_where);
	EQ(operation);
	EQ(end);
	EQ(status);
	EQ(stream);
	EQ(choices);
	EQ(flags);
	EQ(has_error);
	EQ(context_overflow);
	EQ(reused);
	EQ(start_wall);
	EQ(receive);
	EQ(first_byte);
	EQ(first_body);
	EQ(first_event);
	EQ(ttft);
	EQ(second);
	EQ(first_output);
	EQ(last_token);
	EQ(last_body);
	EQ(duration);
	EQ(chunks);
	EQ(keepalives);
	EQ(first_chunk_tokens);
	EQ(frontend);
	EQ(queue);
	EQ(prefill);
	EQ(decode);
	EQ(flush);
	EQ(after_first);
	EQ(after_last);
	EQ(preempted);
	EQ(requeue);
	EQ(preemptions);
	EQ(requeues);
	EQ(steps);
	EQ(prompt);
	EQ(completion);
	EQ(cached);
	EQ(reasoning);
	for (int i = 0; i < RP_USAGE_COUNT; i++)
		EQ(usage[i]);
	EQD(prompt_audio_seconds);
	EQ(max_tokens);
	EQ(images);
	EQ(audios);
	EQ(videos);
	EQ(spec_steps);
	EQ(spec_draft_tokens);
	EQ(spec_accepted_tokens);
	EQD(video_inference_s);
	EQD(video_peak_memory_mb);
	EQ(rtt);
	EQ(accept_wait);
	EQ(last_ack);
	EQ(retransmits);
	EQ(request_bytes);
	EQ(response_bytes);
	EQ(request_body);
	EQ(response_body);
	EQ(request_calls);
	EQ(response_calls);
}

static void engine_figures(const struct rp_facts *a, const struct rp_facts *b)
{
	EQD(m_ttft);
	EQD(m_generation);
	EQD(m_queue);
	EQD(m_mean_itl);
	EQD(m_tps);
}

/* What the writer wrote is what the reader has; and `missing` says why not. */
static void lines_and_back(void **state)
{
	struct rp_facts_room gaps = { 0 };
	struct rp_reader_room room = { 0 };
	(void)state;

	for (int i = 0; i < 3000; i++) {
		struct rp_record r;
		struct rp_facts a, b;
		struct rp_line l;
		size_t n;
		char *p;

		make(&r);
		p = line_of(&r, &n);
		assert_int_equal(rp_line_scan(p, n, &l), 0);
		assert_int_equal(rp_facts_of_line(&l, &b, &room), 0);
		rp_facts_of(&r, &a, &gaps);
		same_facts(&a, &b, true);
		engine_figures(&a, &b);
		for (int f = 0; f < RP_FIELD_COUNT; f++) {
			assert_int_equal(l.v[RP_LEAF_FIELDS + f].p != NULL, r.v[f].known);
			assert_int_equal(l.why[f], r.v[f].known ? RP_WHY_NONE : r.v[f].why);
		}
		free(p);
	}
	free(gaps.icl);
	free(room.gaps.icl);
}

/* ---- in any order, with members nobody knows ---- */

static json_t *shuffled(const json_t *v)
{
	const char *keys[128];
	json_t *out = NULL, *x;
	const char *k;
	size_t n = 0, i;

	if (json_is_array(v)) {
		out = json_array();
		json_array_foreach(v, i, x) json_array_append_new(out, shuffled(x));
		return out;
	}
	if (!json_is_object(v))
		return json_deep_copy(v);
	out = json_object();
	json_object_foreach((json_t *)(uintptr_t)v, k, x) keys[n++] = k;
	for (i = n; i > 1; i--) {
		size_t j = rnd() % i;
		const char *t = keys[i - 1];

		keys[i - 1] = keys[j];
		keys[j] = t;
	}
	if (rnd() % 2)
		json_object_set_new(out, "zz",
				    json_pack("{s:[i,{s:[]}],s:n,s:f}", "a", 1, "b", "c", "d",
					      1.5e-7));
	for (i = 0; i < n; i++)
		json_object_set_new(out, keys[i], shuffled(json_object_get(v, keys[i])));
	return out;
}

static void any_order(void **state)
{
	struct rp_reader_room ra = { 0 }, rb = { 0 };
	(void)state;

	for (int i = 0; i < 500; i++) {
		struct rp_record r;
		struct rp_facts a, b;
		struct rp_line l, m;
		json_t *v, *s;
		char *p, *q;
		size_t n;

		make(&r);
		p = line_of(&r, &n);
		assert_int_equal(rp_line_scan(p, n, &l), 0);
		assert_int_equal(rp_facts_of_line(&l, &a, &ra), 0);
		v = json_loadb(p, n, 0, NULL);
		s = shuffled(v);
		/* `missing` has keys of ours only */
		json_object_set(s, "missing", json_object_get(v, "missing"));
		q = json_dumps(s, rnd() % 2 ? JSON_COMPACT : JSON_ENSURE_ASCII);
		assert_int_equal(rp_line_scan(q, strlen(q), &m), 0);
		assert_int_equal(rp_facts_of_line(&m, &b, &rb), 0);
		same_facts(&a, &b, true);
		engine_figures(&a, &b);
		assert_memory_equal(l.why, m.why, sizeof(l.why));
		free(p);
		free(q);
		json_decref(v);
		json_decref(s);
	}
	free(ra.gaps.icl);
	free(rb.gaps.icl);
}

/* ---- what is no record ---- */

static int scan(const char *text)
{
	/* a block of its own size, so that ASan sees its end */
	size_t n = strlen(text);
	char *p = malloc(n + 1);
	struct rp_line l;
	int e;

	memcpy(p, text, n + 1);
	e = rp_line_scan(p, n, &l);
	free(p);
	return e;
}

#define R "{\"schema\":\"reqprobe.request/1\","

static void bad_lines(void **state)
{
	static const char *const bad[] = {
		"",
		" ",
		"{",
		"}",
		"[]",
		"null",
		"{\"schema\"",
		"{\"schema\":\"reqprobe.request/1\"",
		R "}",
		R "\"id\":\"a\"",
		R "\"id\":\"a}",
		R "\"id\":\"a\\\"}",
		R "\"id\":\"\\u0000\"}",
		R "\"id\":\"\\ud800\"}",
		R "\"id\":\"\\ud800\\u0041\"}",
		R "\"id\":\"\\udc00\"}",
		R "\"id\":\"\\x\"}",
		R "\"id\":\"\xff\"}",
		R "\"id\":\"\xed\xa0\x80\"}",
		R "\"id\":\"a\tb\"}",
		R "\"id\":1}",
		R "\"id\":nul}",
		R "\"status\":\"200\"}",
		R "\"status\":200.5}",
		R "\"status\":1e3}",
		R "\"status\":0200}",
		R "\"status\":-}",
		R "\"stream\":1}",
		R "\"stream\":truE}",
		R "\"stream\":trueish}",
		R "\"engine\":[]}",
		R "\"engine\":{\"pid\":{}}}",
		R "\"engine\":{\"pid\":1}",
		R "\"engine\":{\"pid\":1}}}",
		R "\"missing\":{\"metrics\":1}}",
		R "\"missing\":[]}",
		R "\"flags\":[1]}",
		R "\"flags\":[\"a\",]}",
		R "\"flags\":[\"a\"",
		R "\"icl_ms\":[1,\"2\"]}",
		R "\"icl_ms\":[1 2]}",
		R "\"choice_tokens\":[1.5]}",
		R "\"metrics\":{\"mean_itl_ms\":.5}}",
		R "\"metrics\":{\"mean_itl_ms\":1.}}",
		R "\"metrics\":{\"mean_itl_ms\":1e}}",
		R "\"metrics\":{\"mean_itl_ms\":NaN}}",
		/* numbers out of range */
		R "\"choices\":-1}",
		R "\"tokens\":{\"prompt\":1000000000000000}}",
		R "\"usage\":{\"prompt_tokens\":9223372036854775808}}",
		R "\"choice_tokens\":[1,-1]}",
		R "\"phases\":{\"queue_ms\":-0.5}}",
		R "\"phases\":{\"queue_ms\":100000000000}}",
		R "\"phases\":{\"queue_ms\":1e11}}",
		R "\"network\":{\"rtt_ms\":1e300}}",
		R "\"metrics\":{\"tokens_per_second\":1e999}}",
		R "\"metrics\":{\"tokens_per_second\":-1e15}}",
		R "\"itl_ms\":[1,1e12]}",
		R "\"x\":{\"y\":[}]}",
		R "\"x\":{\"y\":[1,]}}",
		R "\"x\":{\"y\"}}",
		R "\"x\":{y:1}}",
		R "\"x\":}",
		R "\"x\":tru}",
		R "\"a\":1}{}",
		R "\"a\":1} x",
		R "\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}",
		"{\"schema\":\"reqprobe.step/1\",\"stream\":3,\"to",
		"x{\"schema\":\"r00{\"schema\":\"reqprobe.request/1\"}",
	};
	static const char *const foreign[] = {
		"{}",
		"{\"schema\":null}",
		"{\"schema\":\"reqprobe.request/2\"}",
		"{\"schema\":\"reqprobe.step/1\",\"seq\":1}",
		"{\"schema\":\"reqprobe.step/1\",\"stream\":3,\"tokens\":7,\"end\":{}}",
		"{\"metadata\":{\"session_num\":0},\"metrics\":{}}",
		R "\"schema\":\"other\"}",
	};
	static const char *const good[] = {
		R "\"end\":\"complete\"}",
		" { \"schema\" : \"reqprobe.request/1\" , \"id\" : \"\\ud83d\\ude00\" } \r",
		R "\"x\":{\"y\":[1,-2.5e+3,{\"\":[]},{},\"\",true,false,null]},\"end\":null}",
		R "\"engine\":null,\"missing\":null,\"error\":null,\"tokens\":{}}",
		R
		"\"tokens\":{\"prompt\":999999999999999},\"phases\":{\"queue_ms\":99999999999.999999}}",
		R
		"\"metrics\":{\"mean_itl_ms\":-12.5,\"tokens_per_second\":1.5e14},\"itl_ms\":[1e-3]}",
		R "\"later\":-1e999}",
		R "\"missing\":{\"metrics\":\"no_such_reason\",\"nobody.knows\":\"x\"}}",
	};
	char nul[] = R "\"id\":\"a\0b\"}";
	struct rp_line l;
	(void)state;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (scan(bad[i]) != -EBADMSG)
			fail_msg("let through: %s", bad[i]);
	for (size_t i = 0; i < sizeof(foreign) / sizeof(*foreign); i++)
		if (scan(foreign[i]) != -ENOMSG)
			fail_msg("not foreign: %s", foreign[i]);
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		if (scan(good[i]))
			fail_msg("refused: %s", good[i]);
	assert_int_equal(rp_line_scan(nul, sizeof(nul) - 1, &l), -EBADMSG);
}

/* A line that was cut anywhere is none; one with a byte changed does no harm. */
static void torn_lines(void **state)
{
	struct rp_reader_room room = { 0 };
	struct rp_facts f;
	struct rp_record r;
	struct rp_line l;
	size_t n;
	char *p;
	(void)state;

	for (int k = 0; k < 8; k++) {
		make(&r);
		p = line_of(&r, &n);
		for (size_t i = 0; i < n; i++) {
			char *q = malloc(i + 1), c = p[i];

			memcpy(q, p, i);
			q[i] = '\n';
			assert_int_equal(rp_line_scan(q, i, &l), -EBADMSG);
			free(q);
			p[i] = (char)rnd();
			if (!rp_line_scan(p, n, &l))
				rp_facts_of_line(&l, &f, &room);
			p[i] = c;
		}
		free(p);
	}
	free(room.gaps.icl);
}

static int64_t fixed_of(const char *s)
{
	struct rp_slice v = { s, (uint32_t)strlen(s), false };
	int64_t x;

	return rp_slice_fixed(&v, 6, &x) ? x : -1;
}

static double double_of(const char *s)
{
	struct rp_slice v = { s, (uint32_t)strlen(s), false };
	double x;

	return rp_slice_double(&v, &x) ? x : NAN;
}

static int64_t time_of(const char *s)
{
	int64_t x;

	return rp_time_parse(s, strlen(s), &x) ? x : -1;
}

static void numbers(void **state)
{
	(void)state;
	assert_int_equal(fixed_of("0"), 0);
	assert_int_equal(fixed_of("12"), 12000000);
	assert_int_equal(fixed_of("0.032138"), 32138);
	assert_int_equal(fixed_of("0.5"), 500000);
	assert_int_equal(fixed_of("4294.967296"), 4294967296);
	assert_int_equal(fixed_of("0.03213800000000000"), 32138);
	assert_int_equal(fixed_of("1e3"), 1000000000);
	assert_int_equal(fixed_of("86400000000.123456"), 86400000000123456);
	assert_int_equal(fixed_of("-1"), -1);
	assert_int_equal(fixed_of("1e300"), -1);
	for (int i = 0; i < 200000; i++) {
		char t[64];
		double d = (double)(rnd() >> 11) / (double)(1ULL << (rnd() % 64));

		snprintf(t, sizeof(t), "%.*g", 15 + (int)(rnd() % 3), d);
		assert_true(double_of(t) == strtod(t, NULL));
	}
	assert_int_equal(time_of("1970-01-01T00:00:00Z"), 0);
	assert_int_equal(time_of("2026-11-29T14:57:30.123456789Z"), 1795964250123456789);
	assert_int_equal(time_of("2024-02-29T23:59:59.5Z"), 1709251199500000000);
	assert_int_equal(time_of("2026-11-29T14:57:30.123456789"), -1);
	assert_int_equal(time_of("2026-13-29T14:57:30Z"), -1);
	assert_true(time_of("2199-12-31T23:59:59.999999999Z") > 0);
	assert_int_equal(time_of("2200-01-01T00:00:00Z"), -1);
	assert_int_equal(time_of("2026-11-29 14:57:30Z"), -1);
	assert_int_equal(time_of("2026-11-29T14:57:30.Z"), -1);
	assert_int_equal(time_of("2026-11-29T14:57:30.1234567890Z"), -1);
}

/* Same record, same key; any figure of it changed, another one. */
static void keys(void **state)
{
	struct rp_record r;
	struct rp_line l;
	uint64_t k[3];
	size_t n;
	(void)state;

	for (int i = 0; i < 200; i++) {
		for (int j = 0; j < 3; j++) {
			char *p;

			if (!j)
				make(&r);
			r.t_start = 1000 + (j == 2);
			p = line_of(&r, &n);
			assert_int_equal(rp_line_scan(p, n, &l), 0);
			k[j] = rp_line_key(&l, 7);
			free(p);
		}
		assert_true(k[0] == k[1]);
		assert_true(k[0] != k[2]);
	}
}

/* ---- files ---- */

static char dir[] = "/tmp/test_report.XXXXXX";

static const char *path_of(const char *name)
{
	static char p[8][256];
	static unsigned i;

	i = (i + 1) % 8;
	snprintf(p[i], sizeof(p[i]), "%s/%s", dir, name);
	return p[i];
}

static void put_file(const char *path, const void *p, size_t n, bool more)
{
	FILE *f = fopen(path, more ? "a" : "w");

	assert_non_null(f);
	assert_int_equal(fwrite(p, 1, n, f), n);
	fclose(f);
}

static void put_gzip(const char *path, const char *p, size_t n, bool more)
{
	gzFile f = gzopen(path, more ? "a" : "w");

	assert_non_null(f);
	assert_int_equal(gzwrite(f, p, (unsigned)n), (int)n);
	gzclose(f);
}

static void put_zstd(const char *path, const char *p, size_t n, bool more)
{
	size_t cap = ZSTD_compressBound(n), k;
	char *to = malloc(cap);

	k = ZSTD_compress(to, cap, p, n, 1);
	assert_false(ZSTD_isError(k));
	put_file(path, to, k, more);
	free(to);
}

struct got {
	uint64_t lines, sum;
	struct rp_reader_stats st;
	int end;
};

static struct got read_all(const char *const *paths, size_t n)
{
	struct rp_reader *r;
	struct got g = { 0 };
	const char *p;
	char err[256];
	size_t len;

	assert_int_equal(rp_reader_open(paths, n, NULL, &r, err, sizeof(err)), 0);
	while ((g.end = rp_reader_next(r, &p, &len)) > 0) {
		assert_int_equal(p[len], '\n');
		assert_null(memchr(p, '\n', len));
		g.lines++;
		for (size_t i = 0; i < len; i++)
			g.sum = g.sum * 31 + (unsigned char)p[i];
		g.sum += len;
	}
	g.st = *rp_reader_stats(r);
	rp_reader_close(r);
	return g;
}

static struct got read_one(const char *path)
{
	return read_all(&path, 1);
}

/* Lines of all lengths, some longer than a buffer. */
static char *text_of(size_t lines, size_t *n)
{
	size_t cap = 1 << 20, at = 0;
	char *p = malloc(cap);

	for (size_t i = 0; i < lines; i++) {
		size_t k = 1 + (i % 97 == 50 ? 2500000 + rnd() % 1000 : rnd() % 3000);

		while (cap - at < k + 1)
			p = realloc(p, cap *= 2);
		for (size_t j = 0; j < k; j++)
			p[at++] = (char)('a' + rnd() % 26);
		p[at++] = '\n';
	}
	*n = at;
	return p;
}

static void files(void **state)
{
	const char *list[4];
	struct got a, b;
	size_t n;
	char *p = text_of(200, &n);
	FILE *f;
	int fd;
	(void)state;

	put_file(path_of("a.jsonl"), p, n, false);
	a = read_one(path_of("a.jsonl"));
	assert_int_equal(a.lines, 200);
	assert_int_equal(a.st.bytes, n);
	put_gzip(path_of("b.jsonl.gz"), p, n / 2, false);
	put_gzip(path_of("b.jsonl.gz"), p + n / 2, n - n / 2, true);
	b = read_one(path_of("b.jsonl.gz"));
	assert_int_equal(b.lines, 200);
	assert_true(a.sum == b.sum);
	put_zstd(path_of("c.jsonl.zst"), p, n / 3, false);
	put_zstd(path_of("c.jsonl.zst"), p + n / 3, n - n / 3, true);
	b = read_one(path_of("c.jsonl.zst"));
	assert_int_equal(b.lines, 200);
	assert_true(a.sum == b.sum);
	assert_int_equal(b.st.unread, 0);

	/* a last line without its end; empty lines */
	put_file(path_of("d.jsonl"), "one\n\n\ntwo", 9, false);
	b = read_one(path_of("d.jsonl"));
	assert_int_equal(b.lines, 2);

	/* cut and broken: what came before counts */
	n = 0;
	f = fopen(path_of("c.jsonl.zst"), "r");
	n = fread(p, 1, 100000, f);
	fclose(f);
	put_file(path_of("e.jsonl.zst"), p, n, false);
	b = read_one(path_of("e.jsonl.zst"));
	assert_true(b.lines > 0 && b.lines < 200);
	assert_int_equal(b.st.unread, 1);
	assert_int_equal(b.end, 0);
	f = fopen(path_of("b.jsonl.gz"), "r");
	n = fread(p, 1, 100000, f);
	fclose(f);
	memset(p + 50000, 0xff, 64);
	put_file(path_of("f.jsonl.gz"), p, n, false);
	b = read_one(path_of("f.jsonl.gz"));
	assert_int_equal(b.st.unread, 1);

	/* directories: by name, those below, nothing else */
	assert_int_equal(mkdir(path_of("sub"), 0755), 0);
	put_file(path_of("sub/x.jsonl"), "x\n", 2, false);
	put_file(path_of("sub/.y.jsonl.partial"), "y\n", 2, false);
	put_file(path_of("sub/.z.jsonl"), "z\n", 2, false);
	put_file(path_of("sub/notes.txt"), "n\n", 2, false);
	b = read_one(path_of("sub"));
	assert_int_equal(b.lines, 1);
	list[0] = path_of("d.jsonl");
	list[1] = path_of("sub");
	list[2] = path_of("a.jsonl");
	b = read_all(list, 3);
	assert_int_equal(b.lines, 203);
	assert_int_equal(b.st.files, 3);
	/* one that can't be read is left out, and does not stay open */
	list[0] = "/proc/self/mem";
	fd = dup(STDERR_FILENO);
	close(fd);
	b = read_all(list, 2);
	assert_int_equal(b.lines, 1);
	assert_int_equal(b.st.files, 1);
	assert_int_equal(b.st.unread, 1);
	assert_int_equal(dup(STDERR_FILENO), fd);
	close(fd);
	/* links to itself, and to what is above: each directory once */
	assert_int_equal(symlink(".", path_of("sub/self")), 0);
	assert_int_equal(symlink("..", path_of("sub/up")), 0);
	assert_int_equal(symlink("sub", path_of("link")), 0);
	b = read_one(path_of("sub/up"));
	assert_int_equal(b.st.files, 7);
	/* asked to stop */
	for (int stop = 0; stop < 2; stop++) {
		volatile sig_atomic_t flag = stop;
		struct rp_reader_options o = { .stop = &flag };
		struct rp_reader *r;
		const char *at = path_of("sub"), *q;
		char err[256];
		size_t k;

		assert_int_equal(rp_reader_open(&at, 1, &o, &r, err, sizeof(err)),
				 stop ? -EINTR : 0);
		if (stop)
			break;
		flag = 1;
		assert_int_equal(rp_reader_next(r, &q, &k), -EINTR);
		rp_reader_close(r);
	}
	free(p);
}

static void too_long(void **state)
{
	size_t n = RP_LINE_MAX + 4096;
	char *p = malloc(2 * n), err[256];
	const char *none = path_of("none"), *empty = path_of("empty");
	struct rp_reader *r;
	struct got g;
	(void)state;

	memset(p, 'a', n);
	memcpy(p, "first\n", 6);
	memcpy(p + n, "\nlast\n", 6);
	put_file(path_of("long.jsonl"), p, n + 6, false);
	g = read_one(path_of("long.jsonl"));
	assert_int_equal(g.lines, 2);
	assert_int_equal(g.st.too_long, 1);
	/* without an end, too */
	put_file(path_of("long.jsonl"), p, n, false);
	g = read_one(path_of("long.jsonl"));
	assert_int_equal(g.lines, 1);
	assert_int_equal(g.st.too_long, 1);
	free(p);

	assert_int_equal(rp_reader_open(&none, 1, NULL, &r, err, sizeof(err)), -ENOENT);
	assert_non_null(strstr(err, "none"));
	mkdir(empty, 0755);
	assert_int_equal(rp_reader_open(&empty, 1, NULL, &r, err, sizeof(err)), -ENOENT);
	assert_non_null(strstr(err, "no request logs"));
}

static int clean(void **state)
{
	char cmd[300];
	(void)state;

	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

static int make_place(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

/* ---- statistics ---- */

static void statistics(void **state)
{
	static const size_t sizes[] = { 1, 2, 3, 7, 100, 101, 255, 256, 257, 1000, 4099, 100000 };
	double *v = malloc(100000 * sizeof(*v)), *w = malloc(100000 * sizeof(*w)),
	       *x = malloc(100000 * sizeof(*x));
	(void)state;

	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
		for (int kind = 0; kind < 6; kind++) {
			size_t n = sizes[s];
			struct rp_stats_of a;
			struct rp_cal_stats b;

			for (size_t i = 0; i < n; i++) {
				double u = (double)(rnd() >> 11) / 9007199254740992.0;

				v[i] = kind == 0 ? 5 :
				       kind == 1 ? (double)(rnd() % 8) :
				       kind == 2 ? u * 1e9 :
				       kind == 3 ? exp(40 * u - 20) :
				       kind == 4 ? (u - 0.5) * exp(60 * u - 30) :
						   (i % 1000 ? 1 + u * 1e-9 : 1e12 * u);
			}
			memcpy(w, v, n * sizeof(*v));
			rp_stats_exact(v, n, x, &a);
			rp_cal_stats(w, n, &b);
			assert_int_equal(a.n, n);
			assert_true(a.sum == b.sum && a.avg == b.avg && a.std == b.std);
			assert_true(a.min == b.min && a.max == b.max && a.error == 0);
			for (int i = 0; i < RP_STATS_PERCENTILES; i++)
				assert_true(fabs(a.p[i] - b.p[i]) <= 1e-15 * fabs(b.p[i]));
		}
	}
	free(v);
	free(w);
	free(x);
}

static void histograms(void **state)
{
	size_t n = 50000;
	double *v = malloc(n * sizeof(*v));
	(void)state;

	for (int kind = 0; kind < 3; kind++) {
		struct rp_bins h = { 0 }, part[3] = { { 0 } };
		struct rp_stats_of a, c;
		struct rp_cal_stats b;

		for (size_t i = 0; i < n; i++) {
			double u = (double)(rnd() >> 11) / 9007199254740992.0;

			v[i] = kind == 0 ? exp(30 * u - 10) :
			       kind == 1 ? (double)(rnd() % 4) :
					   (u - 0.5) * 1000;
			assert_int_equal(rp_bins_add(&h, v[i]), 0);
		}
		rp_bins_stats(&h, &a);
		rp_cal_stats(v, n, &b);
		assert_int_equal(a.n, n);
		assert_true(a.min == b.min && a.max == b.max);
		assert_true(fabs(a.avg - b.avg) <= 1e-9 * (fabs(b.avg) + 1));
		assert_true(fabs(a.std - b.std) <= 1e-9 * b.std);
		for (int i = 0; i < RP_STATS_PERCENTILES; i++) {
			size_t at = (size_t)floor(
				(double)(n - 1) * ((double)rp_stats_percentiles[i] / 100.0) + 0.5);

			assert_true(fabs(a.p[i] - v[at]) <= RP_BINS_ERROR * fabs(v[at]));
		}
		/* the same of parts that are put together; nothing is left behind */
		for (size_t i = 0; i < n; i++)
			assert_int_equal(rp_bins_add(&part[i % 7 ? i % 2 : 2], v[i]), 0);
		for (int k = 1; k < 3; k++) {
			assert_int_equal(rp_bins_move(&part[0], &part[k]), 0);
			assert_true(!part[k].n && !part[k].bytes && !part[k].part[0]);
		}
		rp_bins_stats(&part[0], &c);
		assert_int_equal(part[0].bytes, h.bytes);
		assert_true(c.n == a.n && c.min == a.min && c.max == a.max);
		assert_memory_equal(c.p, a.p, sizeof(a.p));
		assert_true(fabs(c.std - a.std) <= 1e-9 * a.std);
		rp_bins_free(&part[0]);
		rp_bins_free(&h);
	}
	free(v);
}

static void store(void **state)
{
	enum { ROWS = 5000 };
	struct rp_facts *f = calloc(ROWS, sizeof(*f));
	uint8_t(*why)[RP_FIELD_COUNT] = calloc(ROWS, sizeof(*why));
	struct rp_store *s = rp_store_new();
	struct rp_store_cursor *c;
	struct rp_reader_room room = { 0 };
	size_t at = 0;
	(void)state;

	assert_non_null(s);
	for (int i = 0; i < ROWS; i++) {
		struct rp_record r;
		struct rp_facts t;

		make(&r);
		r.itl_wanted = false;
		/* columns that stand still, and that leap */
		if (i / 1024 == 2 && i)
			r.v[RP_FIELD_S_TTFT] = (struct rp_value){ .known = true, .i = 77 };
		if (i / 1024 == 3)
			r.v[RP_FIELD_S_TTFT] = (struct rp_value){ .known = false, .why = 1 };
		rp_facts_of(&r, &t, NULL);
		if (i == 10)
			t.duration = INT64_MAX;
		if (i == 11)
			t.duration = INT64_MIN + 1;
		t.video_inference_s = i % 3 ? NAN : (double)i / 7;
		for (int k = 0; k < RP_USAGE_COUNT; k++)
			t.usage[k] = k % 3 ? t.prompt : RP_NONE;
		for (int k = 0; k < RP_FIELD_COUNT; k++)
			why[i][k] = (uint8_t)(i / 512 % 3 ? (int)r.v[k].why : k % 3);
		assert_int_equal(rp_store_add(s, &t, why[i], (uint32_t)(i % 37)), 0);
		f[i] = t;
		/* strings go with the record */
		f[i].id = f[i].x_request_id = f[i].model = f[i].engine = f[i].engine_version = "";
		f[i].finish_reason = f[i].error_type = f[i].error_code = "";
	}
	assert_int_equal(rp_store_rows(s), ROWS);
	/* twice: what is held from the first time must be right the second */
	c = rp_store_cursor_new(s);
	assert_non_null(c);
	for (int pass = 0; pass < 2; pass++, at = 0) {
		for (size_t b = 0; b < rp_store_blocks(s); b++) {
			struct rp_store_rows g;

			rp_store_block(c, b, &g);
			for (size_t i = 0; i < g.n; i++, at++) {
				same_facts(&f[at], &g.f[i], false);
				assert_memory_equal(why[at], g.why[i], sizeof(why[at]));
				assert_int_equal(g.group[i], at % 37);
			}
		}
		assert_int_equal(at, ROWS);
	}
	rp_store_cursor_free(c);
	rp_store_drop(s, 1);
	rp_store_free(s);
	free(f);
	free(why);
	free(room.gaps.icl);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_and_back), cmocka_unit_test(any_order),
		cmocka_unit_test(bad_lines),	  cmocka_unit_test(torn_lines),
		cmocka_unit_test(numbers),	  cmocka_unit_test(keys),
		cmocka_unit_test(files),	  cmocka_unit_test(too_long),
		cmocka_unit_test(statistics),	  cmocka_unit_test(histograms),
		cmocka_unit_test(store),
	};

	return cmocka_run_group_tests(tests, make_place, clean);
}
