// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The JSONL line to the byte, and a file that stays valid when the disk fills. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sink/sink.h"

static uint64_t rnd_state = 88172645463325252ULL;
static uint64_t rnd(void)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 7;
	rnd_state ^= rnd_state << 17;
	return rnd_state;
}

/* ---- a checker of JSON syntax (RFC 8259), strict, with UTF-8 ---- */

static const char *value_at(const char *p, int depth);

static const char *ws(const char *p)
{
	while (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')
		p++;
	return p;
}

static const char *string_at(const char *p)
{
	if (*p++ != '"')
		return NULL;
	while (*p != '"') {
		unsigned char c = (unsigned char)*p;

		if (c < 0x20)
			return NULL;
		if (c == '\\') {
			if (p[1] == 'u') {
				for (int i = 2; i < 6; i++)
					if (!strchr("0123456789abcdefABCDEF", p[i]) || !p[i])
						return NULL;
				p += 6;
			} else if (p[1] && strchr("\"\\/bfnrt", p[1])) {
				p += 2;
			} else {
				return NULL;
			}
			continue;
		}
		if (rp_utf8_len((const unsigned char *)p) < 0)
			return NULL;
		p += rp_utf8_len((const unsigned char *)p);
	}
	return p + 1;
}

static const char *number_at(const char *p)
{
	char *end;

	if (*p == '-')
		p++;
	if (*p == '0' && p[1] >= '0' && p[1] <= '9')
		return NULL;
	if (*p < '0' || *p > '9')
		return NULL;
	strtod(p, &end);
	return end[-1] == '.' ? NULL : end;
}

static const char *list_at(const char *p, char close, int depth)
{
	p = ws(p + 1);
	if (*p == close)
		return p + 1;
	for (;;) {
		if (close == '}') {
			p = string_at(ws(p));
			if (!p || *(p = ws(p)) != ':')
				return NULL;
			p++;
		}
		p = value_at(ws(p), depth + 1);
		if (!p)
			return NULL;
		p = ws(p);
		if (*p == close)
			return p + 1;
		if (*p++ != ',')
			return NULL;
	}
}

static const char *value_at(const char *p, int depth)
{
	if (depth > 20)
		return NULL;
	if (*p == '{' || *p == '[')
		return list_at(p, *p == '{' ? '}' : ']', depth);
	if (*p == '"')
		return string_at(p);
	if (!strncmp(p, "true", 4) || !strncmp(p, "null", 4))
		return p + 4;
	if (!strncmp(p, "false", 5))
		return p + 5;
	return number_at(p);
}

static bool valid_json(const char *s)
{
	const char *end = value_at(s, 0);

	return end && !*end;
}

/* ---- the record ---- */

static struct rp_record vllm(void)
{
	struct rp_record r;

	memset(&r, 0, sizeof(r));
	strcpy(r.id, "chatcmpl-8c64c5e74d88f57a");
	strcpy(r.request_ids[0], "chatcmpl-8c64c5e74d88f57a-bc8f84dd");
	r.n_request_ids = 1;
	r.engine_name = "vllm";
	r.engine_version = "0.32.0";
	r.pid = 7066;
	r.core_pid = 7096;
	strcpy(r.model, "tiny");
	strcpy(r.method, "POST");
	strcpy(r.path, "/v1/chat/completions");
	strcpy(r.finish_reason, "length");
	r.status = 200;
	r.stream = r.choices = 1;
	r.family = AF_INET;
	inet_pton(AF_INET, "10.0.0.7", r.raddr);
	inet_pton(AF_INET, "10.0.0.1", r.laddr);
	r.rport = 34606;
	r.lport = 8000;
	r.joined = true;
	r.t_queued = 2803921513000LL;
	r.t_scheduled = r.t_queued + 32138;
	r.t_eng_first = r.t_scheduled + 10665429;
	r.t_eng_last = r.t_eng_first + 19468061;
	r.e_queued = r.e_scheduled = r.e_first = r.e_last = NAN;
	r.t_start = r.t_queued - 3000000;
	r.t_request_end = r.t_queued - 2000000;
	r.t_first_byte = r.t_first_event = r.t_queued + 5000000;
	r.t_first_token = r.t_first_output = r.t_eng_first + 500000;
	r.t_second_token = r.t_first_token + 4000000;
	r.t_last_token = r.t_first_token + 20000000;
	r.t_end = r.t_last_token + 100000;
	r.t_established = r.t_start - 200000;
	/* 2026-11-29T14:57:30.123456789Z */
	r.wall_offset = 1795964250123456789LL - r.t_start;
	r.tok_prompt = 11;
	r.tok_engine = r.tok_completion_usage = r.chunks = r.steps = 6;
	r.tok_reasoning = r.tok_prompt_engine = r.chunk_tokens = RP_NONE;
	r.first_chunk_tokens = 1;
	r.t_first_body = r.t_first_event;
	r.t_last_body = r.t_end - 50000;
	r.bytes_rx = 298;
	r.bytes_tx = 1634;
	r.body_rx = 130;
	r.body_tx = 1400;
	r.calls_rx = 1;
	r.calls_tx = 8;
	r.max_tokens = 6;
	r.images = r.audios = r.videos = 0;
	for (int i = 0; i < RP_USAGE_COUNT; i++)
		r.usage[i] = RP_NONE;
	r.usage[RP_USAGE_PROMPT] = 11;
	r.usage[RP_USAGE_COMPLETION] = 6;
	r.usage[RP_USAGE_TOTAL] = 17;
	r.spec_steps = r.spec_draft_tokens = r.spec_accepted_tokens = RP_NONE;
	r.prompt_audio_seconds = r.video_inference_s = r.video_peak_memory_mb = NAN;
	r.rtt_us = 31;
	r.rtt_status = RP_RTT_HANDSHAKE;
	r.unacked_first = 230;
	r.unacked_last = 310;
	r.srtt_us = 40;
	r.min_rtt_us = 30;
	r.t_accepted = r.t_established + 12000;
	r.t_acked = r.t_end + 80000000;
	return r;
}

static char *json(const struct rp_record *r)
{
	size_t len;
	char *s = rp_record_json(r, &len);

	assert_non_null(s);
	assert_int_equal(strlen(s), len);
	if (!valid_json(s))
		fail_msg("not JSON: %s", s);
	return s;
}

static void has(const struct rp_record *r, const char *part)
{
	char *s = json(r);

	if (!strstr(s, part))
		fail_msg("%s\nis not in\n%s", part, s);
	free(s);
}

static void test_contract_line(void **s)
{
	static const char want[] =
		"{\"schema\":\"reqprobe.request/1\",\"id\":\"chatcmpl-8c64c5e74d88f57a\","
		"\"request_ids\":[\"chatcmpl-8c64c5e74d88f57a-bc8f84dd\"],\"x_request_id\":null,"
		"\"engine\":{\"name\":\"vllm\",\"version\":\"0.32.0\",\"pid\":7066,\"core_pid\":7096,\"index\":0},"
		"\"model\":\"tiny\",\"operation\":\"chat\",\"method\":\"POST\",\"path\":\"/v1/chat/completions\","
		"\"status\":200,\"stream\":true,\"choices\":1,"
		"\"client\":{\"address\":\"10.0.0.7\",\"port\":34606},\"server\":{\"address\":\"10.0.0.1\",\"port\":8000},"
		"\"connection\":{\"reused\":false,\"tls\":false,\"protocol\":\"http/1.1\"},"
		"\"start\":\"2026-11-29T14:57:30.123456789Z\",\"end\":\"complete\","
		"\"finish_reason\":\"length\",\"error\":null,"
		"\"tokens\":{\"prompt\":11,\"completion\":6,\"cached\":0,\"reasoning\":null,\"source\":\"engine\"},"
		"\"metrics\":{\"time_to_first_token_ms\":10.665429,\"generation_time_ms\":19.468061,"
		"\"queue_time_ms\":0.032138,\"mean_itl_ms\":3.8936122,\"tokens_per_second\":199.11400903114773},"
		"\"server_timing\":{\"first_byte_ms\":7,\"first_body_ms\":7,\"first_event_ms\":7,\"ttft_ms\":13.197567,"
		"\"time_to_second_token_ms\":4,\"time_to_first_output_token_ms\":13.197567,"
		"\"last_token_ms\":33.197567,\"last_body_ms\":33.247567,\"duration_ms\":33.297567,\"ended_ms\":33.297567,"
		"\"mean_icl_ms\":4,\"chunks\":6,\"first_chunk_tokens\":1,\"keepalives\":0},"
		"\"phases\":{\"receive_ms\":1,\"frontend_ms\":2,\"queue_ms\":0.032138,\"prefill_ms\":10.665429,"
		"\"decode_ms\":19.468061,\"flush_ms\":1.131939},"
		"\"frontend\":{\"before_ms\":2,\"after_first_token_ms\":0.5,\"after_last_token_ms\":1.031939},"
		"\"network\":{\"rtt_ms\":0.031,\"source\":\"handshake\",\"age_s\":0.0002,\"retransmits\":0,"
		"\"min_rtt_ms\":0.03,\"srtt_ms\":0.04,\"accept_wait_ms\":0.012,\"unacked_first_bytes\":230,"
		"\"unacked_last_bytes\":310,\"notsent_last_bytes\":0,\"queued_chunks\":0,\"last_ack_ms\":80},"
		"\"client_estimate\":{\"ttft_ms\":13.228567,\"duration_ms\":33.328567},"
		"\"scheduler\":{\"preemptions\":0,\"requeues\":0,\"steps\":6,\"preempted_ms\":0,\"requeue_ms\":0},"
		"\"bytes\":{\"request\":298,\"response\":1634,\"request_body\":130,\"response_body\":1400},"
		"\"calls\":{\"request\":1,\"response\":8},"
		"\"request\":{\"max_tokens\":6,\"images\":0,\"audios\":0,\"videos\":0},"
		"\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":6,\"total_tokens\":17},"
		"\"missing\":{\"tokens.reasoning\":\"not_reported\"},\"flags\":[]}";
	struct rp_record r = vllm();
	char *got;

	(void)s;
	rp_derive(&r);
	got = json(&r);
	assert_string_equal(got, want);
	free(got);
}

static void test_nulls(void **s)
{
	struct rp_record r = vllm();

	(void)s;
	r.id[0] = r.model[0] = r.finish_reason[0] = r.method[0] = r.path[0] = '\0';
	r.n_request_ids = 0;
	r.engine_version = "";
	r.core_pid = 0;
	r.status = 0;
	r.family = AF_UNIX;
	r.rtt_status = RP_RTT_UNIX;
	r.t_established = r.retransmits = r.t_accepted = r.t_acked = RP_NONE;
	r.unacked_first = r.unacked_last = r.notsent_last = r.queued_chunks = RP_NONE;
	r.srtt_us = r.min_rtt_us = RP_NONE;
	r.joined = false;
	r.engine_why = RP_WHY_STRIPPED;
	r.t_queued = r.t_scheduled = r.t_eng_first = r.t_eng_last = RP_NONE;
	r.preemptions = r.requeues = r.steps = r.preempted_ns = r.requeue_ns = RP_NONE;
	r.flags = RP_FLAG_PARTIAL | RP_FLAG_PARSE_ERROR;
	r.max_tokens = r.images = r.audios = r.videos = RP_NONE;
	r.usage[RP_USAGE_PROMPT] = r.usage[RP_USAGE_COMPLETION] = r.usage[RP_USAGE_TOTAL] = RP_NONE;
	rp_derive(&r);
	has(&r, "\"calls\":{\"request\":1,\"response\":8},\"missing\"");
	has(&r, "\"id\":null,\"request_ids\":[],");
	has(&r, "\"version\":null,\"pid\":7066,\"core_pid\":null,");
	has(&r, "\"client\":{\"address\":null,\"port\":null}");
	has(&r,
	    "\"network\":{\"rtt_ms\":null,\"source\":null,\"age_s\":null,\"retransmits\":null,"
	    "\"min_rtt_ms\":null,\"srtt_ms\":null,\"accept_wait_ms\":null,\"unacked_first_bytes\":null,"
	    "\"unacked_last_bytes\":null,\"notsent_last_bytes\":null,\"queued_chunks\":null,"
	    "\"last_ack_ms\":null}");
	/* whole groups, and single members where others are known */
	has(&r,
	    "\"missing\":{\"tokens.reasoning\":\"not_reported\",\"metrics\":\"no_symbols\","
	    "\"phases.frontend_ms\":\"no_symbols\",\"phases.queue_ms\":\"no_symbols\","
	    "\"phases.prefill_ms\":\"no_symbols\",\"phases.decode_ms\":\"no_symbols\","
	    "\"phases.flush_ms\":\"no_symbols\",\"frontend\":\"no_symbols\",\"network\":\"unix_socket\","
	    "\"client_estimate\":\"unix_socket\",\"scheduler\":\"no_symbols\"}");
	has(&r, "\"flags\":[\"partial\",\"parse_error\"]");

	r.t_start = RP_NONE;
	r.stream = -1;
	rp_derive(&r);
	has(&r, "\"status\":null,\"stream\":null,");
	has(&r, "\"start\":null,");
}

static void test_error_and_v6(void **s)
{
	struct rp_record r = vllm();

	(void)s;
	r.has_error = true;
	r.error_where = "stream";
	strcpy(r.error_type, "overloaded");
	r.context_overflow = true;
	r.end = RP_END_ERROR;
	r.family = AF_INET6;
	inet_pton(AF_INET6, "2001:db8::1", r.raddr);
	r.conn_reused = true;
	rp_derive(&r);
	has(&r, "\"end\":\"error\"");
	has(&r, "\"error\":{\"type\":\"overloaded\",\"code\":null,\"where\":\"stream\","
		"\"context_overflow\":true}");
	has(&r, "\"client\":{\"address\":\"2001:db8::1\",\"port\":34606}");
	r.rport = 0; /* --anonymous */
	has(&r, "\"client\":{\"address\":\"2001:db8::1\",\"port\":null}");
	has(&r, "\"reused\":true");
}

static void test_escapes(void **s)
{
	static const struct {
		const char *in, *out;
	} t[] = {
		{ "a\"b\\c/d", "a\\\"b\\\\c/d" },
		{ "\b\f\n\r\t\x01\x1f\x7f", "\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f" },
		{ "h\xc3\xa9llo \xe2\x82\xac \xf0\x9f\x98\x80",
		  "h\xc3\xa9llo \xe2\x82\xac \xf0\x9f\x98\x80" },
#define FFFD "\xef\xbf\xbd"
		{ "\x80"
		  "a",
		  FFFD "a" },
		{ "\xc3", FFFD },
		{ "\xc0\xaf", FFFD FFFD }, /* overlong */
		{ "\xe2\x82", FFFD },	   /* cut: one for the part that was well-formed */
		{ "\xe2\x82"
		  "a",
		  FFFD "a" },
		{ "\xed\xa0\x80", FFFD FFFD FFFD },	     /* a surrogate */
		{ "\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD }, /* beyond U+10FFFF */
		{ "\xf0\x9f\x98", FFFD },
		{ "\xff\xfe", FFFD FFFD },
	};
	struct rp_record r = vllm();

	(void)s;
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		char want[256];

		strcpy(r.model, t[i].in);
		snprintf(want, sizeof(want), "\"model\":\"%s\",", t[i].out);
		rp_derive(&r);
		has(&r, want);
	}
	/* any bytes at all in every string */
	for (int i = 0; i < 5000; i++) {
		char *p[] = {
			r.id, r.x_request_id, r.model, r.path, r.request_ids[0], r.error_type
		};

		r.has_error = true;
		for (size_t k = 0; k < sizeof(p) / sizeof(*p); k++) {
			size_t n = rnd() % 47;

			for (size_t j = 0; j < n; j++)
				p[k][j] = (char)(1 + rnd() % 255);
			p[k][n] = '\0';
		}
		free(json(&r));
	}
}

static void test_time(void **s)
{
	struct rp_record r = vllm();

	(void)s;
	for (int i = 0; i < 20000; i++) {
		/* 1970 to 2262 */
		int64_t ns = (int64_t)(rnd() >> 1);
		time_t sec = ns / 1000000000;
		struct tm tm;
		char want[64], date[32], *got;

		gmtime_r(&sec, &tm);
		strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
		snprintf(want, sizeof(want), "\"start\":\"%s.%09lldZ\"", date,
			 (long long)(ns % 1000000000));
		r.t_start = ns / 2;
		r.wall_offset = ns - r.t_start;
		got = json(&r);
		if (!strstr(got, want))
			fail_msg("%s", want);
		free(got);
	}
}

static void test_numbers(void **s)
{
	static const struct {
		int64_t v;
		uint32_t unit;
		const char *want;
	} t[] = {
		{ 0, 1000000, "0" },
		{ 12000000, 1000000, "12" },
		{ 32138, 1000000, "0.032138" },
		{ 1, 1000000, "0.000001" },
		{ 100000, 1000000, "0.1" },
		{ 31, 1000, "0.031" },
		{ 1000, 1000, "1" },
		{ 123450, 1000, "123.45" },
		{ -1500000, 1000000, "-1.5" },
		{ INT64_MAX, 1000000, "9223372036854.775807" },
		{ 10665429, 1000000, "10.665429" },
		{ 1, 1000000000, "0.000000001" },
	};
	struct rp_buf b = { 0 };

	(void)s;
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		b.n = 0;
		rp_buf_fixed(&b, t[i].v, t[i].unit);
		rp_buf_put(&b, "", 1);
		assert_string_equal(b.p, t[i].want);
	}
	for (int i = 0; i < 300000; i++) {
		uint64_t x = rnd();
		char want[40];
		double d;

		if (i % 4 == 0)
			memcpy(&d, &x, sizeof(d));
		else if (i % 4 == 1)
			d = (double)(x % 1000000000000) / (double)(1 + rnd() % 1000);
		else if (i % 4 == 2)
			d = (double)(x % 1000000000000) / 1e9;
		else
			d = ldexp((double)(x >> 11), (int)(rnd() % 120) - 90);
		if (!isfinite(d) || d == 0)
			continue;
		for (int p = 15; p <= 17; p++) {
			snprintf(want, sizeof(want), "%.*g", p, d);
			if (strtod(want, NULL) == d)
				break;
		}
		b.n = 0;
		rp_buf_double(&b, d);
		rp_buf_put(&b, "", 1);
		assert_string_equal(b.p, want);
	}
	free(b.p);
}

