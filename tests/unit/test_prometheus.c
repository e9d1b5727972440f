// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* /metrics: the text by a strict reader and by promtool, and the server. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "series.h"
#include "sink/sink.h"

#define MS 1000000LL

/* ---- a reader of the text format, strict where Prometheus is ---- */

struct reader {
	char family[128], type[16];
	char seen[128][128];
	int n_seen;
	/* the histogram series being read */
	char series[512];
	uint64_t last, inf;
	bool in_series, inf_seen;
	double last_le;
};

static void finish_series(struct reader *r)
{
	if (r->in_series)
		assert_true(r->inf_seen);
	r->in_series = false;
}

static void read_sample(struct reader *r, const char *line)
{
	char name[128], labels[512] = "", plain[128], *end;
	const char *p = line + strcspn(line, "{ "), *le = NULL;
	size_t fam = strlen(r->family), k = 0;
	double v;

	assert_true((size_t)(p - line) < sizeof(name));
	memcpy(name, line, (size_t)(p - line));
	name[p - line] = '\0';
	/* belongs to the family declared just above */
	if (!strcmp(r->type, "histogram")) {
		assert_int_equal(strncmp(name, r->family, fam), 0);
		strcpy(plain, name + fam);
		assert_true(!strcmp(plain, "_bucket") || !strcmp(plain, "_sum") ||
			    !strcmp(plain, "_count"));
	} else {
		assert_string_equal(name, r->family);
		plain[0] = '\0';
	}
	if (*p == '{') {
		p++;
		for (;;) {
			const char *key = p, *val;

			p += strspn(p, "abcdefghijklmnopqrstuvwxyz_");
			assert_true(p > key && p[0] == '=' && p[1] == '"');
			val = p += 2;
			while (*p != '"') {
				int n = rp_utf8_len((const unsigned char *)p);

				assert_true(n > 0 && (unsigned char)*p >= 0x20);
				if (*p == '\\') {
					assert_non_null(strchr("\\\"n", p[1]));
					p++;
				}
				p += n;
			}
			if (!strncmp(key, "le=", 3)) {
				le = val;
			} else {
				memcpy(labels + k, key, (size_t)(p - key));
				k += (size_t)(p - key);
				labels[k] = '\0';
			}
			p++;
			if (*p == '}')
				break;
			assert_int_equal(*p++, ',');
		}
		p++;
	}
	assert_int_equal(*p, ' ');
	v = strtod(p + 1, &end);
	assert_int_equal(*end, '\0');
	assert_true(v >= 0);

	if (!strcmp(plain, "_bucket")) {
		double bound = !strncmp(le, "+Inf", 4) ? __builtin_inf() : strtod(le, NULL);

		if (!r->in_series || strcmp(labels, r->series)) {
			finish_series(r);
			r->in_series = true;
			r->inf_seen = false;
			r->last = 0;
			r->last_le = -1;
			strcpy(r->series, labels);
		}
		assert_true(bound > r->last_le);
		assert_true((uint64_t)v >= r->last);
		r->last_le = bound;
		r->last = (uint64_t)v;
		if (bound > 1e300) {
			r->inf_seen = true;
			r->inf = (uint64_t)v;
		}
	} else if (!strcmp(plain, "_count")) {
		assert_string_equal(labels, r->series);
		assert_int_equal((uint64_t)v, r->inf);
		finish_series(r);
	}
}

static void read_text(const char *text)
{
	struct reader r = { .n_seen = 0 };
	const char *p = text;

	while (*p) {
		const char *nl = strchr(p, '\n');
		char line[1024];
		char kind[8], name[128];

		assert_non_null(nl); /* the last line, too, ends in LF */
		assert_true((size_t)(nl - p) < sizeof(line));
		memcpy(line, p, (size_t)(nl - p));
		line[nl - p] = '\0';
		p = nl + 1;
		if (line[0] != '#') {
			read_sample(&r, line);
			continue;
		}
		assert_int_equal(sscanf(line, "# %7s %127s", kind, name), 2);
		if (!strcmp(kind, "HELP")) {
			finish_series(&r);
			for (int i = 0; i < r.n_seen; i++)
				assert_string_not_equal(r.seen[i], name); /* one group each */
			assert_true(r.n_seen < 128);
			strcpy(r.seen[r.n_seen++], name);
			strcpy(r.family, name);
			r.type[0] = '\0';
		} else {
			assert_string_equal(kind, "TYPE");
			assert_string_equal(name, r.family);
			assert_int_equal(sscanf(line, "# TYPE %*s %15s", r.type), 1);
		}
	}
	finish_series(&r);
}

static void has_line(const char *text, const char *line)
{
	char want[512];

	snprintf(want, sizeof(want), "\n%s\n", line);
	if (!strstr(text, want))
		fail_msg("%s is not in\n%s", line, text);
}

/* ---- what is fed ---- */

static struct rp_record record(void)
{
	struct rp_record r;

	memset(&r, 0, sizeof(r));
	r.operation = RP_OP_CHAT;
	strcpy(r.model, "tiny");
	r.status = 200;
	for (int f = 0; f < RP_FIELD_COUNT; f++)
		r.v[f].why = RP_WHY_NOT_SEEN;
	return r;
}

static void set(struct rp_record *r, enum rp_field f, int64_t v)
{
	r->v[f].known = true;
	r->v[f].i = v;
}

static const struct rp_engine_hook hooks[] = { { .function = "server_queue::post" },
					       { .function = "process_token" },
					       { .function = "process_token" } };
