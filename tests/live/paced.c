/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * paced.c - an OpenAI-like HTTP/1.1 server with seeded gaps, whose own clock
 * is the truth the probe is measured against.
 *
 * POST with a JSON body; members it looks for (all optional):
 *   seed, max_tokens (or tokens), ttft_us, gap_us (means; drawn uniformly from
 *   0.2 to 1.8 times), stream, include_usage, chunk_bytes (size of a token's
 *   event), fail (status of an error answer),
 *   framing: "chunked" | "close" | "length" (a stream with Content-Length).
 *
 * The truth file gets one JSON object per request: the instants, nanoseconds of
 * CLOCK_MONOTONIC, of the read that delivered its first and last byte (clock
 * read after the call) and of each write (clock read before the call). With a
 * partial write, an event's instant is that of the write that took its last
 * byte. Lateness is how long after its due time a token was handed over: it
 * tells whether the machine kept up.
 *
 * --flood N,RATE,BYTES: once --conns requests are open, N events of BYTES at
 * RATE a second in total, in turn over the connections.
 *
 * stdout: "listening PORT", and one JSON object with the figures at the end
 * (SIGTERM or SIGINT, or the end of a flood).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define NS_PER_S 1000000000LL
#define IN_MAX (64u << 20)

struct mark { /* stream offset up to which an instant holds */
	uint64_t end;
	int64_t ts;
	int token; /* index of the token that ends here, -1 none, -2 last byte of the response */
};

struct buf {
	char *p;
	size_t off, len, cap;
};

struct conn {
	int fd;
	int heap_at; /* position in the heap, -1 none */
	int64_t due;
	bool eof, broken, writing, busy, close_after;
	uint32_t events; /* registered with epoll */
	uint16_t port;
	unsigned served;
	struct buf in, out;
	uint64_t in_total, out_total; /* bytes read, bytes accepted by the kernel */
	struct mark *rx, *tx;
	size_t n_rx, cap_rx, n_tx, cap_tx;
	/* the request being answered */
	char xid[128];
	bool stream, usage;
	enum { FR_CHUNKED, FR_CLOSE, FR_LENGTH } framing;
	int tokens, next;
	size_t chunk_bytes, prompt_bytes;
	uint64_t rng;
	double gap_us;
	int64_t start_ns, recv_ns, first_write_ns, last_ns, late_max;
	int64_t *token_ns;
	size_t cap_tokens;
};

static struct {
	int ep, timer, listener, truth_fd, workers;
	bool reuse_port, abort_on_eof;
	const char *unix_path, *truth_path;
	uint64_t flood_n;
	double flood_rate;
	size_t flood_bytes;
	unsigned flood_conns;
} g = { .truth_fd = -1 };

static volatile sig_atomic_t stop;
static struct conn **heap;
static size_t heap_n, heap_cap;
static uint32_t *late;
static size_t late_n, late_cap;
static uint64_t writes, stalls, requests;
static char *truth;
static size_t truth_len, truth_cap;

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "paced: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void *grow(void *p, size_t *cap, size_t need, size_t elem)
{
	size_t n = *cap ? *cap : 16;

	if (need <= *cap)
		return p;
	while (n < need)
		n *= 2;
	p = realloc(p, n * elem);
	if (!p)
		die("realloc");
	*cap = n;
	return p;
}

/* ---- seeded gaps: splitmix64 ---- */