static void test_itl(void **s)
{
	/* 1, 6, 1, 2 tokens at 100, 400, 450, 600 ms */
	const struct rp_mark chunk[] = {
		{ 100000000, 1, 0 }, { 400000000, 6, 0 }, { 450000000, 1, 0 }, { 600000000, 2, 0 }
	};
	const struct rp_mark eng[] = { { 5, 1, 0 }, { 17, 1, 0 } };
	struct rp_record r = vllm();
	char *got;

	(void)s;
	r.chunk_marks = chunk;
	r.n_chunk_marks = 4;
	r.chunks = 4;
	r.itl_source = RP_ITL_SERVER;
	rp_derive(&r);
	got = json(&r);
	assert_null(strstr(got, "itl_ms\":[")); /* not asked for */
	free(got);
	r.itl_wanted = true;
	has(&r,
	    ",\"flags\":[],\"itl_ms\":[50,50,50,50,50,50,50,75,75],\"icl_ms\":[300,50,150],\"itl_source\":\"server\"}");
	r.eng_marks = eng;
	r.n_eng_marks = 2;
	r.itl_source = RP_ITL_ENGINE;
	has(&r, "\"itl_ms\":[0.000012],\"icl_ms\":[300,50,150],\"itl_source\":\"engine\"}");
	r.itl_source = RP_ITL_NONE;
	r.stream = 0;
	rp_derive(&r);
	r.n_chunk_marks = 0;
	r.v[RP_FIELD_S_CHUNKS].known = false;
	has(&r, "\"itl_ms\":null,\"icl_ms\":null,\"itl_source\":null}");
}