static const struct rp_engine engine = { .name = "llamacpp", .hooks = hooks, .n_hooks = 3 };
static const struct rp_prog_stat progs[] = { { "on_write", 1500000000, 10 },
					     { "on_read", 20, 1 },
					     { "on_write", 500000001, 5 } };
static const struct rp_prom_process process = {
	.cpu_seconds = 1.25,
	.resident_bytes = 12345678,
	.progs = progs,
	.n_progs = 3,
	.engine = "llamacpp",
	.table = &engine,
	.jsonl_failed = 2,
	.ring_backlog_bytes = 64,
	.start_seconds = 1795964000.5,
};
static const struct rp_stats stats = {
	.started = 10,
	.ends = { 5, 5 },
	.waiting = 2,
	.running = 4,
	.scheduler_known = true,
	.other_paths = 7,
	.connections = 3,
	.conns_by_proto = { 0, 9, 1 },
	.unobserved_tls = 1,
	.tokens_prompt = 55,
	.tokens_completion = 66,
	.unknown_prompt = 3,
	.unknown_completion = 4,
	.bytes_rx = 1,
	.bytes_tx = 2,
	.seen = { 100, 20, 30, 4 },
	.lost = { 3, 0, 0, 0 },
	.map_full = { 0, 1, 0, 0 },
	.handshakes_untrusted = { 0, 0, 4, 5, 0 },
	.hook_hits = { 8, 1, 2 },
	.limit_tasks = 6,
};

static char *render(struct rp_prom *p)
{
	size_t len;
	char *t = rp_prom_render(p, &stats, &process, &len);

	assert_non_null(t);
	assert_int_equal(strlen(t), len);
	read_text(t);
	return t;
}

static struct rp_step_info a_step(uint32_t pid, int64_t index, int64_t step_ns, uint32_t tokens)
{
	return (struct rp_step_info){
		.pid = pid,
		.index = index,
		.step_ns = step_ns,
		.tokens = tokens,
		.requests = tokens / 2,
	};
}

