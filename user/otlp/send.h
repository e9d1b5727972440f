/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * send.h - one attempt to hand a body to a receiver, and what is to be done next
 * (OTLP specification, "OTLP/HTTP Response", "OTLP/HTTP Throttling"). libcurl; no
 * redirect is followed, a body is gzipped here. One thread for each sender.
 */
#ifndef REQPROBE_OTLP_SEND_H
#define REQPROBE_OTLP_SEND_H

#include <curl/curl.h>
#include <stdatomic.h>

#include "otlp/config.h"
#include "sink/sink.h"

enum rp_otlp_result {
	RP_OTLP_TAKEN,	 /* 2xx; what was rejected in it (partial success) is counted */
	RP_OTLP_RETRY,	 /* no connection, a timeout, no HTTP, 429, 502, 503, 504 */
	RP_OTLP_REFUSED, /* anything else: never sent again */
	RP_OTLP_RESULTS
};

/* What a receiver says in its body of a success. rejected 0 and no message: all taken. */
struct rp_otlp_partial {
	int64_t rejected;
	char message[160]; /* printable ASCII; what is not is '?' */
};
/* ExportMetricsServiceResponse or ExportTraceServiceResponse: both alike. Any bytes;
 * false: malformed. */
bool rp_otlp_parse_response(bool json, const uint8_t *p, size_t n, struct rp_otlp_partial *out);

/* Back-off before attempt n (from 1): doubles from 0.5 s to 30 s, of which the upper
 * half is at random. after_s, when above 0, is what the receiver asked for: it is
 * waited for, and no longer than 300 s. ms. */
uint32_t rp_otlp_backoff_ms(unsigned n, int64_t after_s, uint32_t random);

struct rp_otlp_sender {
	/* the owner's; set before rp_otlp_sender_open() */
	const char *what;      /* "metrics", "spans" */
	const char *data;      /* of which rejected ones are counted: "data points" */
	const char *meanwhile; /* what happens to them while nothing gets through */
	const struct rp_otlp_signal *to;
	/* ns of CLOCK_MONOTONIC; 0: go on. After it an attempt is broken off. Any thread. */
	_Atomic int64_t deadline;

	/* counted; any thread */
	_Atomic uint64_t results[RP_OTLP_RESULTS];
	_Atomic uint64_t items, rejected, refused, bytes;
	_Atomic int64_t last_success; /* ns of CLOCK_REALTIME, 0: never */
	_Atomic bool failing;

	/* private */
	CURL *curl;
	struct curl_slist *headers;
	struct rp_buf packed;  /* gzipped */
	void *z;	       /* z_stream */
	unsigned failures;     /* in a row */
	int64_t failing_since; /* ns of CLOCK_MONOTONIC */
	bool said_partial;
	uint32_t wait_ms; /* until the next attempt, after RETRY */
	uint8_t reply[16384];
	size_t n_reply;
	bool whole_head; /* of the reply */
	char error[CURL_ERROR_SIZE];
};

/* -ENOMEM. curl_global_init() was called. */
int rp_otlp_sender_open(struct rp_otlp_sender *s);
void rp_otlp_sender_close(struct rp_otlp_sender *s);

/* What has to go: once. Says on stderr when it begins to fail and when it works again,
 * never more. items: data points or spans in it. */
enum rp_otlp_result rp_otlp_send(struct rp_otlp_sender *s, const struct rp_buf *body,
				 uint64_t items, uint32_t random);

#endif
