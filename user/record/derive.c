// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * derive.c - every formula, once. From instants and counts to figures; what
 * can't be known is null and says why. Pure: no clock, no I/O, no state.
 *
 * Sources named below:
 *   vLLM     vllm/entrypoints/generate/base/serving.py (0.32.0),
 *            build_per_request_timing_metrics(); instants as in
 *            vllm/v1/metrics/stats.py, update_from_output()
 *   AIPerf   0.13.0, metrics/types/: time_to_first_token, time_to_second_token,
 *            time_to_first_output_token, inter_chunk_latency, request_latency
 *   CONTRACT the definitions in docs/metrics.md, section Scopes
 */
#include "record/record.h"

#include <math.h>
#include <stddef.h>

#include "reqprobe/event.h"

#ifdef __FAST_MATH__
#error "the engines' figures are compared digit by digit: no -ffast-math here"
#endif

/* ---- setting one figure ---- */

static void known(struct rp_value *v, int64_t i)
{
	v->known = true;
	v->why = RP_WHY_NONE;
	v->i = i;
}

static void known_d(struct rp_value *v, double d)
{
	v->known = true;
	v->why = RP_WHY_NONE;
	v->d = d;
}

static void null(struct rp_value *v, enum rp_reason why)
{
	v->known = false;
	/* "never NONE" is a promise of record.h; a caller that can't say why
	 * must still say something true */
	v->why = why == RP_WHY_NONE ? RP_WHY_NOT_SEEN : why;
	v->i = 0;
}

/* A difference of doubles, or what is made of one: as diff() has it. */
static void known_or_invalid(struct rp_value *v, double d)
{
	if (isfinite(d) && d >= 0)
		known_d(v, d);
	else
		null(v, RP_WHY_INVALID);
}

/*
 * to - from. The one place where instants are subtracted: a difference that
 * would be negative is no duration but a mistake in the order of events, and is
 * dropped (bcc #2636: an unsigned difference wrapped to 584 years).
 */
struct rp_instant {
	int64_t ts;
	enum rp_reason why; /* when ts is RP_NONE */
};

static void diff(struct rp_value *v, struct rp_instant from, struct rp_instant to)
{
	int64_t d;

	if (from.ts == RP_NONE)
		null(v, from.why);
	else if (to.ts == RP_NONE)
		null(v, to.why);
	else if (__builtin_sub_overflow(to.ts, from.ts, &d) || d < 0)
		null(v, RP_WHY_INVALID);
	else
		known(v, d);
}

/* ---- why an instant is absent ---- */

/* Is this the timeline's verdict that something hid the instant? The others
 * (no_token, not_reached, not_streaming, not_generative) are worked out below,
 * since they differ from one instant to the next. */
static bool hides(enum rp_reason why)
{
	switch (why) {
	case RP_WHY_LOST:
	case RP_WHY_TRUNCATED:
	case RP_WHY_NOT_SEEN:
	case RP_WHY_PRE_ATTACH:
	case RP_WHY_LIMIT:
	case RP_WHY_INVALID:
		return true;
	default:
		return false;
	}
}

/* The request ended before this could happen, or we stopped looking. */
static enum rp_reason why_ended(const struct rp_record *r, enum rp_reason if_complete)
{
	if (r->end == RP_END_COMPLETE)
		return if_complete;
	if (r->end == RP_END_UNKNOWN && r->stream_why != RP_WHY_NOT_REACHED)
		return RP_WHY_NOT_SEEN;
	return RP_WHY_NOT_REACHED;
}

/* Socket instants that need no reading of the body: first byte, end. */
static enum rp_reason why_socket(const struct rp_record *r)
{
	if (hides(r->stream_why))
		return r->stream_why;
	if (r->t_start == RP_NONE)
		return RP_WHY_NOT_SEEN;
	if (r->flags & RP_FLAG_LOST_EVENTS)
		return RP_WHY_LOST;
	return why_ended(r, RP_WHY_NOT_SEEN);
}

/* Instants and counts of events in the body. `absent`: the whole response was
 * read and had none. */