/* Two engines of one index are told apart by pid, others are not. */
static void test_cores(void **s)
{
	struct rp_prom *p = rp_prom_new(NULL);
	struct rp_stats st = stats;
	struct rp_step_info a = a_step(70, 0, 4 * MS, 8), b = a_step(71, 1, RP_NONE, 0),
			    c = a_step(72, 1, 5 * MS, 4097);
	struct rp_prom_process om = process;
	size_t len;
	char *t;

	(void)s;
	st.messages = 50;
	st.messages_cut = 1;
	st.messages_bad = 2;
	st.messages_repeated = 3;
	st.tasks_unclaimed = 4;
	st.limit_cores = 9;
	st.cores[0] = (struct rp_core){ .pid = 70,
					.stats = true,
					.log_stats = true,
					.running = 3,
					.waiting = 0,
					.kv_usage = 0.5,
					.prefix_queries = 100,
					.prefix_hits = 64,
					.preemptions = 7,
					.steps = 20,
					.tokens = 60,
					.outputs = 50 };
	/* gone: totals stay, gauges do not */
	st.cores[1] = (struct rp_core){ .pid = 71,
					.index = 1,
					.gone = true,
					.log_stats = true,
					.running = 5,
					.kv_usage = 0.9,
					.prefix_queries = 11 };
	/* says nothing of its state */
	st.cores[2] = (struct rp_core){ .pid = 72,
					.index = 1,
					.kv_usage = __builtin_nan(""),
					.spec = true,
					.spec_drafts = 4,
					.spec_draft_tokens = 12,
					.spec_accepted_tokens = 8 };
	/* tells some: a count that is not known is no 0 */
	st.cores[3] = (struct rp_core){ .pid = 73,
					.index = 2,
					.stats = true,
					.running = RP_NONE,
					.waiting = 1,
					.kv_usage = __builtin_nan("") };
	st.n_cores = 4;
	rp_prom_step(p, &a);
	a.step_ns = 6 * MS;
	rp_prom_step(p, &a);
	a.cut = true; /* when it was is known, what was in it is not */
	rp_prom_step(p, &a);
	rp_prom_step(p, &b);
	rp_prom_step(p, &c);
	t = rp_prom_render(p, &st, &process, &len);
	read_text(t);
	has_line(t, "reqprobe_scheduler_requests_running{engine_index=\"0\"} 3");
	has_line(t, "reqprobe_scheduler_requests_waiting{engine_index=\"0\"} 0");
	has_line(t, "reqprobe_scheduler_kv_cache_usage_ratio{engine_index=\"0\"} 0.5");
	has_line(t, "reqprobe_scheduler_requests_waiting{engine_index=\"2\"} 1");
	assert_null(strstr(t, "reqprobe_scheduler_requests_running{engine_index=\"1\""));
	assert_null(strstr(t, "reqprobe_scheduler_requests_running{engine_index=\"2\""));
	assert_null(strstr(t, "reqprobe_scheduler_kv_cache_usage_ratio{engine_index=\"2\""));
	has_line(t, "reqprobe_scheduler_prefix_cache_queries_tokens_total{engine_index=\"0\"} 100");
	has_line(t, "reqprobe_scheduler_prefix_cache_hits_tokens_total{engine_index=\"0\"} 64");
	has_line(
		t,
		"reqprobe_scheduler_prefix_cache_queries_tokens_total{engine_index=\"1\",pid=\"71\"} 11");
	assert_null(strstr(
		t,
		"reqprobe_scheduler_prefix_cache_queries_tokens_total{engine_index=\"1\",pid=\"72\"}"));
	has_line(t, "reqprobe_scheduler_preemptions_total{engine_index=\"0\"} 7");
	has_line(t, "reqprobe_scheduler_steps_total{engine_index=\"0\"} 20");
	has_line(t, "reqprobe_scheduler_tokens_total{engine_index=\"0\"} 60");
	has_line(t, "reqprobe_scheduler_outputs_total{engine_index=\"0\"} 50");
	has_line(t, "reqprobe_scheduler_steps_total{engine_index=\"1\",pid=\"72\"} 0");
	has_line(t, "reqprobe_scheduler_spec_drafts_total{engine_index=\"1\",pid=\"72\"} 4");
	has_line(t, "reqprobe_scheduler_spec_draft_tokens_total{engine_index=\"1\",pid=\"72\"} 12");
	has_line(t,
		 "reqprobe_scheduler_spec_accepted_tokens_total{engine_index=\"1\",pid=\"72\"} 8");
	assert_null(strstr(t, "reqprobe_scheduler_spec_drafts_total{engine_index=\"0\"}"));
	has_line(t, "reqprobe_step_seconds_bucket{engine_index=\"0\",le=\"0.005\"} 1");
	has_line(t, "reqprobe_step_seconds_sum{engine_index=\"0\"} 0.016");
	has_line(t, "reqprobe_step_seconds_count{engine_index=\"0\"} 3");
	has_line(t, "reqprobe_step_seconds_count{engine_index=\"1\",pid=\"71\"} 0");
	has_line(t, "reqprobe_step_tokens_bucket{engine_index=\"0\",le=\"4\"} 0");
	has_line(t, "reqprobe_step_tokens_bucket{engine_index=\"0\",le=\"8\"} 2");
	has_line(t, "reqprobe_step_tokens_sum{engine_index=\"0\"} 16");
	has_line(t, "reqprobe_step_tokens_bucket{engine_index=\"1\",pid=\"71\",le=\"0\"} 1");
	has_line(t, "reqprobe_step_tokens_bucket{engine_index=\"1\",pid=\"72\",le=\"4096\"} 0");
	has_line(t, "reqprobe_step_tokens_bucket{engine_index=\"1\",pid=\"72\",le=\"+Inf\"} 1");
	has_line(t, "reqprobe_step_requests_sum{engine_index=\"0\"} 8");
	has_line(t, "reqprobe_engine_messages_total{result=\"decoded\"} 50");
	has_line(t, "reqprobe_engine_messages_total{result=\"cut\"} 1");
	has_line(t, "reqprobe_engine_messages_total{result=\"bad\"} 2");
	has_line(t, "reqprobe_engine_messages_total{result=\"repeated\"} 3");
	has_line(t, "reqprobe_engine_requests_unclaimed_total 4");
	has_line(t, "reqprobe_limit_hits_total{limit=\"cores\"} 9");
	free(t);
	/* empty is not unknown; and a page that may be cut says where it ends */
	st.cores[0].kv_usage = 0;
	t = rp_prom_render(p, &st, &process, &len);
	has_line(t, "reqprobe_scheduler_kv_cache_usage_ratio{engine_index=\"0\"} 0");
	assert_null(strstr(t, "# EOF"));
	free(t);
	om.format = RP_EXPO_OPENMETRICS;
	t = rp_prom_render(p, &st, &om, &len);
	assert_int_equal(len, strlen(t));
	assert_string_equal(t + len - 7, "\n# EOF\n");
	free(t);
	/* none: nothing of them is said */
	rp_prom_free(p);
	p = rp_prom_new(NULL);
	t = render(p);
	assert_null(strstr(t, "reqprobe_scheduler_"));
	assert_null(strstr(t, "reqprobe_step_"));
	has_line(t, "reqprobe_engine_messages_total{result=\"decoded\"} 0");
	has_line(t, "process_start_time_seconds 1795964000.5");
	/* one series from the start */
	has_line(t, "reqprobe_requests_total{end=\"complete\",status=\"200\"} 0");
	assert_null(strstr(strstr(t, "reqprobe_requests_total{") + 1, "reqprobe_requests_total{"));
	free(t);
	/* and however many there are, the series are bounded */
	for (uint32_t i = 0; i < 1000; i++) {
		c = a_step(100 + i, i % 3, MS, 1);
		c.ts = i;
		rp_prom_step(p, &c);
	}
	t = render(p);
	len = 0;
	for (const char *at = t; (at = strstr(at, "reqprobe_step_seconds_count{")); at++)
		len++;
	assert_int_equal(len, RP_MAX_CORES);
	has_line(t, "reqprobe_step_seconds_count{engine_index=\"0\",pid=\"1099\"} 1");
	free(t);
	rp_prom_free(p);
}

