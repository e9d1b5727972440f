// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * outputs.c - requests at a given rate into the outputs that the options ask for, as the
 * thread that drains the ring hands them over: bench_outputs RATE SECONDS --pid 1 --log
 * DIR --otlp URL --jsonl FILE ... Says what it cost, then what the outputs say of
 * themselves on /metrics; the caller counts what arrived.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "options.h"
#include "run.h"
#include "timeline/internal.h"

#define NS 1000000000ULL
#define TICK_NS (50 * 1000000ULL) /* as watch.c drains */

/* ru_maxrss would include the program that started this one */
static long peak_kb(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[128];
	long kb = 0;

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "VmHWM: %ld", &kb);
	if (f)
		fclose(f);
	return kb;
}

static uint64_t now_ns(clockid_t c)
{
	struct timespec t;

	clock_gettime(c, &t);
	return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

/* A streamed chat completion with all that vLLM tells. No two are the same. */
static void fill(struct rp_record *r, uint64_t i)
{
	uint64_t x = i * 0x9e3779b97f4a7c15ULL;
	int64_t t = 1000000000LL + (int64_t)i * 50000;

	snprintf(r->id, sizeof(r->id), "chatcmpl-%016llx%016llx", (unsigned long long)x,
		 (unsigned long long)(x * 31));
	snprintf(r->request_ids[0], sizeof(r->request_ids[0]), "chatcmpl-%016llx%016llx-%08x",
		 (unsigned long long)x, (unsigned long long)(x * 31), (unsigned)(x >> 32));
	snprintf(r->x_request_id, sizeof(r->x_request_id), "%016llx", (unsigned long long)(x * 77));
	r->n_request_ids = 1;
	r->seq = r->key = i + 1;
	r->t_start = t;
	r->t_request_end = t + 20000;
	r->t_queued = t + 300000 + (int64_t)(x >> 45);
	r->t_scheduled = r->t_queued + (int64_t)(x >> 44);
	r->t_eng_first = r->t_scheduled + 8000000 + (int64_t)(x >> 42);
	r->t_first_byte = r->t_first_event = r->t_eng_first + 100000;
	r->t_first_token = r->t_first_output = r->t_first_event + 1000;
	r->t_second_token = r->t_first_token + 4000000;
	r->t_eng_last = r->t_eng_first + 400000000 + (int64_t)(x >> 38);
	r->t_last_token = r->t_eng_last + 100000;
	r->t_end = r->t_last_token + 200000;
	r->tok_prompt = r->tok_prompt_engine = (int64_t)(x >> 52);
	r->tok_completion_usage = r->tok_engine = r->chunks = 100 + (int64_t)(x >> 57);
	r->bytes_rx = 300 + (x >> 53);
	r->bytes_tx = 20000 + (x >> 50);
	r->rport = (uint16_t)(20000 + (x >> 50));
	rp_derive(r);
}

/* Its life in short: one instant for all tokens. */
static void tell(const struct rp_timeline *tl, const struct rp_record *r)
{
	const struct rp_request_info q = {
		.key = r->key,
		.ts = r->t_start,
		.operation = r->operation,
		.choices = r->choices,
		.service_tier = "",
	};
	const struct rp_tokens_info n = {
		.key = r->key,
		.ts = r->t_eng_first,
		.tokens = (uint32_t)r->tok_engine,
		.prompt = r->tok_prompt_engine,
		.cached = RP_NONE,
		.rank = RP_NONE,
	};

	for (unsigned i = 0; i < tl->n_obs; i++) {
		const struct rp_observer *b = &tl->obs[i];

		if (b->started)
			b->started(b->ctx, &q);
		if (b->tokens)
			b->tokens(b->ctx, &n);
		if (b->ended)
			b->ended(b->ctx, r->key, r->t_end);
		if (b->record)
			b->record(b->ctx, r);
	}
}

int main(int argc, char **argv)
{
	static struct rp_options o;
	static struct rp_record r;
	struct rp_summary_info info = { 0 };
	struct rp_timeline_opts to;
	struct rp_timeline *tl;
	struct rusage u0, u1;
	uint64_t rate, total, sent = 0, start, tick, cpu0, main_cpu;
	double wall, cpu;
	char err[512] = "";
	void *state[RP_MAX_OUTPUTS] = { 0 };
	struct rp_jsonl *jsonl = NULL;
	struct rp_prom *prom = NULL;
	struct rp_buf text = { 0 };
	struct rp_expo x = { .b = &text };
	int e, failed = 0;

	if (argc < 4) {
		fprintf(stderr, "usage: bench_outputs RATE SECONDS --pid 1 OPTION...\n");
		return 2;
	}
	rate = strtoull(argv[1], NULL, 10);
	total = rate * strtoull(argv[2], NULL, 10);
	argv[2] = argv[0];
	rp_options_parse(argc - 2, argv + 2, &o);
	o.verb = RP_VERB_WATCH; /* a replay would wait for room */
	rp_timeline_defaults(&to);
	tl = rp_timeline_new(&to);
	prom = rp_prom_new(NULL);
	e = tl && prom ? 0 : -ENOMEM;
	if (!e && o.jsonl)
		e = rp_jsonl_open(o.jsonl, &jsonl, err, sizeof(err));
	for (size_t i = 0; !e && rp_outputs[i]; i++)
		e = rp_outputs[i]->open(&o, &info, tl, &state[i], err, sizeof(err));
	if (e) {
		fprintf(stderr, "bench_outputs: %s\n", err);
		return 1;
	}
	r.engine_name = "vllm";
	r.engine_version = "0.32.0";
	r.pid = 7066;
	r.core_pid = 7096;
	snprintf(r.model, sizeof(r.model), "meta-llama/Llama-3.1-8B-Instruct");
	snprintf(r.method, sizeof(r.method), "POST");
	snprintf(r.path, sizeof(r.path), "/v1/chat/completions");
	snprintf(r.finish_reason, sizeof(r.finish_reason), "stop");
	r.status = 200;
	r.stream = 1;
	r.choices = 1;
	r.joined = true;
	r.family = 2;
	r.wall_offset = 1764475200LL * (int64_t)NS;
	r.e_queued = r.e_scheduled = r.e_first = r.e_last = 0.0 / 0.0;
	r.t_established = r.t_accepted = r.t_acked = RP_NONE;
	getrusage(RUSAGE_SELF, &u0);
	cpu0 = now_ns(CLOCK_THREAD_CPUTIME_ID);
	start = tick = now_ns(CLOCK_MONOTONIC);
	while (sent < total) {
		uint64_t due = (now_ns(CLOCK_MONOTONIC) - start) * rate / NS;
		struct timespec nap = { 0, TICK_NS };

		for (due = due < total ? due : total; sent < due; sent++) {
			fill(&r, sent);
			if (jsonl)
				rp_jsonl_record(jsonl, &r);
			rp_prom_record(prom, &r);
			tell(tl, &r);
		}
		if (jsonl)
			rp_jsonl_flush(jsonl);
		for (size_t i = 0; rp_outputs[i]; i++)
			if (state[i] && rp_outputs[i]->tick)
				rp_outputs[i]->tick(state[i]);
		if (sent < total)
			nanosleep(&nap, NULL);
	}
	wall = (double)(now_ns(CLOCK_MONOTONIC) - start) / 1e9;
	main_cpu = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu0;
	for (size_t i = 0; rp_outputs[i]; i++)
		if (state[i] && rp_outputs[i]->finish)
			failed |= rp_outputs[i]->finish(state[i]) < 0;
	getrusage(RUSAGE_SELF, &u1);
	cpu = (double)(u1.ru_utime.tv_sec - u0.ru_utime.tv_sec + u1.ru_stime.tv_sec -
		       u0.ru_stime.tv_sec) +
	      (double)(u1.ru_utime.tv_usec - u0.ru_utime.tv_usec + u1.ru_stime.tv_usec -
		       u0.ru_stime.tv_usec) /
		      1e6;
	printf("sent %llu seconds %.2f lost %d cpu %.2f main_cpu %.2f rss_kb %ld\n",
	       (unsigned long long)sent, wall, failed, cpu, (double)main_cpu / 1e9, peak_kb());
	for (size_t i = 0; rp_outputs[i]; i++) {
		if (state[i] && rp_outputs[i]->metrics)
			rp_outputs[i]->metrics(state[i], &x);
		if (state[i] && rp_outputs[i]->close)
			rp_outputs[i]->close(state[i]);
	}
	printf("%.*s", (int)text.n, text.p ? text.p : "");
	free(text.p);
	rp_jsonl_close(jsonl);
	rp_prom_free(prom);
	rp_timeline_free(tl);
	return failed;
}