/* Members that are there only when they have something to say. */
static void test_choices_and_estimate(void **s)
{
	struct rp_record r = vllm();
	char *got;

	(void)s;
	r.n_choice_tokens = 2;
	r.choice_tokens[0] = 6;
	rp_derive(&r);
	got = json(&r);
	assert_null(strstr(got, "choice_tokens")); /* one choice is tokens.completion */
	assert_null(strstr(got, "\"estimated\":"));
	free(got);
	r.choices = 2;
	r.choice_tokens[1] = 4000000000u;
	r.estimate = RP_EST_STEPS;
	r.flags = RP_FLAG_ESTIMATED;
	rp_derive(&r);
	has(&r,
	    "\"source\":\"engine\"},\"choice_tokens\":[6,4000000000],\"metrics\":{\"time_to_first_token_ms\":null,");
	has(&r,
	    "\"total_tokens\":17},\"estimated\":{\"queue_time\":\"steps\"},\"missing\":{\"tokens.reasoning\":\"not_reported\",\"metrics\":\"several_choices\"},\"flags\":[\"estimated\"]}");
	r.n_choice_tokens = 0;
	got = json(&r);
	assert_null(strstr(got, "choice_tokens"));
	free(got);
}

/* Members of what the bodies said: those that were said, and no others. */
static void test_bodies(void **s)
{
	struct rp_record r = vllm();

	(void)s;
	r.max_tokens = RP_NONE;
	r.images = 2;
	for (int i = 0; i < RP_USAGE_COUNT; i++)
		r.usage[i] = i * 7;
	r.prompt_audio_seconds = 1.25;
	r.spec_draft_tokens = 40;
	r.spec_accepted_tokens = 30;
	r.video_inference_s = 0.1;
	rp_derive(&r);
	has(&r,
	    "\"request\":{\"images\":2,\"audios\":0,\"videos\":0},"
	    "\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":7,\"total_tokens\":14,"
	    "\"reasoning_tokens\":21,\"cache_read_tokens\":28,\"cache_write_tokens\":35,"
	    "\"cache_miss_tokens\":42,\"prompt_audio_tokens\":49,\"completion_audio_tokens\":56,"
	    "\"accepted_prediction_tokens\":63,\"rejected_prediction_tokens\":70,"
	    "\"tool_use_prompt_tokens\":77,\"prompt_audio_seconds\":1.25},"
	    "\"speculation\":{\"draft_tokens\":40,\"accepted_tokens\":30},"
	    "\"video\":{\"inference_s\":0.1},\"missing\"");
	r.spec_steps = 12;
	r.video_peak_memory_mb = 1536;
	has(&r, "\"speculation\":{\"steps\":12,\"draft_tokens\":40,\"accepted_tokens\":30},"
		"\"video\":{\"inference_s\":0.1,\"peak_memory_mb\":1536}");
}

