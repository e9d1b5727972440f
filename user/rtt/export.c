// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* export.c - the lines of AIPerf's profile_export_network_latency.jsonl, and the
 * summary as JSON: reqprobe.rtt/1 (docs/schema/). */
#include "rtt/rtt.h"

#include <errno.h>
#include <netdb.h>
#include <string.h>

#define NS_PER_MS 1000000
#define NS_PER_S 1000000000

const char *const rp_rtt_probe_types[] = {
	[RP_RTT_KERNEL] = "tcp_info",
	[RP_RTT_CONNECT] = "tcp_connect",
	[RP_RTT_PASSIVE] = "tcp_handshake_passive",
};

const char *const rp_rtt_why_names[RP_RTT_WHYS] = {
	[RP_RTT_OK] = "ok",	      [RP_RTT_REFUSED] = "refused",
	[RP_RTT_TIMEOUT] = "timeout", [RP_RTT_UNREACHABLE] = "unreachable",
	[RP_RTT_RESET] = "reset",     [RP_RTT_RESOLVE] = "resolve",
	[RP_RTT_OTHER] = "other",
};

enum rp_rtt_why rp_rtt_why(int err, bool resolve)
{
	if (resolve)
		return RP_RTT_RESOLVE;
	switch (err) {
	case 0:
		return RP_RTT_OK;
	case ECONNREFUSED:
		return RP_RTT_REFUSED;
	case ETIMEDOUT:
		return RP_RTT_TIMEOUT;
	case ENETUNREACH:
	case EHOSTUNREACH:
	case ENETDOWN:
	case EHOSTDOWN:
		return RP_RTT_UNREACHABLE;
	case ECONNRESET:
		return RP_RTT_RESET;
	default:
		return RP_RTT_OTHER;
	}
}

/* The class that Python makes of an errno (PEP 3151). */
static const char *python_class(int err)
{
	switch (err) {
	case ECONNREFUSED:
		return "ConnectionRefusedError";
	case ECONNRESET:
		return "ConnectionResetError";
	case ECONNABORTED:
		return "ConnectionAbortedError";
	case ETIMEDOUT:
		return "TimeoutError";
	case EACCES:
	case EPERM:
		return "PermissionError";
	case EPIPE:
	case ESHUTDOWN:
		return "BrokenPipeError";
	case EINTR:
		return "InterruptedError";
	case EAGAIN:
	case EALREADY:
	case EINPROGRESS:
		return "BlockingIOError";
	default:
		return "OSError";
	}
}

/* As AIPerf writes them: repr() of the exception that asyncio raises. */
static void put_error(struct rp_buf *b, const struct rp_rtt_result *r)
{
	const struct rp_rtt_target *t = r->t;
	const char *cls = r->resolve ? "gaierror" : python_class(r->err);
	char msg[512], end[48] = "";

	LIT(b, ",\"error\":{\"type\":\"");
	rp_buf_str(b, cls);
	LIT(b, "\",\"message\":");
	if (r->own_timeout) {
		LIT(b, "\"TimeoutError()\",\"cause\":\"CancelledError()\","
		       "\"cause_chain\":[\"TimeoutError\",\"CancelledError\"]}");
		return;
	}
	if (r->resolve || r->at_once) {
		snprintf(msg, sizeof(msg), "%s(%d, '%s')", cls, r->err,
			 r->resolve ? gai_strerror(r->err) : strerror(r->err));
	} else {
		if (t->addr.ss_family == AF_INET6)
			snprintf(end, sizeof(end), ", 0, %u",
				 ((const struct sockaddr_in6 *)&t->addr)->sin6_scope_id);
		snprintf(msg, sizeof(msg), "%s(%d, \"Connect call failed ('%s', %u%s)\")", cls,
			 r->err, t->address, t->port, end);
	}
	rp_put_string_or_null(b, msg);
	LIT(b, ",\"cause_chain\":[\"");
	rp_buf_str(b, cls);
	LIT(b, "\"]}");
}

void rp_rtt_put_line(struct rp_buf *b, const void *what)
{
	const struct rp_rtt_line *l = what;
	const struct rp_rtt_result *r = l->r;
	int64_t rtt = l->source == RP_RTT_CONNECT ? r->connect : r->kernel;

	LIT(b, "{\"timestamp_ns\":");
	rp_put_i64(b, r->wall);
	LIT(b, ",\"target_url\":");
	rp_put_string_or_null(b, r->t->url);
	LIT(b, ",\"target_host\":");
	rp_put_string_or_null(b, r->t->host);
	LIT(b, ",\"target_port\":");
	rp_buf_u64(b, r->t->port);
	LIT(b, ",\"probe_type\":\"");
	rp_buf_str(b, rp_rtt_probe_types[l->source]);
	LIT(b, "\"");
	if (!r->err && rtt >= 0) {
		LIT(b, ",\"rtt_ns\":");
		rp_put_i64(b, rtt);
	}
	LIT(b, ",\"success\":");
	rp_put_bool(b, !r->err);
	if (r->err)
		put_error(b, r);
	if (l->both) {
		LIT(b, ",\"connect_ns\":");
		rp_put_i64(b, r->connect);
		LIT(b, ",\"kernel_ns\":");
		rp_put_i64(b, r->kernel);
	}
	LIT(b, "}");
}

