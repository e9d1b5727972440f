// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * genlog N [SEED] - N varied records on standard output, made with the formulas and the
 * writer of the daemon itself: streams and single bodies, engines that are seen and such
 * that are not, errors, clients that go away, several choices. The same for the same SEED.
 */
#include <arpa/inet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "record/record.h"
#include "sink/sink.h"

static uint64_t state = 88172645463325252ULL;
static uint64_t rnd(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static double unit(void)
{
	return (double)(rnd() >> 11) / 9007199254740992.0;
}

/* Most are near the median, a few far above it. */
static int64_t ns(double median_ms)
{
	double a = unit() + unit() + unit() + unit() - 2;

	return (int64_t)(median_ms * 1e6 * exp(1.5 * a)) + 1;
}

#define START 1795964250000000000LL

static void none(struct rp_record *r)
{
	int64_t *const unknown[] = {
		&r->t_first_byte,
		&r->t_first_body,
		&r->t_first_event,
		&r->t_first_token,
		&r->t_second_token,
		&r->t_first_output,
		&r->t_last_token,
		&r->t_last_body,
		&r->t_end,
		&r->t_queued,
		&r->t_scheduled,
		&r->t_eng_first,
		&r->t_eng_last,
		&r->tok_prompt,
		&r->tok_cached,
		&r->tok_completion_usage,
		&r->tok_reasoning,
		&r->tok_engine,
		&r->tok_prompt_engine,
		&r->chunk_tokens,
		&r->retransmits,
		&r->preemptions,
		&r->requeues,
		&r->steps,
		&r->preempted_ns,
		&r->requeue_ns,
		&r->unacked_first,
		&r->unacked_last,
		&r->notsent_last,
		&r->srtt_us,
		&r->min_rtt_us,
		&r->queued_chunks,
		&r->t_accepted,
		&r->t_acked,
		&r->first_chunk_tokens,
		&r->max_tokens,
		&r->images,
		&r->audios,
		&r->videos,
		&r->spec_steps,
		&r->spec_draft_tokens,
		&r->spec_accepted_tokens,
	};

	for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); i++)
		*unknown[i] = RP_NONE;
	for (int i = 0; i < RP_USAGE_COUNT; i++)
		r->usage[i] = RP_NONE;
	r->prompt_audio_seconds = r->video_inference_s = r->video_peak_memory_mb = NAN;
	r->e_queued = r->e_scheduled = r->e_first = r->e_last = NAN;
}

static void engine(struct rp_record *r, int64_t queued, int64_t prompt, int64_t n)
{
	r->joined = true;
	r->t_queued = queued;
	r->t_scheduled = r->t_queued + ns(rnd() % 10 ? 0.3 : 200);
	r->t_eng_first = r->t_scheduled + ns(0.05 * (double)prompt + 5);
	r->t_eng_last = r->t_eng_first + (n - 1) * ns(8);
	r->tok_prompt_engine = prompt;
	r->tok_engine = n;
	r->preemptions = rnd() % 50 == 0;
	r->requeues = 0;
	r->preempted_ns = r->preemptions ? ns(30) : 0;
	r->requeue_ns = 0;
	r->steps = n;
}

static void stream(struct rp_record *r, int64_t n)
{
	int64_t first = r->joined ? r->t_eng_first + ns(0.4) : r->t_request_end + ns(150);
	int64_t last = r->joined ? r->t_eng_last + ns(0.4) : first + (n - 1) * ns(9);

	r->stream = 1;
	r->t_first_byte = first - (int64_t)(rnd() % 200000) - 1000;
	if (r->t_first_byte < r->t_request_end)
		r->t_first_byte = r->t_request_end;
	r->t_first_body = r->t_first_event = first - (int64_t)(rnd() % 900);
	if (r->t_first_body < r->t_first_byte)
		r->t_first_body = r->t_first_event = r->t_first_byte;
	r->t_first_token = first;
	r->t_first_output = first;
	r->chunks = n;
	r->keepalives = 0;
	if (n > 1) {
		if (last < first)
			last = first;
		r->t_second_token = first + (last - first) / (n - 1);
	} else {
		last = first;
	}
	r->t_last_token = last;
	r->t_last_body = last + ns(0.05);
	r->t_end = r->t_last_body + (int64_t)(rnd() % 20000);
	r->queued_chunks = 0;
	r->unacked_first = 230;
}