static enum rp_reason why_event(const struct rp_record *r, enum rp_reason absent)
{
	if (!rp_generative(r->operation))
		return RP_WHY_NOT_GENERATIVE;
	if (r->stream == 0)
		return RP_WHY_NOT_STREAMING;
	if (hides(r->stream_why))
		return r->stream_why;
	if ((r->flags & RP_FLAG_ENCODED) || r->stream_why == RP_WHY_ENCODED)
		return RP_WHY_ENCODED;
	if (r->flags & RP_FLAG_LOST_EVENTS)
		return RP_WHY_LOST;
	if (r->flags & RP_FLAG_TRUNCATED)
		return RP_WHY_TRUNCATED;
	return why_ended(r, absent);
}

/* A count of 0 is a finding only where the body was a stream and was read. */
static bool zero_counts(const struct rp_record *r)
{
	return r->stream == 1 && rp_generative(r->operation) && !hides(r->stream_why) &&
	       r->stream_why != RP_WHY_ENCODED && !(r->flags & RP_FLAG_ENCODED);
}

/* Engine instants. `absent`: the engine answered in full without it. */
static enum rp_reason why_engine(const struct rp_record *r, enum rp_reason absent)
{
	if (r->engine_why != RP_WHY_NONE)
		return r->engine_why;
	if (!r->joined)
		return RP_WHY_NOT_JOINED;
	if (r->flags & RP_FLAG_LOST_EVENTS)
		return RP_WHY_LOST;
	return why_ended(r, absent);
}

/* Counts that only the response's text could have told. */
static enum rp_reason why_usage(const struct rp_record *r)
{
	if ((r->flags & RP_FLAG_ENCODED) || r->stream_why == RP_WHY_ENCODED)
		return RP_WHY_ENCODED;
	if (hides(r->stream_why))
		return r->stream_why;
	if (r->flags & RP_FLAG_LOST_EVENTS)
		return RP_WHY_LOST;
	if (r->flags & RP_FLAG_TRUNCATED)
		return RP_WHY_TRUNCATED;
	return RP_WHY_NOT_REPORTED;
}

/* All instants with their reasons, so that a formula below is one line. */
struct instants {
	struct rp_instant start, request_end, first_byte, first_body, first_event, first_token,
		second_token, first_output, last_token, last_body, end, ended;
	struct rp_instant queued, scheduled, eng_first, eng_last;
	struct rp_instant established;
};

static void collect(const struct rp_record *r, struct instants *t)
{
	enum rp_reason sock = why_socket(r);
	enum rp_reason none = rp_generative(r->operation) ? RP_WHY_NO_TOKEN : RP_WHY_NOT_GENERATIVE;
	enum rp_reason body = r->t_end != RP_NONE && sock == RP_WHY_NOT_SEEN ? RP_WHY_NO_TOKEN :
									       sock;
	bool one = r->t_first_token != RP_NONE;

	t->start = (struct rp_instant){ r->t_start, sock };
	t->request_end = (struct rp_instant){ r->t_request_end, sock };
	t->first_byte = (struct rp_instant){ r->t_first_byte, sock };
	t->first_body = (struct rp_instant){ r->t_first_body, body };
	t->last_body = (struct rp_instant){ r->t_last_body, body };
	t->end = (struct rp_instant){ r->t_end, sock };
	t->ended = (struct rp_instant){ r->t_end != RP_NONE ? r->t_end : r->t_ended,
					sock == RP_WHY_NOT_REACHED ? RP_WHY_NOT_SEEN : sock };
	t->first_event = (struct rp_instant){ r->t_first_event, why_event(r, RP_WHY_NO_TOKEN) };
	t->first_token = (struct rp_instant){ r->t_first_token, why_event(r, RP_WHY_NO_TOKEN) };
	t->second_token =
		(struct rp_instant){ r->t_second_token,
				     why_event(r, one ? RP_WHY_ONE_TOKEN : RP_WHY_NO_TOKEN) };
	t->first_output = (struct rp_instant){ r->t_first_output, why_event(r, RP_WHY_NO_TOKEN) };
	t->last_token = (struct rp_instant){ r->t_last_token, why_event(r, RP_WHY_NO_TOKEN) };

	t->queued = (struct rp_instant){ r->t_queued, why_engine(r, RP_WHY_NOT_REPORTED) };
	t->scheduled = (struct rp_instant){ r->t_scheduled, why_engine(r, RP_WHY_NOT_REPORTED) };
	t->eng_first = (struct rp_instant){ r->t_eng_first, why_engine(r, none) };
	t->eng_last = (struct rp_instant){ r->t_eng_last, why_engine(r, none) };

	t->established = (struct rp_instant){ r->t_established, r->rtt_status == RP_RTT_UNIX ?
									RP_WHY_UNIX_SOCKET :
									RP_WHY_PRE_ATTACH };
}