static void test_frontend_and_waits(void **s)
{
	struct rp_prom *p = rp_prom_new(NULL);
	struct rp_record r = record();
	struct rp_prom_process om = process;
	size_t len;
	char *t;

	(void)s;
	set(&r, RP_FIELD_FE_BEFORE, 3 * MS);
	set(&r, RP_FIELD_FE_FIRST, 2 * MS);
	set(&r, RP_FIELD_SCH_PREEMPTIONS, 0);
	set(&r, RP_FIELD_SCH_PREEMPTED, 0);
	set(&r, RP_FIELD_SCH_REQUEUES, 0);
	set(&r, RP_FIELD_SCH_REQUEUE, 0);
	strcpy(r.x_request_id, "of-whom");
	r.t_end = 5 * MS;
	rp_prom_record(p, &r);
	r.x_request_id[0] = '\0';
	r.flags = RP_FLAG_TRUNCATED; /* the first token may lie in what was cut */
	set(&r, RP_FIELD_SCH_PREEMPTIONS, 2);
	set(&r, RP_FIELD_SCH_PREEMPTED, 40 * MS);
	set(&r, RP_FIELD_SCH_REQUEUES, 1);
	set(&r, RP_FIELD_SCH_REQUEUE, 7 * MS);
	rp_prom_record(p, &r);
	om.format = RP_EXPO_OPENMETRICS;
	t = rp_prom_render(p, &stats, &om, &len);
	assert_non_null(strstr(t, " # {request_id=\"of-whom\"} 0.002 0.005\n"));
	free(t);
	t = render(p);
#define CHAT "{model=\"tiny\",operation=\"chat\"}"
	has_line(t, "reqprobe_frontend_before_seconds_count" CHAT " 2");
	has_line(t, "reqprobe_frontend_before_seconds_sum" CHAT " 0.006");
	has_line(t, "reqprobe_frontend_after_first_token_seconds_count" CHAT " 1");
	has_line(t, "reqprobe_frontend_after_first_token_seconds_sum" CHAT " 0.002");
	has_line(t, "reqprobe_preempted_time_seconds_count" CHAT " 1");
	has_line(t, "reqprobe_preempted_time_seconds_sum" CHAT " 0.04");
	has_line(t, "reqprobe_requeue_time_seconds_count" CHAT " 1");
	has_line(t, "reqprobe_requeue_time_seconds_sum" CHAT " 0.007");
	free(t);
	rp_prom_free(p);
}

static void test_values(void **s)
{
	struct rp_prom *p = rp_prom_new(NULL);
	struct rp_record r = record();
	struct rp_gap_info g = {
		.model = "tiny", .source = RP_ITL_ENGINE, .gap_ns = 20 * MS, .n = 6
	};
	char *t;

	(void)s;
	set(&r, RP_FIELD_S_TTFT, 100 * MS); /* on a bound: it belongs below */
	set(&r, RP_FIELD_P_QUEUE, 32138);
	set(&r, RP_FIELD_P_PREFILL, 10665429);
	set(&r, RP_FIELD_P_DECODE, 19468061);
	set(&r, RP_FIELD_S_DURATION, 3000000 * MS); /* beyond the last bound */
	rp_prom_record(p, &r);
	r.end = RP_END_CLIENT_DISCONNECT;
	rp_prom_record(p, &r);
	rp_prom_gap(p, &g);
	g.chunk = true;
	g.n = 1;
	rp_prom_gap(p, &g);
	rp_prom_handshake(p, 31);
	rp_prom_handshake(p, -1);
	t = render(p);
	has_line(t, "reqprobe_build_info{version=\"" RP_VERSION "\"} 1");
	has_line(t, "reqprobe_requests_total{end=\"complete\",status=\"200\"} 1");
	has_line(t, "reqprobe_requests_total{end=\"client_disconnect\",status=\"200\"} 1");
	has_line(t, "reqprobe_requests_in_flight 0");
	has_line(t, "reqprobe_requests_waiting 2");
	has_line(t, "reqprobe_requests_running 4");
	has_line(
		t,
		"reqprobe_time_to_first_token_seconds_bucket{model=\"tiny\",operation=\"chat\",le=\"0.08\"} 0");
	has_line(
		t,
		"reqprobe_time_to_first_token_seconds_bucket{model=\"tiny\",operation=\"chat\",le=\"0.1\"} 2");
	has_line(t,
		 "reqprobe_time_to_first_token_seconds_sum{model=\"tiny\",operation=\"chat\"} 0.2");
	has_line(t,
		 "reqprobe_queue_time_seconds_sum{model=\"tiny\",operation=\"chat\"} 0.000064276");
	has_line(
		t,
		"reqprobe_queue_time_seconds_bucket{model=\"tiny\",operation=\"chat\",le=\"0.0001\"} 2");
	has_line(t, "reqprobe_prefill_time_seconds_count{model=\"tiny\",operation=\"chat\"} 2");
	/* broken off: no decode, no duration */
	has_line(t, "reqprobe_decode_time_seconds_count{model=\"tiny\",operation=\"chat\"} 1");
	has_line(
		t,
		"reqprobe_request_duration_seconds_bucket{model=\"tiny\",operation=\"chat\",le=\"2560\"} 0");
	has_line(
		t,
		"reqprobe_request_duration_seconds_bucket{model=\"tiny\",operation=\"chat\",le=\"+Inf\"} 1");
	has_line(t,
		 "reqprobe_request_duration_seconds_sum{model=\"tiny\",operation=\"chat\"} 3000");
	has_line(t,
		 "reqprobe_inter_token_latency_seconds_count{model=\"tiny\",scope=\"engine\"} 6");
	has_line(t,
		 "reqprobe_inter_token_latency_seconds_sum{model=\"tiny\",scope=\"engine\"} 0.12");
	has_line(t, "reqprobe_inter_chunk_latency_seconds_count{model=\"tiny\"} 1");
	has_line(t, "reqprobe_handshake_rtt_seconds_count 1");
	has_line(t, "reqprobe_handshake_rtt_seconds_sum 0.000031");
	has_line(t, "reqprobe_handshakes_untrusted_total{reason=\"retransmitted\"} 4");
	has_line(t, "reqprobe_tokens_total{direction=\"input\"} 55");
	has_line(t, "reqprobe_tokens_total{direction=\"output\"} 66");
	has_line(t, "reqprobe_requests_tokens_unknown_total{direction=\"input\"} 3");
	has_line(t, "reqprobe_requests_tokens_unknown_total{direction=\"output\"} 4");
	has_line(t, "reqprobe_events_total{class=\"data\"} 100");
	has_line(t, "reqprobe_events_lost_total{class=\"data\"} 3");
	has_line(t, "reqprobe_map_full_total{map=\"threads\"} 1");
	has_line(t, "reqprobe_limit_hits_total{limit=\"tasks\"} 6");
	has_line(t, "reqprobe_unobserved_connections_total{protocol=\"tls\"} 1");
	has_line(t, "reqprobe_connections 3");
	has_line(t, "reqprobe_hook_hits_total{hook=\"server_queue::post\"} 8");
	has_line(t, "reqprobe_hook_hits_total{hook=\"process_token\"} 3");
	has_line(t, "reqprobe_bpf_run_seconds_total{program=\"on_write\"} 2.000000001");
	has_line(t, "reqprobe_bpf_runs_total{program=\"on_write\"} 15");
	has_line(t, "reqprobe_records_failed_total 2");
	has_line(t, "process_cpu_seconds_total 1.25");
	has_line(t, "process_resident_memory_bytes 12345678");
	free(t);
	rp_prom_free(p);
}