static void body(struct rp_record *r)
{
	r->stream = 0;
	r->stream_why = RP_WHY_NOT_STREAMING;
	r->t_first_byte = r->joined ? r->t_eng_last + ns(0.6) : r->t_request_end + ns(600);
	r->t_first_body = r->t_first_byte + (int64_t)(rnd() % 30000);
	r->t_end = r->t_last_body = r->t_first_body + (int64_t)(rnd() % 90000);
}

/* It did not come to its end, or not well. */
static void trouble(struct rp_record *r)
{
	switch (rnd() % 4) {
	case 0:
		r->end = RP_END_CLIENT_DISCONNECT;
		r->t_end = r->t_last_body = RP_NONE;
		*r->finish_reason = 0;
		break;
	case 1:
		r->end = RP_END_UNKNOWN;
		r->t_end = r->t_last_body = RP_NONE;
		r->flags |= RP_FLAG_PARTIAL;
		*r->finish_reason = 0;
		break;
	default:
		r->end = RP_END_ERROR;
		r->status = rnd() % 2 ? 400 : 503;
		r->has_error = true;
		r->error_where = "status";
		snprintf(r->error_type, sizeof(r->error_type), "%s",
			 r->status == 400 ? "BadRequestError" : "ServiceUnavailable");
		snprintf(r->error_code, sizeof(r->error_code), "%d", r->status);
		r->context_overflow = r->status == 400 && rnd() % 2;
		r->stream = -1;
		r->stream_why = RP_WHY_NOT_STREAMING;
		r->joined = false;
		r->engine_why = RP_WHY_NOT_REACHED;
		r->t_queued = r->t_scheduled = r->t_eng_first = r->t_eng_last = RP_NONE;
		r->t_first_token = r->t_second_token = r->t_first_output = r->t_last_token =
			RP_NONE;
		r->tok_engine = r->tok_prompt_engine = r->tok_completion_usage = RP_NONE;
		for (int i = 0; i < RP_USAGE_COUNT; i++)
			r->usage[i] = RP_NONE;
		*r->finish_reason = 0;
		break;
	}
}