/* ---- the groups ---- */

static void count(struct rp_value *v, int64_t n, enum rp_reason why)
{
	if (n == RP_NONE)
		null(v, why);
	else if (n < 0)
		null(v, RP_WHY_INVALID);
	else
		known(v, n);
}

/*
 * CONTRACT: by the best source at hand. The engine counts what it sampled; a
 * usage object is what it says it sampled; events are not tokens (vllm #27485).
 * A whole response that tells fewer than the engine sampled is right: where a
 * stop string is found in the front end, tokens sampled beyond it are dropped.
 * (Of several choices llama-server tells the usage of one: no finding there. An
 * engine that names each choice's request tells the sum.)
 */
static void derive_tokens(struct rp_record *r)
{
	struct rp_value *v = r->v;
	bool engine = r->joined && r->tok_engine != RP_NONE && r->tok_engine >= 0;

	if (engine && r->end == RP_END_COMPLETE && (r->choices <= 1 || r->n_choice_tokens) &&
	    r->tok_completion_usage >= 0 && r->tok_completion_usage < r->tok_engine)
		engine = false;

	r->token_source = RP_TOKENS_NONE;
	if (!rp_generative(r->operation)) {
		null(&v[RP_FIELD_TOK_COMPLETION], RP_WHY_NOT_GENERATIVE);
	} else if (engine) {
		known(&v[RP_FIELD_TOK_COMPLETION], r->tok_engine);
		r->token_source = RP_TOKENS_ENGINE;
	} else if (r->tok_completion_usage != RP_NONE && r->tok_completion_usage >= 0) {
		known(&v[RP_FIELD_TOK_COMPLETION], r->tok_completion_usage);
		r->token_source = RP_TOKENS_USAGE;
	} else if (r->chunk_tokens != RP_NONE && r->chunk_tokens > 0) {
		/* every event carried a usage delta, and the last usage was not seen */
		known(&v[RP_FIELD_TOK_COMPLETION], r->chunk_tokens);
		r->token_source = RP_TOKENS_USAGE;
	} else {
		null(&v[RP_FIELD_TOK_COMPLETION], why_usage(r));
	}

	if (r->joined && r->tok_prompt_engine != RP_NONE && r->tok_prompt_engine >= 0)
		known(&v[RP_FIELD_TOK_PROMPT], r->tok_prompt_engine);
	else
		count(&v[RP_FIELD_TOK_PROMPT], r->tok_prompt, why_usage(r));

	/* Only the response tells these; no hook does. */
	count(&v[RP_FIELD_TOK_CACHED], r->tok_cached, why_usage(r));
	count(&v[RP_FIELD_TOK_REASONING], r->tok_reasoning, why_usage(r));
}

/* Did the engine tell this instant? It has 0 for none itself. */
static bool told(double e)
{
	return isfinite(e) && e > 0;
}

/* One figure of `metrics`: from the engine's own seconds where it told both, in
 * its own arithmetic (doubles, whose rounding shows in the last digits); else
 * from our nanoseconds. */
static void metric(struct rp_value *v, double e_from, double e_to, struct rp_instant from,
		   struct rp_instant to)
{
	if (told(e_from) && told(e_to)) {
		known_or_invalid(v, (e_to - e_from) * 1000);
		return;
	}
	diff(v, from, to);
	if (v->known)
		known_d(v, (double)v->i / 1e6);
}

/*
 * Engine scope, as vLLM's per-request `metrics` object: same names, same maths,
 * null as a whole for several choices (and several prompts, which are choices).
 * The order of operations is vLLM's: the last digit depends on it. No product
 * is added to anything, so that there is nothing to contract into an FMA.
 */