/* Nulls and records that a loss touched give no sample; requests still count. */
static void test_only_trusted(void **s)
{
	struct rp_prom *p = rp_prom_new(NULL);
	struct rp_record r = record();
	struct rp_stats no_sched = stats;
	size_t len;
	char *t;

	(void)s;
	no_sched.scheduler_known = false;
	rp_prom_record(p, &r); /* all null */
	set(&r, RP_FIELD_S_TTFT, 5 * MS);
	set(&r, RP_FIELD_S_DURATION, 9 * MS);
	r.flags = RP_FLAG_LOST_EVENTS;
	rp_prom_record(p, &r);
	r.flags = RP_FLAG_PARTIAL;
	r.end = RP_END_UNKNOWN;
	r.status = 0;
	rp_prom_record(p, &r);
	/* refused, and no model in it: that is no name that a client made up */
	r = record();
	r.end = RP_END_ERROR;
	r.status = 400;
	r.model[0] = '\0';
	rp_prom_record(p, &r);
	r = record();
	set(&r, RP_FIELD_S_TTFT, 5 * MS);
	set(&r, RP_FIELD_S_DURATION, 9 * MS);
	r.flags = RP_FLAG_TRUNCATED;
	rp_prom_record(p, &r);
	t = rp_prom_render(p, &no_sched, &process, &len);
	read_text(t);
	has_line(t, "reqprobe_requests_total{end=\"complete\",status=\"200\"} 3");
	has_line(t, "reqprobe_requests_total{end=\"unknown\",status=\"none\"} 1");
	has_line(t,
		 "reqprobe_time_to_first_token_seconds_count{model=\"tiny\",operation=\"chat\"} 0");
	has_line(t, "reqprobe_queue_time_seconds_count{model=\"tiny\",operation=\"chat\"} 0");
	has_line(t, "reqprobe_request_duration_seconds_count{model=\"tiny\",operation=\"chat\"} 1");
	has_line(t,
		 "reqprobe_request_duration_seconds_count{model=\"unknown\",operation=\"chat\"} 0");
	assert_null(strstr(t, "model=\"other\""));
	assert_null(strstr(t, "reqprobe_requests_waiting"));
	assert_null(strstr(t, "reqprobe_requests_running"));
	free(t);
	rp_prom_free(p);
}

/* Names made up by clients are bounded, refused ones are not learned at all. */
static void test_models_bounded(void **s)
{
	const struct rp_prom_opts o = { .max_models = 3 };
	struct rp_prom *p = rp_prom_new(&o);
	struct rp_record r = record();
	const char *at;
	int models = 0;
	char *t;

	(void)s;
	set(&r, RP_FIELD_S_DURATION, 9 * MS);
	r.status = 404;
	for (int i = 0; i < 1000; i++) {
		snprintf(r.model, sizeof(r.model), "junk-%d", i);
		rp_prom_record(p, &r);
	}
	r.status = 200;
	for (int i = 0; i < 1000; i++) {
		struct rp_gap_info g = {
			.model = r.model, .source = RP_ITL_SERVER, .gap_ns = 1, .n = 1
		};

		snprintf(r.model, sizeof(r.model), "real-%d", i);
		rp_prom_record(p, &r);
		rp_prom_gap(p, &g);
	}
	r.model[0] = '\0';
	rp_prom_record(p, &r);
	t = render(p);
	has_line(
		t,
		"reqprobe_request_duration_seconds_count{model=\"other\",operation=\"chat\"} 1998");
	has_line(t,
		 "reqprobe_request_duration_seconds_count{model=\"real-2\",operation=\"chat\"} 1");
	assert_null(strstr(t, "junk"));
	for (at = t; (at = strstr(at, "reqprobe_request_duration_seconds_count{")); at++)
		models++;
	assert_int_equal(models, 4);
	free(t);
	rp_prom_free(p);
}