static uint64_t rng_next(uint64_t *s)
{
	uint64_t z = (*s += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static int64_t draw_ns(uint64_t *s, double mean_us)
{
	double u = (double)(rng_next(s) >> 11) / 9007199254740992.0;

	return (int64_t)(mean_us * 1000.0 * (0.2 + 1.6 * u));
}

/* ---- timers: a heap of connections by due time ---- */

static void heap_put(size_t i, struct conn *c)
{
	heap[i] = c;
	c->heap_at = (int)i;
}

static void heap_up(size_t i)
{
	struct conn *c = heap[i];

	while (i && heap[(i - 1) / 2]->due > c->due) {
		heap_put(i, heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	heap_put(i, c);
}

static void heap_down(size_t i)
{
	struct conn *c = heap[i];

	for (;;) {
		size_t k = 2 * i + 1;

		if (k >= heap_n)
			break;
		if (k + 1 < heap_n && heap[k + 1]->due < heap[k]->due)
			k++;
		if (heap[k]->due >= c->due)
			break;
		heap_put(i, heap[k]);
		i = k;
	}
	heap_put(i, c);
}

static void heap_remove(struct conn *c)
{
	size_t i;

	if (c->heap_at < 0)
		return;
	i = (size_t)c->heap_at;
	c->heap_at = -1;
	heap_n--;
	if (i == heap_n)
		return;
	heap_put(i, heap[heap_n]);
	heap_up(i);
	heap_down((size_t)heap[i]->heap_at);
}

static void heap_set(struct conn *c, int64_t due)
{
	heap_remove(c);
	c->due = due;
	heap = grow(heap, &heap_cap, heap_n + 1, sizeof(*heap));
	heap_put(heap_n, c);
	heap_n++;
	heap_up(heap_n - 1);
}

/* ---- truth ---- */

static void truth_flush(void)
{
	size_t off = 0;

	while (g.truth_fd >= 0 && off < truth_len) {
		ssize_t n = write(g.truth_fd, truth + off, truth_len - off);

		if (n < 0)
			die("truth file");
		off += (size_t)n;
	}
	truth_len = 0;
}

__attribute__((format(printf, 1, 2))) static void truth_add(const char *fmt, ...)
{
	va_list ap;
	int n;

	truth = grow(truth, &truth_cap, truth_len + 512, 1);
	va_start(ap, fmt);
	n = vsnprintf(truth + truth_len, 512, fmt, ap);
	va_end(ap);
	truth_len += (size_t)n;
}

static void truth_request(struct conn *c, const char *end)
{
	int done = 0;

	if (g.truth_fd < 0)
		return;
	for (int i = 0; i < c->next && c->token_ns; i++)
		done += c->token_ns[i] != 0;
	truth_add(
		"{\"x_request_id\":\"%s\",\"port\":%u,\"nth\":%u,\"stream\":%s,\"start_ns\":%" PRId64
		",\"recv_ns\":%" PRId64 ",\"first_write_ns\":%" PRId64 ",\"last_ns\":%" PRId64
		",\"tokens\":%d,\"sent\":%d,\"prompt_bytes\":%zu,\"late_max_ns\":%" PRId64
		",\"end\":\"%s\",\"token_ns\":[",
		c->xid, c->port, c->served, c->stream ? "true" : "false", c->start_ns, c->recv_ns,
		c->first_write_ns, c->last_ns, c->tokens, done, c->prompt_bytes, c->late_max, end);
	if (c->stream && !g.flood_n)
		for (int i = 0, k = 0; i < c->next; i++)
			if (c->token_ns[i])
				truth_add("%s%" PRId64, k++ ? "," : "", c->token_ns[i]);
	truth_add("]}\n");
	if (truth_len > (1u << 20))
		truth_flush();
}

/* ---- output ---- */

static void buf_add(struct buf *b, const void *p, size_t n)
{
	if (b->off == b->len)
		b->off = b->len = 0;
	b->p = grow(b->p, &b->cap, b->len + n + 1, 1);
	memcpy(b->p + b->len, p, n);
	b->len += n;
}

__attribute__((format(printf, 2, 3))) static void buf_printf(struct buf *b, const char *fmt, ...)
{
	char tmp[1024];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(tmp, sizeof(tmp), fmt, ap);
	va_end(ap);
	buf_add(b, tmp, (size_t)n);
}

static void tx_mark(struct conn *c, int token)
{
	c->tx = grow(c->tx, &c->cap_tx, c->n_tx + 1, sizeof(*c->tx));
	c->tx[c->n_tx++] =
		(struct mark){ .end = c->out_total + (c->out.len - c->out.off), .token = token };
}

static void watch(struct conn *c)
{
	uint32_t want = (c->eof ? 0 : EPOLLIN) | (c->writing ? EPOLLOUT : 0);
	struct epoll_event e = { .events = want, .data.ptr = c };

	if (want != c->events && c->fd >= 0) {
		epoll_ctl(g.ep, EPOLL_CTL_MOD, c->fd, &e);
		c->events = want;
	}
}

/* One write(2) of what is pending. */
static void flush_out(struct conn *c)
{
	size_t n = c->out.len - c->out.off, k = 0;
	int64_t t;
	ssize_t w;

	if (!n || c->broken)
		return;
	t = now_ns();
	w = write(c->fd, c->out.p + c->out.off, n);
	writes++;
	if (w < 0) {
		if (errno == EAGAIN) {
			stalls++;
			c->writing = true;
		} else {
			c->broken = true;
		}
		watch(c);
		return;
	}
	if (!c->first_write_ns)
		c->first_write_ns = t;
	c->out.off += (size_t)w;
	c->out_total += (uint64_t)w;
	while (k < c->n_tx && c->tx[k].end <= c->out_total) {
		if (c->tx[k].token >= 0 && c->token_ns)
			c->token_ns[c->tx[k].token] = t;
		else if (c->tx[k].token == -2)
			c->last_ns = t;
		k++;
	}
	memmove(c->tx, c->tx + k, (c->n_tx - k) * sizeof(*c->tx));
	c->n_tx -= k;
	c->writing = (size_t)w < n;
	if (c->writing)
		stalls++;
	watch(c);
}

/* An SSE event, in a chunk of its own where the framing is chunked. */
static void add_event(struct conn *c, const char *data, size_t len)
{
	if (c->framing == FR_CHUNKED)
		buf_printf(&c->out, "%zx\r\n", len);
	buf_add(&c->out, data, len);
	if (c->framing == FR_CHUNKED)
		buf_add(&c->out, "\r\n", 2);
}

static const char role_event[] =
	"data: {\"id\":\"chatcmpl-paced\",\"object\":\"chat.completion.chunk\",\"model\":\"paced\",\"choices\":[{\"index\":0,"
	"\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n";
static const char token_head[] =
	"data: {\"id\":\"chatcmpl-paced\",\"object\":\"chat.completion.chunk\",\"model\":\"paced\",\"choices\":[{\"index\":0,"
	"\"delta\":{\"content\":\"";
static const char token_tail[] = "\"},\"finish_reason\":null}]}\n\n";
static const char finish_event[] =
	"data: {\"id\":\"chatcmpl-paced\",\"object\":\"chat.completion.chunk\",\"model\":\"paced\",\"choices\":[{\"index\":0,"
	"\"delta\":{},\"finish_reason\":\"length\"}]}\n\n";

static size_t make_token(char *out, size_t cap, int i, size_t want)
{
	size_t fixed = sizeof(token_head) - 1 + sizeof(token_tail) - 1, fill, n = 0;
	int w;

	memcpy(out, token_head, sizeof(token_head) - 1);
	n = sizeof(token_head) - 1;
	w = snprintf(out + n, 16, "t%d", i);
	n += (size_t)w;
	fill = want > fixed + (size_t)w ? want - fixed - (size_t)w : 0;
	if (n + fill + sizeof(token_tail) > cap)
		fill = cap - n - sizeof(token_tail);
	memset(out + n, 'a' + i % 26, fill);
	n += fill;
	memcpy(out + n, token_tail, sizeof(token_tail) - 1);
	return n + sizeof(token_tail) - 1;
}

static char scratch[1u << 20];

static void end_stream(struct conn *c)
{
	char usage[320];
	int n;

	add_event(c, finish_event, sizeof(finish_event) - 1);
	if (c->usage) {
		n = snprintf(
			usage, sizeof(usage),
			"data: {\"id\":\"chatcmpl-paced\",\"object\":\"chat.completion.chunk\",\"model\":\"paced\","
			"\"choices\":[],\"usage\":{\"prompt_tokens\":%zu,\"completion_tokens\":%d,"
			"\"total_tokens\":%zu}}\n\n",
			c->prompt_bytes / 4 + 1, c->tokens,
			c->prompt_bytes / 4 + 1 + (size_t)c->tokens);
		add_event(c, usage, (size_t)n);
	}
	add_event(c, "data: [DONE]\n\n", 14);
	if (c->framing == FR_CHUNKED)
		buf_add(&c->out, "0\r\n\r\n", 5);
	tx_mark(c, -2);
	c->close_after = c->framing == FR_CLOSE;
}

/* ---- requests ---- */

static const char *member(const char *body, const char *name)
{
	char key[48];
	const char *p;

	snprintf(key, sizeof(key), "\"%s\"", name);
	p = strstr(body, key);
	if (!p)
		return NULL;
	p += strlen(key);
	p += strspn(p, " \t\r\n");
	if (*p++ != ':')
		return NULL;
	return p + strspn(p, " \t\r\n");
}

static double number(const char *body, const char *name, double def)
{
	const char *p = member(body, name);

	return p ? strtod(p, NULL) : def;
}

static bool boolean(const char *body, const char *name, bool def)
{
	const char *p = member(body, name);

	return p ? !strncmp(p, "true", 4) : def;
}

static void respond_plain(struct conn *c, int status)
{
	struct buf b = { 0 };
	size_t text = c->chunk_bytes ? c->chunk_bytes * (size_t)c->tokens : (size_t)c->tokens * 4;

	if (status != 200) {
		buf_printf(
			&b,
			"{\"error\":{\"message\":\"paced was told to fail\",\"type\":\"server_error\",\"code\":%d}}",
			status);
	} else {
		buf_printf(
			&b,
			"{\"id\":\"chatcmpl-paced\",\"object\":\"chat.completion\",\"model\":\"paced\",\"choices\":[{"
			"\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"");
		for (size_t i = 0; i < text; i += sizeof("lorem ") - 1)
			buf_add(&b, "lorem ", 6);
		buf_printf(
			&b,
			"\"},\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":%zu,\"completion_tokens\":%d,"
			"\"total_tokens\":%zu}}",
			c->prompt_bytes / 4 + 1, c->tokens,
			c->prompt_bytes / 4 + 1 + (size_t)c->tokens);
	}
	buf_printf(
		&c->out,
		"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
		status, status == 200 ? "OK" : "Error", b.len);
	buf_add(&c->out, b.p, b.len);
	tx_mark(c, -2);
	free(b.p);
}

static unsigned flood_open;
static struct conn **flood_list;

static void header_value(const char *head, const char *name, char *out, size_t cap)
{
	size_t nl = strlen(name), n = 0;

	out[0] = 0;
	for (const char *p = strstr(head, "\r\n"); p && p[2]; p = strstr(p + 2, "\r\n"))
		if (!strncasecmp(p + 2, name, nl) && p[2 + nl] == ':') {
			p += 3 + nl;
			while (*p == ' ')
				p++;
			while (*p && *p != '\r' && n + 1 < cap)
				out[n++] = *p++;
			out[n] = 0;
			return;
		}
}

static void finish_request(struct conn *c, const char *end)
{
	if (!c->busy)
		return;
	truth_request(c, end);
	c->busy = false;
	c->served++;
	heap_remove(c);
}

static void conn_free(struct conn *c, const char *why)
{
	finish_request(c, why);
	heap_remove(c);
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	free(c->in.p);
	free(c->out.p);
	free(c->rx);
	free(c->tx);
	free(c->token_ns);
	free(c);
}

static void start_answer(struct conn *c, const char *body)
{
	const char *fr = member(body, "framing");
	int fail = (int)number(body, "fail", 0);
	int64_t due;
	uint64_t len = 0;

	c->rng = (uint64_t)number(body, "seed", 1) * 0x2545f4914f6cdd1dULL + 1;
	c->tokens = (int)number(body, "max_tokens", number(body, "tokens", 16));
	if (g.flood_n)
		c->tokens = (int)(g.flood_n / g.flood_conns);
	c->gap_us = number(body, "gap_us", 20000);
	c->chunk_bytes = (size_t)number(body, "chunk_bytes", 0);
	c->stream = boolean(body, "stream", false);
	c->usage = boolean(body, "include_usage", false);
	c->framing = fr && !strncmp(fr, "\"close", 6)  ? FR_CLOSE :
		     fr && !strncmp(fr, "\"length", 7) ? FR_LENGTH :
							 FR_CHUNKED;
	c->next = 0;
	c->first_write_ns = c->last_ns = c->late_max = 0;
	c->busy = true;
	c->close_after = false;
	requests++;
	if (!g.flood_n) {
		c->token_ns = grow(c->token_ns, &c->cap_tokens, (size_t)c->tokens + 1,
				   sizeof(*c->token_ns));
		memset(c->token_ns, 0, ((size_t)c->tokens + 1) * sizeof(*c->token_ns));
	}
	if (fail) {
		c->stream = false;
		respond_plain(c, fail);
		flush_out(c);
		return;
	}
	due = c->recv_ns + draw_ns(&c->rng, number(body, "ttft_us", 50000));
	if (!c->stream && !g.flood_n) {
		for (int i = 1; i < c->tokens; i++)
			due += draw_ns(&c->rng, c->gap_us);
		heap_set(c, due);
		return;
	}
	buf_printf(&c->out, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n");
	if (c->framing == FR_CHUNKED) {
		buf_printf(&c->out, "Transfer-Encoding: chunked\r\n\r\n");
	} else if (c->framing == FR_CLOSE) {
		buf_printf(&c->out, "Connection: close\r\n\r\n");
	} else {
		len = sizeof(role_event) - 1 + sizeof(finish_event) - 1 + 14;
		for (int i = 0; i < c->tokens; i++)
			len += make_token(scratch, sizeof(scratch), i, c->chunk_bytes);
		c->usage = false;
		buf_printf(&c->out, "Content-Length: %" PRIu64 "\r\n\r\n", len);
	}
	add_event(c, role_event, sizeof(role_event) - 1);
	if (g.flood_n) {
		flush_out(c);
		if (flood_open < g.flood_conns)
			flood_list[flood_open++] = c;
		return;
	}
	if (!c->tokens)
		end_stream(c);
	flush_out(c);
	if (c->tokens)
		heap_set(c, due);
}

/* A whole request in the input? Starts its answer. */
static void next_request(struct conn *c)
{
	char *head = c->in.p + c->in.off, *eoh, *p, len[32];
	uint64_t start = c->in_total - (c->in.len - c->in.off), end;
	size_t n, body = 0;

	if (c->busy || c->in.off == c->in.len || c->broken)
		return;
	c->in.p[c->in.len] = 0;
	eoh = memmem(head, c->in.len - c->in.off, "\r\n\r\n", 4);
	if (!eoh)
		return;
	n = (size_t)(eoh + 4 - head);
	*eoh = 0;
	header_value(head, "content-length", len, sizeof(len));
	body = len[0] ? strtoul(len, NULL, 10) : 0;
	header_value(head, "x-request-id", c->xid, sizeof(c->xid));
	*eoh = '\r';
	if (c->in.len - c->in.off < n + body)
		return;
	end = start + n + body;
	for (size_t i = 0; i < c->n_rx; i++)
		if (c->rx[i].end > start) {
			c->start_ns = c->rx[i].ts;
			break;
		}
	for (size_t i = 0; i < c->n_rx; i++)
		if (c->rx[i].end >= end) {
			c->recv_ns = c->rx[i].ts;
			memmove(c->rx, c->rx + i, (c->n_rx - i) * sizeof(*c->rx));
			c->n_rx -= i;
			break;
		}
	c->prompt_bytes = body;
	p = c->in.p + c->in.off + n;
	c->in.off += n + body;
	/* terminate the body for the scanner, restore the byte of a pipelined request */
	char keep = p[body];
	p[body] = 0;
	start_answer(c, p);
	p[body] = keep;
}

static void progress(struct conn *c);

static void on_readable(struct conn *c)
{
	int64_t t;
	ssize_t n;

	if (c->in.off == c->in.len)
		c->in.off = c->in.len = 0;
	c->in.p = grow(c->in.p, &c->in.cap, c->in.len + 65536 + 1, 1);
	n = read(c->fd, c->in.p + c->in.len, 65536);
	t = now_ns();
	if (n < 0 && errno == EAGAIN)
		return;
	if (n < 0)
		c->broken = true;
	if (n <= 0) {
		c->eof = true;
		if (g.abort_on_eof)
			c->broken = true;
		watch(c);
		return;
	}
	c->in.len += (size_t)n;
	c->in_total += (uint64_t)n;
	if (c->in.len > IN_MAX)
		c->broken = true;
	c->rx = grow(c->rx, &c->cap_rx, c->n_rx + 1, sizeof(*c->rx));
	c->rx[c->n_rx++] = (struct mark){ .end = c->in_total, .ts = t };
}

static void on_due(struct conn *c)
{
	int64_t l;
	size_t n;

	heap_remove(c);
	if (!c->stream) {
		respond_plain(c, 200);
		flush_out(c);
		return;
	}
	n = make_token(scratch, sizeof(scratch), c->next, c->chunk_bytes);
	add_event(c, scratch, n);
	tx_mark(c, c->next);
	c->next++;
	l = now_ns() - c->due;
	if (l > c->late_max)
		c->late_max = l;
	if (late_n < (64u << 20)) {
		late = grow(late, &late_cap, late_n + 1, sizeof(*late));
		late[late_n++] = l > UINT32_MAX ? UINT32_MAX : (uint32_t)l;
	}
	if (!c->writing)
		flush_out(c);
	if (c->broken)
		return;
	if (c->next < c->tokens) {
		heap_set(c, c->due + draw_ns(&c->rng, c->gap_us));
	} else {
		end_stream(c);
		if (!c->writing)
			flush_out(c);
	}
}

/* After anything happened: finish what is complete, start what waits, or go. */
static void progress(struct conn *c)
{
	for (;;) {
		if (c->broken) {
			conn_free(c, "client_gone");
			return;
		}
		if (c->busy && c->last_ns && c->out.off == c->out.len) {
			bool bye = c->close_after;

			finish_request(c, "complete");
			if (bye) {
				conn_free(c, "complete");
				return;
			}
		}
		if (c->busy)
			return;
		next_request(c);
		if (!c->busy) {
			if (c->eof)
				conn_free(c, "client_gone");
			return;
		}
	}
}

static void on_accept(void)
{
	for (;;) {
		struct sockaddr_storage ss = { 0 };
		socklen_t sl = sizeof(ss);
		struct epoll_event e = { .events = EPOLLIN };
		struct conn *c;
		int fd = accept4(g.listener, (struct sockaddr *)&ss, &sl,
				 SOCK_NONBLOCK | SOCK_CLOEXEC),
		    one = 1;

		if (fd < 0)
			return;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		c = calloc(1, sizeof(*c));
		if (!c)
			die("calloc");
		c->fd = fd;
		c->heap_at = -1;
		c->events = EPOLLIN;
		if (ss.ss_family == AF_INET)
			c->port = ntohs(((struct sockaddr_in *)&ss)->sin_port);
		else if (ss.ss_family == AF_INET6)
			c->port = ntohs(((struct sockaddr_in6 *)&ss)->sin6_port);
		e.data.ptr = c;
		epoll_ctl(g.ep, EPOLL_CTL_ADD, fd, &e);
	}
}

static int cmp_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static uint32_t pct(double p)
{
	return late_n ? late[(size_t)((double)(late_n - 1) * p)] : 0;
}

static void report(double flood_s)
{
	struct rusage ru;
	double cpu;
	uint64_t missed = 0;

	getrusage(RUSAGE_SELF, &ru);
	cpu = (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1e9 +
	      (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) * 1e3;
	qsort(late, late_n, sizeof(*late), cmp_u32);
	for (size_t i = 0; i < late_n; i++)
		missed += late[i] > 1000000;
	printf("{\"requests\":%" PRIu64 ",\"writes\":%" PRIu64 ",\"stalls\":%" PRIu64
	       ",\"late_p50_us\":%.1f,\"late_p99_us\":%.1f,\"late_max_us\":%.1f,\"late_over_1ms\":%" PRIu64
	       ",\"cpu_s\":%.4f,\"cpu_ns_per_write\":%.0f",
	       requests, writes, stalls, pct(0.5) / 1e3, pct(0.99) / 1e3, pct(1) / 1e3, missed,
	       cpu / 1e9, writes ? cpu / (double)writes : 0);
	if (flood_s > 0)
		printf(",\"flood_chunks\":%" PRIu64 ",\"flood_s\":%.3f,\"flood_rate\":%.0f",
		       g.flood_n, flood_s, (double)g.flood_n / flood_s);
	printf("}\n");
	fflush(stdout);
}

static void flood_run(void)
{
	char *ev = malloc(g.flood_bytes + 64);
	int64_t t0 = now_ns(), t1, c0, c1;
	struct timespec ts;
	size_t n = 0;
	char head[16];
	int h;

	if (!ev)
		die("malloc");
	late_n = 0;
	writes = 0;
	late = grow(late, &late_cap, g.flood_n, sizeof(*late));
	n = make_token(scratch, sizeof(scratch), 1, g.flood_bytes > 16 ? g.flood_bytes - 9 : 0);
	h = snprintf(head, sizeof(head), "%zx\r\n", n);
	memcpy(ev, head, (size_t)h);
	memcpy(ev + h, scratch, n);
	memcpy(ev + h + n, "\r\n", 2);
	n += (size_t)h + 2;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	c0 = ts.tv_sec * NS_PER_S + ts.tv_nsec;
	for (uint64_t i = 0; i < g.flood_n; i++) {
		int64_t due = t0 + (int64_t)((double)i * 1e9 / g.flood_rate), t = now_ns();
		struct conn *c = flood_list[i % g.flood_conns];

		while (t < due) {
			struct timespec d = { .tv_sec = due / NS_PER_S, .tv_nsec = due % NS_PER_S };

			if (stop)
				return;
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &d, NULL);
			t = now_ns();
		}
		late[late_n++] = (uint32_t)(t - due > UINT32_MAX ? UINT32_MAX : t - due);
		if (c->broken)
			continue;
		c->next++;
		if (c->out.off != c->out.len) {
			buf_add(&c->out, ev, n);
			flush_out(c);
		} else {
			ssize_t w = write(c->fd, ev, n);

			writes++;
			if (w > 0)
				c->out_total += (uint64_t)w;
			if (w < (ssize_t)n) {
				if (w < 0 && errno != EAGAIN)
					c->broken = true;
				stalls++;
				w = w < 0 ? 0 : w;
				buf_add(&c->out, ev + w, n - (size_t)w);
			}
		}
	}
	t1 = now_ns();
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	c1 = ts.tv_sec * NS_PER_S + ts.tv_nsec;
	printf("{\"flood_cpu_ns_per_write\":%.0f}\n", (double)(c1 - c0) / (double)g.flood_n);
	report((double)(t1 - t0) / 1e9);
	for (unsigned i = 0; i < g.flood_conns; i++) {
		struct conn *c = flood_list[i];

		end_stream(c);
		while (c->out.off != c->out.len && !c->broken) {
			flush_out(c);
			usleep(100);
		}
		progress(c);
	}
	flood_open = 0;
	free(ev);
}

static void serve(void)
{
	struct epoll_event ev[256], e = { .events = EPOLLIN, .data.ptr = &g.listener };

	g.ep = epoll_create1(EPOLL_CLOEXEC);
	g.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	epoll_ctl(g.ep, EPOLL_CTL_ADD, g.listener, &e);
	e.data.ptr = &g.timer;
	epoll_ctl(g.ep, EPOLL_CTL_ADD, g.timer, &e);
	prctl(PR_SET_TIMERSLACK, 1UL);
	if (g.truth_path) {
		g.truth_fd = open(g.truth_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
		if (g.truth_fd < 0)
			die(g.truth_path);
	}
	while (!stop) {
		struct itimerspec it = { 0 };
		int n;

		while (heap_n && heap[0]->due <= now_ns()) {
			struct conn *c = heap[0];

			on_due(c);
			progress(c);
		}
		if (heap_n) {
			it.it_value.tv_sec = heap[0]->due / NS_PER_S;
			it.it_value.tv_nsec = heap[0]->due % NS_PER_S;
		}
		timerfd_settime(g.timer, TFD_TIMER_ABSTIME, &it, NULL);
		n = epoll_wait(g.ep, ev, ARRAY_SIZE(ev), -1);
		for (int i = 0; i < n; i++) {
			struct conn *c = ev[i].data.ptr;

			if (ev[i].data.ptr == &g.listener) {
				on_accept();
				continue;
			}
			if (ev[i].data.ptr == &g.timer) {
				uint64_t x;

				if (read(g.timer, &x, sizeof(x)) < 0 && errno != EAGAIN)
					die("timerfd");
				continue;
			}
			if (ev[i].events & EPOLLERR)
				c->broken = true;
			if (!c->broken && (ev[i].events & (EPOLLIN | EPOLLHUP)) && !c->eof)
				on_readable(c);
			if (!c->broken && (ev[i].events & EPOLLOUT))
				flush_out(c);
			if ((ev[i].events & EPOLLHUP) && c->eof)
				c->broken = true;
			progress(c);
		}
		if (g.flood_n && flood_open == g.flood_conns)
			flood_run();
	}
	truth_flush();
	if (!g.flood_n)
		report(0);
}

static int listen_on(const char *addr, int *port)
{
	struct sockaddr_storage ss = { 0 };
	struct sockaddr_in *s4 = (void *)&ss;
	struct sockaddr_in6 *s6 = (void *)&ss;
	struct sockaddr_un *su = (void *)&ss;
	char host[128];
	socklen_t sl;
	const char *colon;
	int fd, one = 1, zero = 0;

	if (g.unix_path) {
		su->sun_family = AF_UNIX;
		if (strlen(g.unix_path) >= sizeof(su->sun_path))
			return errno = ENAMETOOLONG, -1;
		strcpy(su->sun_path, g.unix_path);
		sl = sizeof(*su);
		if (g.unix_path[0] == '@') {
			su->sun_path[0] = 0;
			sl = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
					 strlen(g.unix_path));
		} else {
			unlink(g.unix_path);
		}
	} else {
		colon = strrchr(addr, ':');
		if (!colon || (size_t)(colon - addr) >= sizeof(host))
			return errno = EINVAL, -1;
		snprintf(host, sizeof(host), "%.*s", (int)(colon - addr), addr);
		if (host[0] == '[') {
			host[strlen(host) - 1] = 0;
			s6->sin6_family = AF_INET6;
			s6->sin6_port = htons((uint16_t)atoi(colon + 1));
			if (inet_pton(AF_INET6, host + 1, &s6->sin6_addr) != 1)
				return errno = EINVAL, -1;
			sl = sizeof(*s6);
		} else {
			s4->sin_family = AF_INET;
			s4->sin_port = htons((uint16_t)atoi(colon + 1));
			if (inet_pton(AF_INET, host, &s4->sin_addr) != 1)
				return errno = EINVAL, -1;
			sl = sizeof(*s4);
		}
	}
	fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (g.reuse_port)
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	if (ss.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (*port && ss.ss_family == AF_INET)
		s4->sin_port = htons((uint16_t)*port);
	else if (*port && ss.ss_family == AF_INET6)
		s6->sin6_port = htons((uint16_t)*port);
	if (bind(fd, (struct sockaddr *)&ss, sl) || listen(fd, 4096))
		return -1;
	if (!g.unix_path) {
		sl = sizeof(ss);
		getsockname(fd, (struct sockaddr *)&ss, &sl);
		*port = ntohs(ss.ss_family == AF_INET6 ? s6->sin6_port : s4->sin_port);
	}
	return fd;
}

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {
		{ "listen", required_argument, NULL, 'l' },
		{ "unix", required_argument, NULL, 'u' },
		{ "truth", required_argument, NULL, 't' },
		{ "workers", required_argument, NULL, 'w' },
		{ "flood", required_argument, NULL, 'f' },
		{ "conns", required_argument, NULL, 'c' },
		{ "abort-on-eof", no_argument, NULL, 'a' },
		{ 0 },
	};
	struct sigaction sa = { .sa_handler = on_signal };
	const char *addr = "127.0.0.1:0";
	struct rlimit rl = { 65536, 65536 };
	pid_t kids[64];
	int o, port = 0;

	g.flood_conns = 20;
	while ((o = getopt_long(argc, argv, "", opts, NULL)) != -1)
		switch (o) {
		case 'l':
			addr = optarg;
			break;
		case 'u':
			g.unix_path = optarg;
			break;
		case 't':
			g.truth_path = optarg;
			break;
		case 'w':
			g.workers = atoi(optarg);
			break;
		case 'c':
			g.flood_conns = (unsigned)atoi(optarg);
			break;
		case 'a':
			g.abort_on_eof = true;
			break;
		case 'f':
			if (sscanf(optarg, "%" SCNu64 ",%lf,%zu", &g.flood_n, &g.flood_rate,
				   &g.flood_bytes) != 3) {
				fprintf(stderr, "paced: --flood N,RATE,BYTES\n");
				return 2;
			}
			break;
		default:
			fprintf(stderr,
				"usage: paced [--listen ADDR:PORT | --unix PATH] [--truth FILE] [--workers N]\n"
				"             [--abort-on-eof] [--flood N,RATE,BYTES --conns C]\n");
			return 2;
		}
	if (g.flood_n &&
	    (!g.flood_conns || g.flood_rate <= 0 || g.flood_bytes >= sizeof(scratch))) {
		fprintf(stderr, "paced: bad --flood or --conns\n");
		return 2;
	}
	setrlimit(RLIMIT_NOFILE, &rl);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	flood_list = calloc(g.flood_conns, sizeof(*flood_list));
	g.reuse_port = g.workers > 1;
	if (g.workers > (int)ARRAY_SIZE(kids))
		g.workers = ARRAY_SIZE(kids);
	g.listener = listen_on(addr, &port);
	if (g.listener < 0)
		die(g.unix_path ? g.unix_path : addr);
	printf("listening %d\n", port);
	fflush(stdout);
	if (g.workers <= 1) {
		serve();
		return 0;
	}
	for (int i = 0; i < g.workers; i++) {
		kids[i] = fork();
		if (kids[i] < 0)
			die("fork");
		if (!kids[i]) {
			prctl(PR_SET_PDEATHSIG, SIGTERM);
			if (i) { /* the first keeps the socket that is already there */
				close(g.listener);
				g.listener = listen_on(addr, &port);
				if (g.listener < 0)
					die(addr);
			}
			serve();
			return 0;
		}
	}
	close(g.listener);
	while (!stop)
		pause();
	for (int i = 0; i < g.workers; i++)
		kill(kids[i], SIGTERM);
	for (int i = 0; i < g.workers; i++)
		waitpid(kids[i], NULL, 0);
	return 0;
}