static void derive_metrics(struct rp_record *r, const struct instants *t)
{
	struct rp_value *v = r->v, *n = &v[RP_FIELD_TOK_COMPLETION], span;

	if (r->choices > 1) {
		for (int f = RP_FIELD_M_TTFT; f <= RP_FIELD_M_TPS; f++)
			null(&v[f], RP_WHY_SEVERAL_CHOICES);
		return;
	}
	/* vLLM: (first_token_ts - scheduled_ts) * 1000; the queue is not in it */
	metric(&v[RP_FIELD_M_TTFT], r->e_scheduled, r->e_first, t->scheduled, t->eng_first);
	/* vLLM: (last_token_ts - first_token_ts) * 1000 */
	metric(&v[RP_FIELD_M_GENERATION], r->e_first, r->e_last, t->eng_first, t->eng_last);
	/* vLLM: (scheduled_ts - queued_ts) * 1000, scheduled the first of its kind */
	metric(&v[RP_FIELD_M_QUEUE], r->e_queued, r->e_scheduled, t->queued, t->scheduled);

	/* vLLM: (last_token_ts - first_token_ts) / (n - 1) * 1000, n > 1; with our
	 * instants one rounding: ns / ((n-1) * 10^6) */
	if (!v[RP_FIELD_M_GENERATION].known)
		null(&v[RP_FIELD_M_MEAN_ITL], v[RP_FIELD_M_GENERATION].why);
	else if (!n->known)
		null(&v[RP_FIELD_M_MEAN_ITL], n->why);
	else if (n->i == 0)
		null(&v[RP_FIELD_M_MEAN_ITL], why_ended(r, RP_WHY_NO_TOKEN));
	else if (n->i == 1)
		null(&v[RP_FIELD_M_MEAN_ITL], why_ended(r, RP_WHY_ONE_TOKEN));
	else if (told(r->e_first) && told(r->e_last))
		known_or_invalid(&v[RP_FIELD_M_MEAN_ITL],
				 (r->e_last - r->e_first) / (double)(n->i - 1) * 1000);
	else
		known_d(&v[RP_FIELD_M_MEAN_ITL],
			(double)(t->eng_last.ts - t->eng_first.ts) / ((double)(n->i - 1) * 1e6));

	/* vLLM: n / ((last_token_ts - scheduled_ts) * 1000) * 1000; with our instants
	 * one rounding: n * 10^9 / ns */
	metric(&span, r->e_scheduled, r->e_last, t->scheduled, t->eng_last);
	if (!span.known)
		null(&v[RP_FIELD_M_TPS], span.why);
	else if (!n->known)
		null(&v[RP_FIELD_M_TPS], n->why);
	else if (n->i == 0)
		null(&v[RP_FIELD_M_TPS], why_ended(r, RP_WHY_NO_TOKEN));
	else if (!(span.d > 0))
		null(&v[RP_FIELD_M_TPS], RP_WHY_INVALID);
	else if (told(r->e_scheduled) && told(r->e_last))
		known_or_invalid(&v[RP_FIELD_M_TPS], (double)n->i / span.d * 1000);
	else
		known_d(&v[RP_FIELD_M_TPS],
			(double)n->i * 1e9 / (double)(t->eng_last.ts - t->scheduled.ts));
}

/* Server scope: CONTRACT, from the last byte of the request as read by the
 * server; names and event classes as AIPerf has them. */