static void test_label_escapes(void **s)
{
	struct rp_prom *p = rp_prom_new(NULL);
	struct rp_record r = record();
	char *t;

	(void)s;
	strcpy(r.model, "a\"b\\c\nd\xff\x1b[31m\xc3\xa9");
	rp_prom_record(p, &r);
	t = render(p);
	assert_non_null(strstr(t, "{model=\"a\\\"b\\\\c\xef\xbf\xbd"
				  "d\xef\xbf\xbd\xef\xbf\xbd[31m\xc3\xa9\","));
	free(t);
	rp_prom_free(p);
}

#define NO_CHAR "\xef\xbf\xbd"

/* Names that would be written alike are one; and none is taken for a word of our own. */
static void test_names(void **s)
{
	static const struct {
		const char *name, *label;
		int n;
	} t[] = {
		/* no UTF-8, controls, and the character that stands for them */
		{ "a\xff", "a" NO_CHAR, 6 },	 { "a\xc3", "a" NO_CHAR, 6 },
		{ "a\x01", "a" NO_CHAR, 6 },	 { "a\n", "a" NO_CHAR, 6 },
		{ "a\xc2\x85", "a" NO_CHAR, 6 }, { "a" NO_CHAR, "a" NO_CHAR, 6 },
		{ "a\xc2\xa0", "a\xc2\xa0", 1 }, { "other", "_other", 1 },
		{ "_other", "__other", 1 },	 { "__other", "___other", 1 },
		{ "unknown", "_unknown", 1 },	 { "", "unknown", 1 },
		{ "others", "others", 1 },	 { "_", "_", 1 },
	};
	const struct rp_prom_opts o = { .max_models = 9 };
	struct rp_prom *p = rp_prom_new(&o);
	struct rp_record r = record();
	char *text, want[256];

	(void)s;
	set(&r, RP_FIELD_S_DURATION, 9 * MS);
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		struct rp_gap_info g = {
			.model = t[i].name, .source = RP_ITL_ENGINE, .gap_ns = MS, .n = 1
		};

		snprintf(r.model, sizeof(r.model), "%s", t[i].name);
		rp_prom_record(p, &r);
		rp_prom_gap(p, &g);
		g.asked = true;
		rp_prom_gap(p, &g);
	}
	strcpy(r.model, "no room for it");
	rp_prom_record(p, &r);
	text = render(p);
	no_series_twice(text);
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		snprintf(
			want, sizeof(want),
			"reqprobe_request_duration_seconds_count{model=\"%s\",operation=\"chat\"} %d",
			t[i].label, t[i].n);
		has_line(text, want);
		snprintf(
			want, sizeof(want),
			"reqprobe_inter_token_latency_seconds_count{model=\"%s\",scope=\"engine\"} %d",
			t[i].label, 2 * t[i].n);
		has_line(text, want);
	}
	has_line(text,
		 "reqprobe_request_duration_seconds_count{model=\"other\",operation=\"chat\"} 1");
	free(text);
	rp_prom_free(p);

	/* each of its bytes becomes three: cut where a character ends */
	p = rp_prom_new(NULL);
	for (int c = 0x80; c < 0x90; c++) {
		memset(r.model, c, sizeof(r.model) - 1);
		rp_prom_record(p, &r);
	}
	text = render(p);
	no_series_twice(text);
	for (const char *at = strstr(text, "duration_seconds_count{model=\"") + 30, *e = at;;
	     e += 3) {
		if (strncmp(e, NO_CHAR, 3)) {
			assert_int_equal(e - at, 126);
			assert_int_equal(strncmp(e, "\",operation=\"chat\"} 16\n", 23), 0);
			break;
		}
	}
	free(text);
	rp_prom_free(p);
}

/* promtool check metrics, with its lint: exit 0 and not a word */
static void test_promtool(void **s)
{
	struct rp_prom *p = rp_prom_new(NULL);
	struct rp_record r = record();
	struct rp_gap_info g = { .model = "tiny", .source = RP_ITL_SERVER, .gap_ns = MS, .n = 1 };
	char in[] = "/tmp/reqprobe-prom-XXXXXX", out[512] = "", *t;
	struct rp_stats st = stats;
	int fd, pipefd[2], status;
	size_t len;
	ssize_t n;
	pid_t pid;

	(void)s;
	/* in PATH: its package also brings a server, so that it may be kept elsewhere */
	if (system("promtool --version >/dev/null 2>&1")) {
		print_message(
			"SKIP test_promtool: promtool is not installed (Debian: prometheus)\n");
		rp_prom_free(p);
		skip();
	}
	for (int f = 0; f < RP_FIELD_COUNT; f++)
		set(&r, f, MS);
	rp_prom_record(p, &r);
	rp_prom_gap(p, &g);
	g.chunk = true;
	rp_prom_gap(p, &g);
	rp_prom_handshake(p, 100);
	st.n_cores = 2;
	for (unsigned i = 0; i < 2; i++) {
		struct rp_step_info step = a_step(70 + i, 0, MS, 2);

		st.cores[i] = (struct rp_core){ .pid = 70 + i, .stats = true, .spec = true };
		rp_prom_step(p, &step);
	}
	t = rp_prom_render(p, &st, &process, &len);
	read_text(t);
	fd = mkstemp(in);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, t, strlen(t)), strlen(t));
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	unlink(in);
	assert_int_equal(pipe(pipefd), 0);
	pid = fork();
	if (!pid) {
		dup2(fd, 0);
		dup2(pipefd[1], 1);
		dup2(pipefd[1], 2);
		execlp("promtool", "promtool", "check", "metrics", (char *)NULL);
		_exit(127);
	}
	close(pipefd[1]);
	n = read(pipefd[0], out, sizeof(out) - 1);
	close(pipefd[0]);
	close(fd);
	waitpid(pid, &status, 0);
	if (n > 0 || !WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("promtool: status %d: %s", status, out);
	free(t);
	rp_prom_free(p);
}