/* The engine's doubles read back as themselves. */
static void test_engine_digits(void **s)
{
	struct rp_record r = vllm();

	(void)s;
	r.e_queued = 2803.921513;
	r.e_scheduled = 2803.921545138;
	r.e_first = 2803.932210567;
	r.e_last = 2803.951678628;
	rp_derive(&r);
	has(&r,
	    "\"metrics\":{\"time_to_first_token_ms\":10.665428999800497,\"generation_time_ms\":19.468061000225134,"
	    "\"queue_time_ms\":0.03213800027879188,\"mean_itl_ms\":3.893612200045027,\"tokens_per_second\":199.11400903097837},");
}

/* ---- a step ---- */

static struct rp_step_info full_step(void)
{
	return (struct rp_step_info){
		.engine = "vllm",
		.version = "0.32.0",
		.pid = 7096,
		.index = 1,
		.seq = 42,
		.ts = 2803932210567LL,
		.sent = 2803932210567LL + 181000,
		.step_ns = 3893612,
		/* 2026-11-29T14:57:30.123456789Z */
		.wall_offset = 1795964250123456789LL - 2803932210567LL,
		.requests = 5,
		.tokens = 7,
		.first_tokens = 1,
		.finished = 2,
		.preempted = 1,
		.preempted_known = true,
		.max_tokens = 3,
		.has_stats = true,
		.running = 5,
		.waiting = 9,
		.kv_usage = 0.25,
		.prefix_queries = 100,
		.prefix_hits = 64,
		.spec_drafts = 4,
		.spec_draft_tokens = 12,
		.spec_accepted_tokens = 8,
	};
}