static void derive_server(struct rp_record *r, const struct instants *t)
{
	struct rp_value *v = r->v, span;

	diff(&v[RP_FIELD_S_FIRST_BYTE], t->request_end, t->first_byte);
	/* where AIPerf's http_req_waiting and http_req_receiving end: bytes of the body,
	 * not of the head or of chunked coding */
	diff(&v[RP_FIELD_S_FIRST_BODY], t->request_end, t->first_body);
	diff(&v[RP_FIELD_S_LAST_BODY], t->request_end, t->last_body);
	diff(&v[RP_FIELD_S_FIRST_EVENT], t->request_end, t->first_event);
	/* AIPerf time_to_first_token: first event with generated text */
	diff(&v[RP_FIELD_S_TTFT], t->request_end, t->first_token);
	/* AIPerf time_to_second_token: between the first two such events */
	diff(&v[RP_FIELD_S_TTST], t->first_token, t->second_token);
	/* AIPerf time_to_first_output_token: first that is not reasoning */
	diff(&v[RP_FIELD_S_TTFO], t->request_end, t->first_output);
	/* AIPerf request_latency ends here; CONTRACT has both ends */
	diff(&v[RP_FIELD_S_LAST_TOKEN], t->request_end, t->last_token);
	diff(&v[RP_FIELD_S_DURATION], t->request_end, t->end);
	diff(&v[RP_FIELD_S_ENDED], t->request_end, t->ended);

	count(&v[RP_FIELD_S_CHUNKS], r->chunks || zero_counts(r) ? r->chunks : RP_NONE,
	      why_event(r, RP_WHY_NOT_SEEN));
	count(&v[RP_FIELD_S_KEEPALIVES], r->keepalives || zero_counts(r) ? r->keepalives : RP_NONE,
	      why_event(r, RP_WHY_NOT_SEEN));

	count(&v[RP_FIELD_S_FIRST_CHUNK], r->first_chunk_tokens,
	      r->t_first_token != RP_NONE ? RP_WHY_NOT_REPORTED : why_event(r, RP_WHY_NO_TOKEN));

	/* AIPerf inter_chunk_latency, its mean: the sum of the gaps is last minus
	 * first. With bytes missing the count is a lower bound and the quotient
	 * would be a made-up number. */
	diff(&span, t->first_token, t->last_token);
	if (!span.known)
		null(&v[RP_FIELD_S_MEAN_ICL], span.why);
	else if (!v[RP_FIELD_S_CHUNKS].known)
		null(&v[RP_FIELD_S_MEAN_ICL], v[RP_FIELD_S_CHUNKS].why);
	else if (r->flags & RP_FLAG_LOST_EVENTS)
		null(&v[RP_FIELD_S_MEAN_ICL], RP_WHY_LOST);
	else if (r->flags & RP_FLAG_TRUNCATED)
		null(&v[RP_FIELD_S_MEAN_ICL], RP_WHY_TRUNCATED);
	else if (r->chunks < 2)
		null(&v[RP_FIELD_S_MEAN_ICL], why_ended(r, RP_WHY_ONE_TOKEN));
	else
		known_d(&v[RP_FIELD_S_MEAN_ICL], (double)span.i / ((double)(r->chunks - 1) * 1e6));
}

/* CONTRACT: receive comes before; the other five share their instants, so their
 * sum telescopes to t_end - t_request_end = duration, to the nanosecond. */
static void derive_phases(struct rp_record *r, const struct instants *t)
{
	struct rp_value *v = r->v;

	diff(&v[RP_FIELD_P_RECEIVE], t->start, t->request_end);
	diff(&v[RP_FIELD_P_FRONTEND], t->request_end, t->queued);
	diff(&v[RP_FIELD_P_QUEUE], t->queued, t->scheduled);
	diff(&v[RP_FIELD_P_PREFILL], t->scheduled, t->eng_first);
	diff(&v[RP_FIELD_P_DECODE], t->eng_first, t->eng_last);
	diff(&v[RP_FIELD_P_FLUSH], t->eng_last, t->end);
}

/*
 * What the server's socket knew: tcp_sock's write_seq - snd_una, write_seq -
 * snd_nxt, srtt_us, rtt_min when a write returned; delivered_mstamp when all was
 * acknowledged. Separate quantities: none of them is the handshake's RTT.
 */