static void make(struct rp_record *r, uint64_t seq, int64_t *now)
{
	static const char *const models[] = { "meta-llama/Llama-3.1-8B-Instruct", "tiny",
					      "gemma-3-270m-q4_km" };
	bool vllm = rnd() % 4 != 0, blind = rnd() % 20 == 0;
	int64_t prompt = 16 + (int64_t)(rnd() % 2000), n = 1 + (int64_t)(rnd() % 400);

	memset(r, 0, sizeof(*r));
	none(r);
	r->seq = seq;
	snprintf(r->id, sizeof(r->id), "chatcmpl-%016llx", (unsigned long long)rnd());
	snprintf(r->request_ids[0], sizeof(r->request_ids[0]), "%.100s-%08x", r->id,
		 (unsigned)rnd());
	r->n_request_ids = 1;
	if (rnd() % 2)
		snprintf(r->x_request_id, sizeof(r->x_request_id), "%08x-%04x-4%03x-%012llx",
			 (unsigned)rnd(), (unsigned)(rnd() & 0xffff), (unsigned)(rnd() & 0xfff),
			 (unsigned long long)(rnd() & 0xffffffffffff));
	r->engine_name = vllm ? "vllm" : "llamacpp";
	r->engine_version = vllm ? "0.32.0" : "b11434";
	r->pid = vllm ? 7066 : 9001;
	r->core_pid = vllm ? 7096 : 0;
	snprintf(r->model, sizeof(r->model), "%s", models[vllm ? rnd() % 2 : 2]);
	r->operation = rnd() % 5 ? RP_OP_CHAT : RP_OP_COMPLETION;
	snprintf(r->method, sizeof(r->method), "POST");
	snprintf(r->path, sizeof(r->path),
		 r->operation == RP_OP_CHAT ? "/v1/chat/completions" : "/v1/completions");
	r->status = 200;
	r->choices = 1;
	r->family = AF_INET;
	r->rport = (uint16_t)(20000 + rnd() % 40000);
	r->lport = vllm ? 8000 : 8080;
	inet_pton(AF_INET, "10.0.0.1", r->laddr);
	r->raddr[0] = 10;
	r->raddr[3] = (uint8_t)rnd();
	r->conn_reused = rnd() % 3 != 0;
	r->end = RP_END_COMPLETE;
	snprintf(r->finish_reason, sizeof(r->finish_reason), rnd() % 3 ? "stop" : "length");

	*now += ns(3);
	r->wall_offset = START;
	r->t_start = *now;
	r->t_request_end = r->t_start + (rnd() % 3 ? 0 : ns(0.2));
	r->t_established = r->t_start - ns(r->conn_reused ? 5000 : 0.2);
	r->t_accepted = r->t_established + ns(0.1);
	r->rtt_us = (int64_t)(30 + rnd() % 5000);
	r->retransmits = rnd() % 500 == 0;
	r->srtt_us = r->rtt_us + (int64_t)(rnd() % 400);
	r->min_rtt_us = r->rtt_us - (int64_t)(rnd() % 20);
	r->unacked_last = 120;
	r->notsent_last = 0;
	if (blind)
		r->engine_why = RP_WHY_NOT_JOINED;
	else
		engine(r, r->t_request_end + ns(1.5), prompt, n);
	if (rnd() % 5)
		stream(r, n);
	else
		body(r);
	if (r->t_end != RP_NONE)
		r->t_acked = r->t_end + r->rtt_us * 1000;
	r->bytes_rx = 300 + (uint64_t)prompt * 4;
	r->body_rx = r->bytes_rx - 250;
	r->bytes_tx = 200 + (uint64_t)n * 230;
	r->body_tx = r->bytes_tx - 180;
	r->calls_rx = 1 + rnd() % 3;
	r->calls_tx = r->stream ? (uint64_t)n : 1;
	if (rnd() % 3) {
		r->max_tokens = 400;
		r->images = r->audios = r->videos = 0;
	}
	if (r->stream == 0 || rnd() % 3) {
		r->usage[RP_USAGE_PROMPT] = r->tok_prompt = prompt;
		r->usage[RP_USAGE_COMPLETION] = r->tok_completion_usage = n;
		r->usage[RP_USAGE_TOTAL] = prompt + n;
		if (rnd() % 2)
			r->usage[RP_USAGE_CACHE_READ] = r->tok_cached =
				prompt / 16 * 16 * (int64_t)(rnd() % 2);
	}
	if (rnd() % 50 == 0)
		trouble(r);
	rp_derive(r);
}

int main(int argc, char **argv)
{
	uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
	static char buf[1 << 20];
	int64_t now = 1000000000;
	struct rp_record r;

	state ^= argc > 2 ? strtoull(argv[2], NULL, 10) * 0x9e3779b97f4a7c15ULL : 0;
	setvbuf(stdout, buf, _IOFBF, sizeof(buf));
	for (uint64_t i = 1; i <= n; i++) {
		size_t len;
		char *p;

		make(&r, i, &now);
		p = rp_record_json(&r, &len);
		if (!p)
			return 1;
		fwrite(p, 1, len, stdout);
		putchar('\n');
		free(p);
	}
	return fflush(stdout) ? 1 : 0;
}