static void step_is(const struct rp_step_info *st, const char *want)
{
	size_t len;
	char *got = rp_step_json(st, &len);

	assert_non_null(got);
	assert_int_equal(strlen(got), len);
	assert_true(valid_json(got));
	assert_string_equal(got, want);
	free(got);
}

static void test_step(void **s)
{
	struct rp_step_info st = full_step();

	(void)s;
	step_is(&st,
		"{\"schema\":\"reqprobe.step/1\",\"time\":\"2026-11-29T14:57:30.123456789Z\","
		"\"engine\":{\"name\":\"vllm\",\"version\":\"0.32.0\",\"core_pid\":7096,\"index\":1},"
		"\"seq\":42,\"timestamp_s\":2803.932210567,\"send_delay_ms\":0.181,\"step_ms\":3.893612,"
		"\"batch_tokens\":null,"
		"\"requests\":5,\"tokens\":7,\"first_tokens\":1,\"finished\":2,\"preempted\":1,\"max_tokens\":3,"
		"\"running\":5,\"waiting\":9,\"kv_cache_usage\":0.25,\"prefix_cache_queries\":100,"
		"\"prefix_cache_hits\":64,\"spec_drafts\":4,\"spec_draft_tokens\":12,"
		"\"spec_accepted_tokens\":8,\"cut\":false}");
	/* log stats off: estimates, and which */
	st.has_stats = false;
	st.estimated = true;
	step_is(&st,
		"{\"schema\":\"reqprobe.step/1\",\"time\":\"2026-11-29T14:57:30.123456789Z\","
		"\"engine\":{\"name\":\"vllm\",\"version\":\"0.32.0\",\"core_pid\":7096,\"index\":1},"
		"\"seq\":42,\"timestamp_s\":2803.932210567,\"send_delay_ms\":0.181,\"step_ms\":3.893612,"
		"\"batch_tokens\":null,"
		"\"requests\":5,\"tokens\":7,\"first_tokens\":1,\"finished\":2,\"preempted\":1,\"max_tokens\":3,"
		"\"running\":null,\"waiting\":null,\"kv_cache_usage\":0.25,\"prefix_cache_queries\":null,"
		"\"prefix_cache_hits\":null,\"spec_drafts\":null,\"spec_draft_tokens\":null,"
		"\"spec_accepted_tokens\":null,\"cut\":false,"
		"\"estimated\":{\"preempted\":\"steps\",\"kv_cache_usage\":\"steps\"}}");
	st.estimated = false;
	st.has_stats = true;
	/* of calls of the model */
	st.positions = true;
	st.batch = 41;
	st.prefix_queries = st.prefix_hits = RP_NONE;
	st.spec_drafts = st.spec_draft_tokens = st.spec_accepted_tokens = RP_NONE;
	st.sent = RP_NONE;
	step_is(&st,
		"{\"schema\":\"reqprobe.step/1\",\"time\":\"2026-11-29T14:57:30.123456789Z\","
		"\"engine\":{\"name\":\"vllm\",\"version\":\"0.32.0\",\"core_pid\":7096,\"index\":1},"
		"\"seq\":42,\"timestamp_s\":2803.932210567,\"send_delay_ms\":null,\"step_ms\":3.893612,"
		"\"batch_tokens\":41,"
		"\"requests\":5,\"tokens\":7,\"first_tokens\":1,\"finished\":2,\"preempted\":1,\"max_tokens\":3,"
		"\"running\":5,\"waiting\":9,\"kv_cache_usage\":0.25,\"prefix_cache_queries\":null,"
		"\"prefix_cache_hits\":null,\"spec_drafts\":null,\"spec_draft_tokens\":null,"
		"\"spec_accepted_tokens\":null,\"cut\":false,"
		"\"estimated\":{\"kv_cache_usage\":\"positions\"}}");
	/* no stats, and what is left in them is not shown */
	st.has_stats = false;
	st.engine = st.version = NULL;
	st.pid = 0;
	st.step_ns = st.sent = RP_NONE;
	st.batch = 31;
	st.positions = true; /* of an unknown figure: not told */
	st.cut = true;
	step_is(&st,
		"{\"schema\":\"reqprobe.step/1\",\"time\":\"2026-11-29T14:57:30.123456789Z\","
		"\"engine\":{\"name\":null,\"version\":null,\"core_pid\":null,\"index\":1},"
		"\"seq\":42,\"timestamp_s\":2803.932210567,\"send_delay_ms\":null,\"step_ms\":null,"
		"\"batch_tokens\":31,"
		"\"requests\":5,\"tokens\":7,\"first_tokens\":1,\"finished\":2,\"preempted\":1,\"max_tokens\":3,"
		"\"running\":null,\"waiting\":null,\"kv_cache_usage\":null,\"prefix_cache_queries\":null,"
		"\"prefix_cache_hits\":null,\"spec_drafts\":null,\"spec_draft_tokens\":null,"
		"\"spec_accepted_tokens\":null,\"cut\":true}");
	/* stats that tell some */
	st = full_step();
	st.ts = RP_NONE;
	st.max_tokens = st.waiting = st.prefix_queries = st.prefix_hits = RP_NONE;
	st.spec_drafts = st.spec_draft_tokens = st.spec_accepted_tokens = RP_NONE;
	st.kv_usage = NAN;
	st.running = 0;
	step_is(&st,
		"{\"schema\":\"reqprobe.step/1\",\"time\":null,"
		"\"engine\":{\"name\":\"vllm\",\"version\":\"0.32.0\",\"core_pid\":7096,\"index\":1},"
		"\"seq\":42,\"timestamp_s\":null,\"send_delay_ms\":null,\"step_ms\":3.893612,"
		"\"batch_tokens\":null,"
		"\"requests\":5,\"tokens\":7,\"first_tokens\":1,\"finished\":2,\"preempted\":1,\"max_tokens\":null,"
		"\"running\":0,\"waiting\":null,\"kv_cache_usage\":null,\"prefix_cache_queries\":null,"
		"\"prefix_cache_hits\":null,\"spec_drafts\":null,\"spec_draft_tokens\":null,"
		"\"spec_accepted_tokens\":null,\"cut\":false}");
}

