/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* request.h - a finished streamed request with all that an engine tells, for tests and
 * benchmarks of what is made of records. */
#ifndef REQPROBE_TEST_REQUEST_H
#define REQPROBE_TEST_REQUEST_H

#include <arpa/inet.h>
#include <math.h>
#include <string.h>
#include <sys/socket.h>

#include "record/record.h"

static inline struct rp_record a_record(void)
{
	struct rp_record r;

	memset(&r, 0, sizeof(r));
	strcpy(r.id, "chatcmpl-1");
	r.engine_name = "vllm";
	r.engine_version = "1";
	strcpy(r.model, "tiny");
	strcpy(r.request_model, "tiny");
	r.model_told = true;
	strcpy(r.method, "POST");
	strcpy(r.path, "/v1/chat/completions");
	r.status = 200;
	r.stream = r.choices = 1;
	r.family = AF_INET;
	inet_pton(AF_INET, "10.0.0.1", r.laddr);
	r.lport = 8000;
	r.joined = true;
	r.e_queued = r.e_scheduled = r.e_first = r.e_last = NAN;
	r.t_start = 1000000000;
	r.t_request_end = r.t_start + 1000000;
	r.t_queued = r.t_request_end + 1000000;
	r.t_scheduled = r.t_queued + 2000000;
	r.t_eng_first = r.t_scheduled + 30000000;
	r.t_eng_last = r.t_eng_first + 40000000;
	r.t_first_byte = r.t_first_event = r.t_eng_first;
	r.t_first_token = r.t_first_output = r.t_request_end + 40000000;
	r.t_second_token = r.t_first_token + 10000000;
	r.t_last_token = r.t_first_token + 50000000;
	r.t_end = r.t_request_end + 100000000;
	r.t_established = r.t_accepted = r.t_acked = RP_NONE;
	r.wall_offset = 1795964000000000000;
	r.tok_prompt = 11;
	r.tok_engine = r.tok_completion_usage = r.chunks = r.steps = 5;
	r.tok_cached = r.tok_reasoning = r.tok_prompt_engine = r.chunk_tokens = RP_NONE;
	r.rtt_us = r.unacked_first = r.unacked_last = r.notsent_last = RP_NONE;
	r.srtt_us = r.min_rtt_us = r.queued_chunks = r.retransmits = RP_NONE;
	r.preempted_ns = r.requeue_ns = RP_NONE;
	rp_derive(&r);
	return r;
}

#endif