/* ---- the server; how it treats bad clients: test_httpd.c ---- */

static const struct rp_httpd_opts defaults = { 0 };

static char *some_text(void *ctx, enum rp_expo_format format, size_t *len)
{
	if (*(bool *)ctx)
		return NULL;
	*len = 6;
	return strdup(format == RP_EXPO_OPENMETRICS ? "a_b 2\n" : "a_b 1\n");
}

static int port_of(const struct rp_httpd *h)
{
	return atoi(strrchr(rp_httpd_url(h), ':') + 1);
}

static int dial(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct timeval tv = { .tv_sec = 20 };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

/* Sends, and reads to the end of the connection. */
static void ask(int port, const char *request, char *buf, size_t len)
{
	size_t n = 0, sent = 0, all = strlen(request);
	int fd = dial(port);
	ssize_t k;

	while (sent < all && (k = send(fd, request + sent, all - sent, MSG_NOSIGNAL)) > 0)
		sent += (size_t)k;
	while (n < len - 1 && (k = recv(fd, buf + n, len - 1 - n, 0)) > 0)
		n += (size_t)k;
	buf[n] = '\0';
	close(fd);
}

#define CLOSE " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

static int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void test_http(void **s)
{
	bool none = false;
	struct rp_httpd *h, *second;
	char buf[8192], err[200] = "", addr[64], *big;
	int fds = open_fds(), port;

	(void)s;
	assert_int_equal(rp_httpd_start("127.0.0.1:0", &defaults, some_text, &none, &h, err,
					sizeof(err)),
			 0);
	port = port_of(h);
	assert_true(port > 0);
	assert_int_equal(strncmp(rp_httpd_url(h), "http://127.0.0.1:", 17), 0);

	ask(port, "GET /metrics" CLOSE, buf, sizeof(buf));
	assert_int_equal(strncmp(buf, "HTTP/1.1 200 ", 13), 0);
	assert_non_null(strstr(buf, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
	assert_non_null(strstr(buf, "\r\n\r\na_b 1\n"));
	ask(port, "GET /metrics?name[]=x" CLOSE, buf, sizeof(buf));
	assert_int_equal(strncmp(buf, "HTTP/1.1 200 ", 13), 0);
	ask(port, "HEAD /metrics" CLOSE, buf, sizeof(buf));
	assert_int_equal(strncmp(buf, "HTTP/1.1 200 ", 13), 0);
	assert_non_null(strstr(buf, "Content-Length: 6\r\n"));
	assert_null(strstr(buf, "a_b 1"));
	ask(port,
	    "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
	    "Accept: text/plain;q=0.5,application/openmetrics-text;version=1.0.0\r\n\r\n",
	    buf, sizeof(buf));
	assert_non_null(strstr(
		buf,
		"Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"));
	assert_non_null(strstr(buf, "\r\n\r\na_b 2\n"));
	ask(port,
	    "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept: "
	    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited\r\n\r\n",
	    buf, sizeof(buf));
	assert_non_null(strstr(
		buf,
		"Content-Type: application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited\r\n"));
	ask(port, "GET /healthz" CLOSE, buf, sizeof(buf));
	assert_non_null(strstr(buf, "\r\n\r\nok\n"));
	ask(port, "GET /" CLOSE, buf, sizeof(buf));
	assert_int_equal(strncmp(buf, "HTTP/1.1 404 ", 13), 0);
	ask(port, "GET /metrics/../etc/passwd" CLOSE, buf, sizeof(buf));
	assert_int_equal(strncmp(buf, "HTTP/1.1 404 ", 13), 0);
	ask(port,
	    "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
	    buf, sizeof(buf));
	assert_int_equal(strncmp(buf, "HTTP/1.1 405 ", 13), 0);
	assert_non_null(strstr(buf, "Allow: GET, HEAD\r\n"));
	ask(port, "DELETE /nothing" CLOSE, buf, sizeof(buf));
	assert_int_equal(strncmp(buf, "HTTP/1.1 405 ", 13), 0);
	none = true;
	ask(port, "GET /metrics" CLOSE, buf, sizeof(buf));
	assert_int_equal(strncmp(buf, "HTTP/1.1 503 ", 13), 0);
	none = false;

	/* a head without end is refused, and the server lives on */
	big = malloc(1 << 20);
	memset(big, 'a', 1 << 20);
	memcpy(big, "GET /metrics HTTP/1.1\r\nX: ", 26);
	big[(1 << 20) - 1] = '\0';
	ask(port, big, buf, sizeof(buf));
	assert_true(strncmp(buf, "HTTP/1.1 200 ", 13) != 0);
	free(big);
	ask(port, "\x16\x03\x01 no http at all\r\n\r\n", buf, sizeof(buf));
	assert_true(strncmp(buf, "HTTP/1.1 200 ", 13) != 0);
	ask(port, "GET /healthz" CLOSE, buf, sizeof(buf));
	assert_non_null(strstr(buf, "\r\n\r\nok\n"));

	/* taken already: one line, an errno */
	snprintf(addr, sizeof(addr), "127.0.0.1:%d", port);
	assert_int_equal(rp_httpd_start(addr, &defaults, some_text, &none, &second, err,
					sizeof(err)),
			 -EADDRINUSE);
	assert_null(second);
	assert_non_null(strstr(err, addr));
	assert_null(strchr(err, '\n'));
	rp_httpd_stop(h);
	assert_int_equal(open_fds(), fds);

	/* an idle connection does not keep it from stopping */
	assert_int_equal(rp_httpd_start(":0", &defaults, some_text, &none, &h, err, sizeof(err)),
			 0);
	assert_int_equal(strncmp(rp_httpd_url(h), "http://127.0.0.1:", 17), 0);
	fds = dial(port_of(h));
	assert_int_equal(send(fds, "GET /met", 8, 0), 8);
	rp_httpd_stop(h);
	close(fds);
}

static void test_http_connections(void **s)
{
	bool none = false;
	struct rp_httpd *h;
	char err[200] = "", buf[1024];
	int fd[100];

	(void)s;
	assert_int_equal(rp_httpd_start("127.0.0.1:0", &defaults, some_text, &none, &h, err,
					sizeof(err)),
			 0);
	/* those that say nothing time out; the limit holds meanwhile */
	for (int i = 0; i < 100; i++)
		fd[i] = dial(port_of(h));
	for (int i = 0; i < 100; i++)
		close(fd[i]);
	ask(port_of(h), "GET /healthz" CLOSE, buf, sizeof(buf));
	assert_non_null(strstr(buf, "\r\n\r\nok\n"));
	rp_httpd_stop(h);
}

static void test_http_addresses(void **s)
{
	const char *bad[] = {
		"",	 "127.0.0.1",	  "example.org:80", "127.0.0.1:", "127.0.0.1:65536",
		"[::1]", "127.0.0.1:80x", "::1:9479",	    "[::1:9479",  "127.0.0.1:-1",
		"off"
	};
	bool none = false;
	struct rp_httpd *h;
	char err[200] = "";
	int r;

	(void)s;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		err[0] = '\0';
		assert_int_equal(rp_httpd_start(bad[i], &defaults, some_text, &none, &h, err,
						sizeof(err)),
				 -EINVAL);
		assert_true(err[0]);
	}
	r = rp_httpd_start("[::1]:0", &defaults, some_text, &none, &h, err, sizeof(err));
	if (r == -EAFNOSUPPORT || r == -EADDRNOTAVAIL) {
		print_message("SKIP part of test_http_addresses: no IPv6 loopback here\n");
		return;
	}
	assert_int_equal(r, 0);
	assert_int_equal(strncmp(rp_httpd_url(h), "http://[::1]:", 13), 0);
	rp_httpd_stop(h);
}

/* Both sides under one mutex, as main has it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static char *locked_render(void *ctx, enum rp_expo_format format, size_t *len)
{
	struct rp_prom_process x = process;
	char *t;

	x.format = format;
	pthread_mutex_lock(&lock);
	t = rp_prom_render(ctx, &stats, &x, len);
	pthread_mutex_unlock(&lock);
	return t;
}

static void test_scrape_while_busy(void **s)
{
	struct rp_prom *p = rp_prom_new(NULL);
	static char buf[1 << 20];
	struct rp_record r = record();
	struct rp_httpd *h;
	char err[200];

	(void)s;
	set(&r, RP_FIELD_S_TTFT, MS);
	assert_int_equal(rp_httpd_start("127.0.0.1:0", &defaults, locked_render, p, &h, err,
					sizeof(err)),
			 0);
	for (int i = 0; i < 20; i++) {
		for (int k = 0; k < 2000; k++) {
			pthread_mutex_lock(&lock);
			snprintf(r.model, sizeof(r.model), "m%d", k % 40);
			rp_prom_record(p, &r);
			pthread_mutex_unlock(&lock);
		}
		ask(port_of(h), "GET /metrics" CLOSE, buf, sizeof(buf));
		assert_non_null(strstr(buf, "\r\n\r\n"));
		read_text(strstr(buf, "\r\n\r\n") + 4);
	}
	rp_httpd_stop(h);
	rp_prom_free(p);
}

/* Names that only a request has told make no label: the last that an answer told. */
static void asked_names(void **st)
{
	struct rp_gap_info g = { .source = RP_ITL_ENGINE, .gap_ns = MS, .n = 1, .asked = true };
	struct rp_prom *p = rp_prom_new(NULL);
	char name[16], *text;
	size_t n;

	(void)st;
	rp_prom_gap(p, &(struct rp_gap_info){
			       .model = "tiny", .source = RP_ITL_ENGINE, .gap_ns = MS, .n = 1 });
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "rnd%d", i);
		g.model = name;
		rp_prom_gap(p, &g);
	}
	text = rp_prom_render(p, &stats, &process, &n);
	assert_non_null(text);
	assert_null(strstr(text, "rnd"));
	assert_non_null(strstr(
		text, "inter_token_latency_seconds_count{model=\"tiny\",scope=\"engine\"} 101"));
	free(text);
	rp_prom_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_cores),
		cmocka_unit_test(test_frontend_and_waits),
		cmocka_unit_test(test_only_trusted),
		cmocka_unit_test(test_models_bounded),
		cmocka_unit_test(test_label_escapes),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_promtool),
		cmocka_unit_test(test_http),
		cmocka_unit_test(test_http_connections),
		cmocka_unit_test(test_http_addresses),
		cmocka_unit_test(asked_names),
		cmocka_unit_test(test_scrape_while_busy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