static void test_summary(void **s)
{
	static const struct rp_engine_hook hooks[] = { { .function = "server_queue::post" },
						       { .function = "process_token" },
						       { .function = "server_queue::post" },
						       { .function = "process_token" },
						       { .function = "release" } };
	const struct rp_engine e = { .name = "llamacpp", .hooks = hooks, .n_hooks = 5 };
	struct rp_stats st = { .started = 96,
			       .ends = { 94, 2 },
			       .lost = { 5, 0, 1, 0 },
			       .seen = { 7, 8, 9, 1 },
			       .unobserved_tls = 3,
			       .bytes_cut = 12,
			       .hook_hits = { 96, 5000, 0, 7, 2 },
			       .cores = { { .pid = 7096,
					    .gone = true,
					    .log_stats = true,
					    .prefix_queries = 100,
					    .prefix_hits = 64,
					    .preemptions = 3,
					    .steps = 1234,
					    .tokens = 5000,
					    .outputs = 4900 },
					  { .pid = 7097,
					    .index = 1,
					    .gone = true,
					    .prefix_queries = 9,
					    .spec = true,
					    .spec_drafts = 4,
					    .spec_draft_tokens = 12,
					    .spec_accepted_tokens = 8 } },
			       .n_cores = 2,
			       .limit_cores = 6,
			       .limit_ids = 9,
			       .messages = 1300,
			       .messages_cut = 1,
			       .messages_bad = 2,
			       .messages_repeated = 3,
			       .tasks_unclaimed = 4 };
	struct rp_summary_info i = { .engine = "llamacpp",
				     .engine_version = "",
				     .host = "gpu\"1",
				     .pid = 4,
				     .started_wall = 1795964250123456789LL,
				     .stopped_wall = 1795964250123456790LL,
				     .table = &e };
	size_t len;
	char *j = rp_summary_json(&st, &i, 17, &len);

	(void)s;
	assert_true(valid_json(j));
	assert_non_null(strstr(j, "{\"schema\":\"reqprobe.summary/1\",\"reqprobe\":\"" RP_VERSION
				  "\",\"host\":\"gpu\\\"1\""));
	assert_non_null(strstr(
		j,
		"\"start\":\"2026-11-29T14:57:30.123456789Z\",\"stop\":\"2026-11-29T14:57:30.123456790Z\""));
	assert_non_null(strstr(
		j,
		"\"started\":96,\"ends\":{\"complete\":94,\"client_disconnect\":2,\"server_close\":0,\"error\":0,\"unknown\":0},\"in_flight\":0"));
	assert_non_null(strstr(
		j,
		"\"events_seen\":{\"data\":7,\"conn\":8,\"hook\":9,\"proc\":1},\"events_lost\":{\"data\":5,\"conn\":0,\"hook\":1,\"proc\":0}"));
	assert_non_null(strstr(
		j,
		"\"unobserved_connections\":{\"tls\":3,\"http2\":0,\"other\":0,\"io_uring\":0}"));
	assert_non_null(strstr(j, "\"records_failed\":17,"));
	assert_non_null(strstr(
		j,
		"\"tasks_unclaimed\":4,\"messages\":{\"decoded\":1300,\"cut\":1,\"bad\":2,\"repeated\":3},\"tokens\""));
	assert_non_null(strstr(j, "\"marks\":0,\"cores\":6,\"ids\":9}"));
	assert_non_null(strstr(
		j,
		",\"cores\":[{\"core_pid\":7096,\"index\":0,\"steps\":1234,\"requests\":4900,\"tokens\":5000,\"preemptions\":3,"
		"\"prefix_cache_queries\":100,\"prefix_cache_hits\":64,\"spec_drafts\":null,\"spec_draft_tokens\":null,\"spec_accepted_tokens\":null},"
		"{\"core_pid\":7097,\"index\":1,\"steps\":0,\"requests\":0,\"tokens\":0,\"preemptions\":0,"
		"\"prefix_cache_queries\":null,\"prefix_cache_hits\":null,\"spec_drafts\":4,\"spec_draft_tokens\":12,\"spec_accepted_tokens\":8,\"estimated\":{\"preemptions\":\"steps\"}}],\"hooks\""));
	assert_non_null(strstr(
		j,
		"\"hooks\":[{\"function\":\"server_queue::post\",\"hits\":96},{\"function\":\"process_token\",\"hits\":5007},{\"function\":\"release\",\"hits\":2}]}"));
	free(j);
}

/* ---- the file ---- */

static char dir[] = "/tmp/reqprobe-jsonl-XXXXXX";

static const char *path_in(const char *name)
{
	static char ring[4][256]; /* a few live at once */
	static unsigned next;
	char *p = ring[next++ % 4];

	snprintf(p, sizeof(ring[0]), "%s/%s", dir, name);
	return p;
}

/* Every line whole and valid; returns their number. */
static size_t check_file(const char *path)
{
	FILE *f = fopen(path, "r");
	char *line = NULL;
	size_t cap = 0, n = 0;
	ssize_t len;

	assert_non_null(f);
	while ((len = getline(&line, &cap, f)) > 0) {
		assert_int_equal(line[len - 1], '\n');
		line[len - 1] = '\0';
		if (!valid_json(line))
			fail_msg("line %zu of %s: %s", n + 1, path, line);
		n++;
	}
	free(line);
	fclose(f);
	return n;
}

