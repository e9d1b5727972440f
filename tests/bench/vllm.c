/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * vllm.c - what decoding a step of vLLM's engine costs: messages of 32 and
 * of 512 outputs, as 0.32 sends them while all requests decode, with its stats
 * behind. One line each: outputs per second on one core, and for the whole
 * message nanoseconds; once to read, once to read and scrub.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "protocol/vllm.h"

#define SECONDS 1

static uint8_t msg[1 << 17], keep[1 << 17];
static size_t len;
static uint64_t outputs, tokens;

static void put(const void *p, size_t n)
{
	memcpy(msg + len, p, n);
	len += n;
}

static void put_str(const char *s)
{
	uint8_t head[2] = { 0xd9, (uint8_t)strlen(s) };

	if (head[1] < 32) {
		head[1] |= 0xa0;
		put(head + 1, 1);
	} else {
		put(head, 2);
	}
	put(s, strlen(s));
}

static void build(unsigned n)
{
	static const uint8_t tail[] = { 0xcb, 0x40, 0x8f, 0x40, 0,    0,    0,
					0,    0,    0xc0, 0xc0, 0xc0, 0xc0, 0xc0 };
	static const char *const counts[] = { "num_running_reqs", "num_waiting_reqs",
					      "num_skipped_waiting_reqs", "step_counter",
					      "current_wave" };
	const uint8_t size[3] = { 0xdc, (uint8_t)(n >> 8), (uint8_t)n };

	len = 0;
	put("\x99\x03", 2);
	put(size, 3);
	for (unsigned i = 0; i < n; i++) {
		char id[64];

		snprintf(id, sizeof(id), "chatcmpl-%016x-%08x", i * 2654435761u, i);
		put("\xdc\x00\x12", 3);
		put_str(id);
		put("\x91\xcd\x12\x34", 4);
		for (int k = 0; k < 11; k++)
			put("\xc0", 1);
		put("\0\xc0\xc0\xc0\xc0", 5);
	}
	put("\x88", 1);
	for (int i = 0; i < 5; i++) {
		put_str(counts[i]);
		put("\x20", 1);
	}
	put_str("kv_cache_usage");
	put(tail, 9);
	put_str("prefix_cache_stats");
	put("\x83", 1);
	put_str("reset");
	put("\xc2", 1);
	put_str("queries");
	put("\x07", 1);
	put_str("hits");
	put("\x07", 1);
	put_str("spec_decoding_stats");
	put("\xc0", 1);
	put(tail, sizeof(tail));
}

static void on_output(void *ctx, const struct rp_vllm_output *o)
{
	(void)ctx;
	outputs++;
	tokens += o->tokens;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(void)
{
	static const unsigned sizes[] = { 32, 512 };
	const struct rp_vllm_sink sink = { .output = on_output };

	for (int i = 0; i < 4; i++) {
		unsigned n = sizes[i / 2];
		bool scrub = i & 1;
		double t0, t;
		uint64_t steps = 0;

		build(n);
		outputs = tokens = 0;
		t0 = now();
		do {
			for (int k = 0; k < 100; k++, steps++)
				if (rp_vllm_decode(-1, msg, len, false, scrub ? keep : NULL, &sink,
						   NULL))
					return 1;
			t = now() - t0;
		} while (t < SECONDS);
		if (outputs != steps * n || tokens != outputs)
			return 1;
		printf("outputs %u bytes %zu scrub %d outputs_per_second %.0f step_ns %.0f\n", n,
		       len, scrub, outputs / t, t / steps * 1e9);
	}
	return 0;
}