static void derive_tcp(struct rp_record *r, const struct instants *t)
{
	bool unix_ = r->rtt_status == RP_RTT_UNIX;
	enum rp_reason why = unix_ ? RP_WHY_UNIX_SOCKET : RP_WHY_NOT_REPORTED, ack = why;
	struct rp_value *v = r->v;
	struct rp_instant from = t->established, acked = { r->t_acked, why };

	count(&v[RP_FIELD_NET_MIN_RTT], r->min_rtt_us, why);
	count(&v[RP_FIELD_NET_SRTT], r->srtt_us, why);
	count(&v[RP_FIELD_NET_UNACKED_FIRST], r->unacked_first,
	      unix_ || r->unacked_last != RP_NONE ? (unix_ ? why : why_event(r, RP_WHY_NO_TOKEN)) :
						    why);
	count(&v[RP_FIELD_NET_UNACKED_LAST], r->unacked_last, why);
	count(&v[RP_FIELD_NET_NOTSENT_LAST], r->notsent_last, why);
	count(&v[RP_FIELD_NET_QUEUED],
	      r->queued_chunks == RP_NONE && zero_counts(r) && r->unacked_last != RP_NONE ?
		      0 :
		      r->queued_chunks,
	      unix_ || r->unacked_last == RP_NONE ? why : why_event(r, RP_WHY_NO_TOKEN));
	/* the first request's connection waited for accept(2); it is of the connection */
	diff(&v[RP_FIELD_NET_ACCEPT], from,
	     (struct rp_instant){ r->t_accepted, unix_ ? RP_WHY_UNIX_SOCKET : RP_WHY_NOT_SEEN });
	if (!unix_ && r->unacked_last != RP_NONE)
		ack = r->end == RP_END_COMPLETE ? RP_WHY_NOT_SEEN : RP_WHY_NOT_REACHED;
	acked.why = ack;
	diff(&v[RP_FIELD_NET_LAST_ACK], t->end, acked);
	/*
	 * Told apart from a slow engine: most of the text was handed over while what
	 * came before it still lay in the send buffer, or the end was not taken.
	 */
	if ((r->queued_chunks != RP_NONE && r->chunks >= 4 && r->queued_chunks * 2 > r->chunks) ||
	    (r->ack_late && r->notsent_last != RP_NONE && r->notsent_last > 0))
		r->flags |= RP_FLAG_SLOW_CLIENT;
}

/* The kernel's handshake sample: tcp_sock.srtt_us >> 3 at ESTABLISHED, before
 * any data could colour it (semantic-conventions #3682). */
static void derive_network(struct rp_record *r, const struct instants *t)
{
	struct rp_value *v = r->v, age;

	r->rtt_source = RP_RTTSRC_NONE;
	switch (r->rtt_status) {
	case RP_RTT_HANDSHAKE:
		count(&v[RP_FIELD_NET_RTT], r->rtt_us, RP_WHY_HANDSHAKE_UNTRUSTED);
		if (v[RP_FIELD_NET_RTT].known)
			r->rtt_source = RP_RTTSRC_HANDSHAKE;
		break;
	case RP_RTT_UNIX:
		null(&v[RP_FIELD_NET_RTT], RP_WHY_UNIX_SOCKET);
		break;
	case RP_RTT_NONE:
		null(&v[RP_FIELD_NET_RTT], RP_WHY_PRE_ATTACH);
		break;
	default: /* retransmitted SYN or SYN-ACK, cookies, fast open */
		null(&v[RP_FIELD_NET_RTT], RP_WHY_HANDSHAKE_UNTRUSTED);
		break;
	}

	/* CONTRACT: how old the sample is when this request starts */
	diff(&age, t->established, t->start);
	if (age.known)
		known_d(&v[RP_FIELD_NET_AGE], (double)age.i / 1e9);
	else
		null(&v[RP_FIELD_NET_AGE], age.why);

	derive_tcp(r, t);
	count(&v[RP_FIELD_NET_RETRANS], r->retransmits,
	      r->rtt_status == RP_RTT_UNIX ? RP_WHY_UNIX_SOCKET : why_socket(r));
}

/* CONTRACT: server plus one network round trip. An estimate by its group's
 * name, so the flag `estimated` says nothing about it. */
static void plus_rtt(struct rp_value *v, const struct rp_value *server, const struct rp_value *rtt)
{
	int64_t ns, sum;

	if (!server->known)
		null(v, server->why);
	else if (!rtt->known)
		null(v, rtt->why);
	else if (__builtin_mul_overflow(rtt->i, (int64_t)1000, &ns) ||
		 __builtin_add_overflow(server->i, ns, &sum))
		null(v, RP_WHY_INVALID);
	else
		known(v, sum);
}