static struct rp_jsonl *must_open(const char *path)
{
	struct rp_jsonl *j;
	char err[200] = "";

	if (rp_jsonl_open(path, &j, err, sizeof(err)))
		fail_msg("%s", err);
	return j;
}

static void test_file(void **s)
{
	const char *p = path_in("plain.jsonl");
	struct rp_record r = vllm();
	struct rp_stats st = { 0 };
	struct rp_summary_info i = { 0 };
	struct stat sb;
	struct rp_jsonl *j = must_open(p);
	char err[200];

	(void)s;
	rp_derive(&r);
	for (int k = 0; k < 1000; k++)
		assert_int_equal(rp_jsonl_record(j, &r), 0);
	assert_int_equal(rp_jsonl_summary(j, &st, &i), 0);
	assert_int_equal(check_file(p), 1001);
	assert_int_equal(rp_jsonl_failed(j), 0);
	stat(p, &sb);
	assert_int_equal(sb.st_mode & 0777 & ~0640, 0);

	/* SIGHUP after logrotate has moved it */
	rename(p, path_in("moved.jsonl"));
	assert_int_equal(rp_jsonl_reopen(j, err, sizeof(err)), 0);
	assert_int_equal(rp_jsonl_record(j, &r), 0);
	rp_jsonl_close(j);
	assert_int_equal(check_file(p), 1);
	/* appends */
	j = must_open(p);
	rp_jsonl_record(j, &r);
	rp_jsonl_close(j);
	assert_int_equal(check_file(p), 2);
	assert_int_equal(check_file(path_in("moved.jsonl")), 1001);
}

/* Steps go to a file of their own, with the same promises. */
static void test_step_file(void **s)
{
	const char *p = path_in("steps.jsonl");
	struct rp_step_info st = full_step();
	struct rp_jsonl *j = must_open(p), *full = must_open("/dev/full");
	char err[200];

	(void)s;
	for (int k = 0; k < 3000; k++) { /* more than one buffer */
		st.seq = (uint64_t)k + 1;
		assert_int_equal(rp_jsonl_step(j, &st), 0);
	}
	assert_int_equal(rp_jsonl_reopen(j, err, sizeof(err)), 0);
	assert_int_equal(check_file(p), 3000);
	rp_jsonl_close(j);
	assert_int_equal(rp_jsonl_failed(full), 0);
	rp_jsonl_step(full, &st);
	assert_int_equal(rp_jsonl_flush(full), -ENOSPC);
	assert_int_equal(rp_jsonl_failed(full), 1);
	rp_jsonl_close(full);
}

static void test_open_refused(void **s)
{
	struct rp_jsonl *j;
	char err[200] = "";

	(void)s;
	assert_int_equal(rp_jsonl_open(path_in("no/such/dir"), &j, err, sizeof(err)), -ENOENT);
	assert_null(j);
	assert_non_null(strstr(err, "no/such/dir: No such file"));
	assert_null(strchr(err, '\n'));
}

/* Somebody died inside a line: ours starts on its own. */
static void test_after_torn_line(void **s)
{
	const char *p = path_in("torn.jsonl");
	FILE *f = fopen(p, "w");
	struct rp_record r = vllm();
	struct rp_jsonl *j;
	char *line = NULL;
	size_t cap = 0;

	(void)s;
	fputs("{\"schema\":\"reqp", f);
	fclose(f);
	rp_derive(&r);
	j = must_open(p);
	rp_jsonl_record(j, &r);
	rp_jsonl_close(j);
	f = fopen(p, "r");
	assert_true(getline(&line, &cap, f) > 0);
	assert_string_equal(line, "{\"schema\":\"reqp\n");
	assert_true(getline(&line, &cap, f) > 0);
	line[strlen(line) - 1] = '\0';
	assert_true(valid_json(line));
	free(line);
	fclose(f);
}

static void test_dev_full(void **s)
{
	struct rp_record r = vllm();
	struct rp_jsonl *j = must_open("/dev/full");

	(void)s;
	rp_derive(&r);
	rp_jsonl_record(j, &r);
	rp_jsonl_record(j, &r);
	assert_int_equal(rp_jsonl_flush(j), -ENOSPC);
	assert_int_equal(rp_jsonl_failed(j), 2);
	rp_jsonl_record(j, &r);
	assert_int_equal(rp_jsonl_flush(j), -ENOSPC);
	assert_int_equal(rp_jsonl_failed(j), 3);
	rp_jsonl_close(j);
}

/* A limit in the middle of a line, at many places; then room again. */
static void test_file_limit(void **s)
{
	struct rp_record r = vllm();
	struct rlimit old, lim;
	size_t len, written;
	char *one;

	(void)s;
	rp_derive(&r);
	one = rp_record_json(&r, &len);
	free(one);
	len++;
	getrlimit(RLIMIT_FSIZE, &old);
	for (size_t at = 0; at < 3 * len; at += 97) {
		const char *p = path_in("limit.jsonl");
		struct rp_jsonl *j = must_open(p);

		lim = old;
		lim.rlim_cur = at;
		setrlimit(RLIMIT_FSIZE, &lim);
		for (int k = 0; k < 5; k++)
			rp_jsonl_record(j, &r);
		assert_int_equal(rp_jsonl_flush(j), -EFBIG);
		rp_jsonl_record(j, &r);
		assert_int_equal(rp_jsonl_flush(j), -EFBIG);
		setrlimit(RLIMIT_FSIZE, &old);
		written = check_file(p);
		assert_int_equal(written, at / len);
		assert_int_equal(written + rp_jsonl_failed(j), 6);
		rp_jsonl_record(j, &r);
		assert_int_equal(rp_jsonl_flush(j), 0);
		rp_jsonl_close(j);
		assert_int_equal(check_file(p), written + 1);
		unlink(p);
	}
}