static void put_series(struct rp_buf *b, const struct rp_series *s)
{
	static const struct {
		const char *key;
		unsigned permille;
	} at[] = { { ",\"p50\":", 500 },
		   { ",\"p90\":", 900 },
		   { ",\"p95\":", 950 },
		   { ",\"p99\":", 990 } };

	LIT(b, "{\"count\":");
	rp_buf_u64(b, s ? s->n : 0);
	if (!s || !s->n) {
		LIT(b, ",\"min\":null,\"mean\":null,\"p50\":null,\"p90\":null,\"p95\":null,"
		       "\"p99\":null,\"max\":null,\"std\":null}");
		return;
	}
	LIT(b, ",\"min\":");
	rp_buf_fixed(b, s->min, NS_PER_MS);
	LIT(b, ",\"mean\":");
	rp_buf_double(b, s->mean / NS_PER_MS);
	for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
		rp_buf_str(b, at[i].key);
		rp_buf_fixed(b, rp_series_at(s, at[i].permille), NS_PER_MS);
	}
	LIT(b, ",\"max\":");
	rp_buf_fixed(b, s->max, NS_PER_MS);
	LIT(b, ",\"std\":");
	rp_buf_double(b, rp_series_std(s) / NS_PER_MS);
	LIT(b, "}");
}

static void put_target(struct rp_buf *b, const struct rp_rtt_target *t)
{
	bool any = false;

	LIT(b, "{\"url\":");
	rp_put_string_or_null(b, t->url);
	LIT(b, ",\"host\":");
	rp_put_string_or_null(b, t->host);
	LIT(b, ",\"port\":");
	rp_buf_u64(b, t->port);
	LIT(b, ",\"address\":");
	rp_put_string_or_null(b, t->address);
	LIT(b, ",\"probes\":");
	rp_buf_u64(b, t->probes);
	LIT(b, ",\"succeeded\":");
	rp_buf_u64(b, t->failures[RP_RTT_OK]);
	LIT(b, ",\"failed\":{");
	for (unsigned i = RP_RTT_OK + 1; i < RP_RTT_WHYS; i++) {
		if (any)
			LIT(b, ",");
		any = true;
		rp_put_string_or_null(b, rp_rtt_why_names[i]);
		LIT(b, ":");
		rp_buf_u64(b, t->failures[i]);
	}
	LIT(b, "},\"retransmitted\":");
	rp_buf_u64(b, t->retransmitted);
	LIT(b, ",\"unfinished\":");
	rp_buf_u64(b, t->abandoned);
	LIT(b, ",\"missed\":{\"late\":");
	rp_buf_u64(b, t->missed_late);
	LIT(b, ",\"open\":");
	rp_buf_u64(b, t->missed_open);
	LIT(b, "},\"connect_ms\":");
	put_series(b, t->connect);
	LIT(b, ",\"kernel_ms\":");
	put_series(b, t->kernel);
	LIT(b, "}");
}

void rp_rtt_put_summary(struct rp_buf *b, const void *what)
{
	const struct rp_rtt_summary *s = what;
	bool live = s->o->source != RP_RTT_PASSIVE;

	LIT(b, "{\"schema\":\"reqprobe.rtt/1\",\"reqprobe\":\"" RP_VERSION "\",\"start\":");
	rp_put_time(b, s->started);
	LIT(b, ",\"stop\":");
	rp_put_time(b, s->stopped);
	LIT(b, ",\"probe_type\":");
	rp_put_string_or_null(b, rp_rtt_probe_types[s->o->source]);
	LIT(b, ",\"interval_s\":");
	if (live)
		rp_buf_fixed(b, s->o->interval, NS_PER_S);
	else
		LIT(b, "null");
	LIT(b, ",\"timeout_s\":");
	if (live)
		rp_buf_fixed(b, s->o->timeout, NS_PER_S);
	else
		LIT(b, "null");
	LIT(b, ",\"realtime\":");
	rp_put_bool(b, s->realtime);
	LIT(b, ",\"targets\":[");
	for (unsigned i = 0; i < s->n; i++) {
		if (i)
			LIT(b, ",");
		put_target(b, &s->targets[i]);
	}
	LIT(b, "]}");
}