/*
 * What the front end adds on both sides of the engine. The first ends at the
 * same instants as phases.frontend_ms; the other two are from the step's instant
 * to the call that hands over the text.
 */
static void derive_frontend(struct rp_record *r, const struct instants *t)
{
	struct rp_value *v = r->v;

	diff(&v[RP_FIELD_FE_BEFORE], t->request_end, t->queued);
	diff(&v[RP_FIELD_FE_FIRST], t->eng_first, t->first_token);
	/* The last text was out before the engine's last token: no event is its own.
	 * It had no text (an end-of-sequence token), or nobody was left to get it. */
	if (r->t_last_token != RP_NONE && r->t_eng_last != RP_NONE && r->t_eng_first != RP_NONE &&
	    r->t_last_token < r->t_eng_last && r->t_last_token >= r->t_eng_first)
		null(&v[RP_FIELD_FE_LAST], why_ended(r, RP_WHY_NO_TOKEN));
	else
		diff(&v[RP_FIELD_FE_LAST], t->eng_last, t->last_token);
}

static void derive_scheduler(struct rp_record *r)
{
	enum rp_reason why = r->engine_why != RP_WHY_NONE   ? r->engine_why :
			     r->flags & RP_FLAG_LOST_EVENTS ? RP_WHY_LOST :
							      RP_WHY_NOT_REPORTED;

	count(&r->v[RP_FIELD_SCH_PREEMPTIONS], r->preemptions, why);
	count(&r->v[RP_FIELD_SCH_REQUEUES], r->requeues, why);
	count(&r->v[RP_FIELD_SCH_STEPS], r->steps, why);
	count(&r->v[RP_FIELD_SCH_PREEMPTED], r->preempted_ns, why);
	count(&r->v[RP_FIELD_SCH_REQUEUE], r->requeue_ns, why);
}

void rp_derive(struct rp_record *r)
{
	struct instants t;

	collect(r, &t);
	derive_tokens(r); /* first: the metrics need its n */
	derive_metrics(r, &t);
	derive_server(r, &t);
	derive_phases(r, &t);
	derive_network(r, &t);
	plus_rtt(&r->v[RP_FIELD_C_TTFT], &r->v[RP_FIELD_S_TTFT], &r->v[RP_FIELD_NET_RTT]);
	plus_rtt(&r->v[RP_FIELD_C_DURATION], &r->v[RP_FIELD_S_DURATION], &r->v[RP_FIELD_NET_RTT]);
	derive_scheduler(r);
	derive_frontend(r, &t);
}

/* ---- gaps ---- */

#define GAP_CHOICES 256	      /* told apart; json.h tells 64 */
#define GAP_TOKENS (1u << 20) /* of one mark: a count beyond is no count but garbage */

size_t rp_gaps(const struct rp_mark *m, size_t n, bool per_token,
	       void (*fn)(void *ctx, int64_t gap_ns), void *ctx)
{
	int64_t last[GAP_CHOICES];
	size_t gaps = 0, known_choices = 0;

	for (size_t i = 0; i < n; i++) {
		/* chunks follow one another whatever choice they are of */
		uint32_t c = per_token ? m[i].choice : 0, k = per_token ? m[i].tokens : 1;
		int64_t g, from, prev = 0;

		/* no token, no instant of a token */
		if (c >= GAP_CHOICES || m[i].ts == RP_NONE || !k)
			continue;
		if (k > GAP_TOKENS)
			k = GAP_TOKENS;
		while (known_choices <= c)
			last[known_choices++] = RP_NONE;
		from = last[c];
		if (from == RP_NONE) {
			last[c] = m[i].ts;
			for (uint32_t j = 1; j < k; j++, gaps++)
				fn(ctx, 0);
			continue;
		}
		/* out of order: dropped, as everywhere (see diff) */
		if (__builtin_sub_overflow(m[i].ts, from, &g) || g < 0)
			continue;
		last[c] = m[i].ts;
		for (uint32_t j = 0; j < k; j++, gaps++) {
			int64_t part = (int64_t)((__int128)g * (j + 1) / k);

			fn(ctx, part - prev);
			prev = part;
		}
	}
	return gaps;
}