/* A pipe that takes part of a line: its rest comes first when it drains. */
static void test_slow_pipe(void **s)
{
	struct rp_record r = vllm();
	const char *fifo = path_in("fifo"), *copy = path_in("fifo.jsonl");
	char buf[65536];
	struct rp_jsonl *j;
	int rd, out, n = 0;
	ssize_t k;

	(void)s;
	assert_int_equal(mkfifo(fifo, 0600), 0);
	rd = open(fifo, O_RDONLY | O_NONBLOCK);
	j = must_open(fifo);
	/* the file description is ours only: make it non-blocking through /proc */
	for (int fd = 3; fd < 64; fd++) {
		char link[64], to[256];
		ssize_t l;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		l = readlink(link, to, sizeof(to) - 1);
		if (l > 0 && (to[l] = '\0', !strcmp(to, fifo)) && fd != rd)
			fcntl(fd, F_SETFL, O_NONBLOCK);
	}
	rp_derive(&r);
	for (; n < 100; n++) /* 64 KiB of pipe take about 36 */
		rp_jsonl_record(j, &r);
	assert_int_equal(rp_jsonl_flush(j), 0); /* slow is not lost */
	out = open(copy, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	for (int round = 0; round < 10; round++) {
		while ((k = read(rd, buf, sizeof(buf))) > 0)
			assert_int_equal(write(out, buf, (size_t)k), k);
		assert_int_equal(rp_jsonl_flush(j), 0);
	}
	assert_int_equal(rp_jsonl_failed(j), 0);
	close(out);
	close(rd);
	rp_jsonl_close(j);
	assert_int_equal(check_file(copy), 100);
}

/* Nobody reads: what waits stays, what comes later is lost and counted; of what is read at
 * last nothing is missing inside, and the summary is no record. */
static void test_unread_pipe(void **s)
{
	enum { N = 3000 };
	struct rp_record r = vllm();
	struct rp_stats stats = { 0 };
	struct rp_summary_info info = { .host = "h" };
	char path[32], *text = malloc(16u << 20), *p, *nl;
	struct rp_jsonl *j;
	size_t n = 0, wrote = 0;
	bool lost = false;
	uint64_t failed;
	int fds[2], k = 0;
	ssize_t got;

	(void)s;
	assert_non_null(text);
	assert_int_equal(pipe(fds), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[1]);
	j = must_open(path);
	close(fds[1]);
	rp_jsonl_never_wait(j);
	rp_derive(&r);
	for (int i = 0; i < N; i++) {
		int err;

		snprintf(r.x_request_id, sizeof(r.x_request_id), "n%d", i);
		err = rp_jsonl_record(j, &r);
		assert_true(err == (lost ? -EAGAIN : 0) || (!lost && err == -EAGAIN));
		lost = err != 0;
		wrote += !err;
	}
	failed = rp_jsonl_failed(j);
	assert_true(lost);
	assert_int_equal(wrote + failed, N);
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	do
		while ((got = read(fds[0], text + n, (16u << 20) - n)) > 0)
			n += (size_t)got;
	while (rp_jsonl_flush(j) == 0 && poll(&(struct pollfd){ fds[0], POLLIN, 0 }, 1, 0) > 0);
	/* the 2 MiB, and what the pipe itself holds */
	assert_true(n > (2u << 20) && n < (2u << 20) + (128u << 10));
	assert_int_equal(text[n - 1], '\n');
	for (p = text; p < text + n; p = nl + 1) { /* the first ones, none left out */
		char want[64];

		nl = memchr(p, '\n', (size_t)(text + n - p));
		*nl = 0;
		snprintf(want, sizeof(want), "\"x_request_id\":\"n%d\"", k++);
		assert_non_null(strstr(p, want));
	}
	assert_int_equal(k, wrote);
	/* there is room again; then who reads goes: 3 records and no summary */
	for (int i = 0; i < 3; i++)
		assert_int_equal(rp_jsonl_record(j, &r), 0);
	close(fds[0]);
	signal(SIGPIPE, SIG_IGN);
	rp_jsonl_summary(j, &stats, &info);
	rp_jsonl_end(j);
	assert_int_equal(rp_jsonl_failed(j), failed + 3);
	rp_jsonl_close(j);
	free(text);
}

static void test_speed(void **s)
{
	struct rp_record r = vllm();
	struct rp_jsonl *j = must_open("/dev/null");
	struct timespec a, b;
	double sec;

	(void)s;
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < 200000; i++) {
		r.t_eng_last += 7;
		r.t_last_token += 13;
		r.t_end += 17;
		rp_derive(&r);
		rp_jsonl_record(j, &r);
	}
	rp_jsonl_close(j);
	clock_gettime(CLOCK_MONOTONIC, &b);
	sec = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
	/* a figure, not a threshold: this build may have sanitizers */
	print_message("derive + jsonl: %.0f records/s\n", 200000 / sec);
}

static int setup(void **s)
{
	(void)s;
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **s)
{
	const char *names[] = { "plain.jsonl", "moved.jsonl", "torn.jsonl", "limit.jsonl",
				"fifo",	       "fifo.jsonl",  "steps.jsonl" };

	(void)s;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		unlink(path_in(names[i]));
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_contract_line), cmocka_unit_test(test_nulls),
		cmocka_unit_test(test_error_and_v6),  cmocka_unit_test(test_escapes),
		cmocka_unit_test(test_time),	      cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_itl),	      cmocka_unit_test(test_choices_and_estimate),
		cmocka_unit_test(test_bodies),	      cmocka_unit_test(test_engine_digits),
		cmocka_unit_test(test_step),	      cmocka_unit_test(test_summary),
		cmocka_unit_test(test_file),	      cmocka_unit_test(test_step_file),
		cmocka_unit_test(test_open_refused),  cmocka_unit_test(test_after_torn_line),
		cmocka_unit_test(test_dev_full),      cmocka_unit_test(test_file_limit),
		cmocka_unit_test(test_slow_pipe),     cmocka_unit_test(test_unread_pipe),
		cmocka_unit_test(test_speed),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
