/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* internal.h - state shared by the files of user/timeline/, and by nobody else. */
#ifndef REQPROBE_TIMELINE_INTERNAL_H
#define REQPROBE_TIMELINE_INTERNAL_H

#include "lib/map.h"
#include "protocol/sse.h"
#include "timeline/timeline.h"

#define RP_MAX_OBSERVERS 8
#define RP_MAX_SESSIONS 64
#define RP_EXITED 256 /* late events come within a fraction of a second */
#define RP_MAX_LISTENERS 1024
#define RP_MAX_NOTICES 32

/*
 * After the last sign of an end, events that were already under way may still
 * come: the exit of a write runs after the peer has seen the bytes, the slot of
 * a cancelled request is released one decode step later.
 */
#define RP_GRACE_NS (500 * 1000000LL)
/* A response whose position was lost and that stays quiet is given up. */
#define RP_LOST_QUIET_NS (2000 * 1000000LL)
/* A client that has not acknowledged the end of its response by then is slow. */
#define RP_ACK_NS (2000 * 1000000LL)
/* Totals that run ahead of what was delivered are a loss after this long. */
#define RP_SUSPECT_NS (200 * 1000000LL)

/* Engine requests of one record that observers are told of. */
#define RP_ENGINE_REQUESTS_TOLD 512

struct task;
struct request;

enum body_kind { BODY_NONE, BODY_SSE, BODY_NDJSON, BODY_JSON };

struct session {
	uint32_t root_pid;
	char engine[32], version[64], host[64];
	uint64_t hooks_attached;
	enum rp_hook_reason hook_reason;
	uint8_t roles[RP_MAX_HOOKS];
	bool has_role[RP_ROLE_COUNT]; /* by enum rp_role */
	uint64_t hits, finished_unjoined;
	bool silent_said;
	bool acks;     /* the source looks at what is not acknowledged */
	int64_t since; /* when its hooks were attached */
	enum { NUMBERED_UNKNOWN, NUMBERED_YES, NUMBERED_NO } numbered; /* ids of completions */
	bool log_stats; /* its messages carry scheduler stats, so events too */
	/* the messages that add requests: seen before a first output, or missed */
	enum { ADDS_UNKNOWN, ADDS_SEEN, ADDS_MISSED } adds;
	/* of its command line or the user; 0 unknown */
	int64_t kv_tokens, kv_blocks, kv_block;
	bool pipeline, transfer; /* of several stages; KV comes from elsewhere, too */
};

/* HTTP state of a connection: only for those that speak it. */
struct http {
	struct rp_http1 req, resp;
	struct rp_json req_json, json; /* request body; response body or event */
	struct rp_sse sse;
	struct request *rx;	     /* whose request is being received */
	struct request *head, *tail; /* oldest first: head owns the response being sent */
	enum body_kind body;
	bool json_open;	   /* an event's document is being fed */
	bool line_done;	   /* the start line of the request being read is over */
	uint8_t line_part; /* method, target, rest */
	uint16_t target_n;
	char target[RP_PATH_MAX]; /* of the start line, as far as it was read */
	bool rx_lost, tx_lost;	  /* position in the stream unknown */
	bool unsure;		  /* and whose answers went by meanwhile, too */
	int64_t resp_start;	  /* START of a response head, status not yet known */
};

struct conn {
	uint64_t id;
	uint32_t pid;
	uint32_t tid; /* last thread that read from it */
	enum rp_proto proto;
	struct rp_ev_conn_open o;
	bool known; /* CONN_OPEN was seen */
	bool pre_attach, owner_dead, unobserved;
	int64_t t_established;
	uint64_t off[2];
	bool have_off[2];
	uint64_t suspect[2];
	int64_t suspect_ts;
	uint32_t retrans;
	bool tcp; /* the next four are known, of its newest write */
	uint32_t unacked, notsent, srtt_us, min_rtt_us;
	uint32_t call_len;
	int64_t accepted;
	int64_t acked; /* all up to acked_off was, then */
	uint64_t acked_off;
	uint32_t requests;
	int64_t peer_fin, peer_rst, local_fin, closed;
	int64_t last_tx;
	bool alive; /* confirmed since the last LOSS */
	struct http *h;
};

struct marks {
	struct rp_mark *m;
	size_t n, cap;
};

/* A name that a response may have for an engine request: see rp_vllm_names(). */
#define RP_TASK_NAMES 3
struct task_name {
	struct task *task;
	struct task_name *next; /* of the same hash */
	uint64_t hash;
	uint16_t start, len;
};

/* An output's instants, kept for requests whose end the front end decides. */
#define RP_TASK_LAST 16
struct task_output {
	int64_t sent, ts;
	double stamp;
	uint64_t tokens; /* up to and with it */
};

struct task {
	uint32_t pid;	     /* named ones: the session's root process */
	int64_t id;	     /* named ones: the name's hash */
	struct request *req; /* NULL: answered or unknown */
	struct task *next_of_req;
	int64_t t_queued, t_scheduled, t_first, t_last, t_released;
	int64_t prev_token;	      /* for gaps; RP_NONE after a loss */
	bool lost, no_first, no_last; /* entries that may have been its own were lost */
	uint64_t slot;
	bool has_slot;
	uint64_t tokens;
	uint32_t choice;

	bool decoded;  /* counted in its process's scheduler: decode.c */
	bool no_steps; /* some of its steps were not known to be such */
	int32_t seq;   /* its sequence in batches; -1 unknown */

	/* only where engines name their requests in messages: message.c */
	char *name; /* NULL: a task of hooks */
	uint16_t name_len;
	uint8_t n_names;
	bool dead;	      /* its record is written: a tombstone */
	bool told;	      /* events came */
	bool twin;	      /* others could be meant by the same id */
	bool gaps_from_start; /* its first output is its first */
	bool marks_lost;
	struct session *s;
	struct task_name names[RP_TASK_NAMES];
	struct marks marks; /* tokens before its request was known */
	int64_t t_seen, t_added, t_abort, t_dead;
	double e_queued, e_scheduled, e_first, e_last; /* the engine's own, NAN = not told */
	uint32_t core_pid;
	bool retired;	  /* its name is another's now */
	uint64_t told_in; /* the last message that named it */
	int64_t t_active; /* and when */
	int64_t index, prompt, cached;
	int finish;
	uint32_t steps, preemptions, requeues;
	int64_t preempted_ns, requeue_ns, wait_from, *wait;
	enum rp_estimate estimate;
	bool may_defer, resumable, queued_once; /* as the message that added it says */
	/* the last message that had a token for it, of those on its socket; 0 none */
	uint64_t token_msg, token_round;
	unsigned core, outlet; /* of that engine, in st.cores; and its socket there */
	int64_t room;	       /* tokens that its blocks of the KV cache have room for */
	int64_t held;	       /* of them, those that are not counted for another */
	bool holds;	       /* they are counted, in the message token_msg */
	struct task_output last[RP_TASK_LAST];
	uint32_t n_last;
};

struct request {
	struct rp_record r;
	struct request *next; /* in its connection, or in the pending list */
	struct conn *conn;    /* NULL once detached */
	struct session *s;
	bool recorded; /* an inference request; others are only counted */
	bool head_seen, rx_done, resp_seen, done_marker;
	bool midstream;
	bool unseen;	   /* its response came, in bytes whose head could not be read */
	bool after_unseen; /* asked when the one before it was answered like that */
	uint32_t retrans0;
	/* token events */
	int64_t usage_prev;	/* completion tokens told so far by usage */
	bool usage_all;		/* every token event carried usage */
	int64_t prev_event[64]; /* per choice: last token event, for gaps */
	uint64_t choices_seen;
	bool gap_since; /* bytes were missing since the last token event */
	/* and before the first output; behind the last token event, in another call */
	bool output_missed, last_missed;
	/* for observers: what the body asks for, and what they were told */
	bool guided, tools, images;
	char service_tier[16];
	bool start_told;
	bool events_told;		 /* its tokens are those of the response's events */
	int64_t cache_read, cache_write; /* of usage that has them beside input_tokens; 0 */
	int64_t body_call[2];	 /* instant of the last read, write with bytes of the body */
	bool body_start_lost;	 /* the first bytes of the response's body were not seen */
	enum rp_reason no_first; /* why a first token seen later isn't the first */
	/* engine */
	struct task *tasks;
	unsigned n_tasks, n_open;
	bool began_unseen;	      /* the engine worked on it before we came */
	bool tasks_cut;		      /* it has more tasks than a hook could tell */
	bool waits_cut, requeues_cut; /* of one of them they are not known */
	int64_t finished_at;	      /* HTTP side is over, waits for the engine's */
	uint64_t held_for;	      /* connection whose reset would still tell who ended it */
	struct marks eng, chunk;
	int64_t request_length, response_length; /* Content-Length, RP_NONE none */
	bool proxied;
	/* messages: the id it is waited for under */
	char id_key[RP_ID_MAX];
	uint64_t id_hash;
	struct request *id_next; /* of the same hash */
	bool id_cut;		 /* the response's is too long to be compared */
	uint64_t ack_of;	 /* connection whose last bytes are not yet acknowledged */
	uint64_t ack_off;	 /* where they end in its stream */
	bool hold;		 /* an abort may still tell which engine request it was */
	bool twin;		 /* of several with its id: which one is its own is a guess */
};

struct messages; /* message.c */
struct decoder;	 /* decode.c */

struct rp_timeline {
	struct rp_timeline_opts o;
	struct rp_observer obs[RP_MAX_OBSERVERS];
	unsigned n_obs;
	bool tells_tokens; /* somebody wants to know */
	struct rp_stats st;
	uint64_t tokens_owed;  /* of st.tokens_completion: nobody's, or to be counted again */
	struct rp_map conns;   /* (id, 0) */
	struct rp_map ends;    /* (ports, addresses) -> conn: both ends of a hop inside */
	struct rp_map threads; /* (tid, 0) -> conn */
	struct rp_map tasks;   /* (pid, id) */
	struct rp_map slots;   /* (pid, slot) -> task */
	struct rp_map procs;   /* (pid, 0) -> session */
	struct session sessions[RP_MAX_SESSIONS];
	unsigned n_sessions;
	struct session nobody;		      /* when no SESSION named the process */
	uint32_t listeners[RP_MAX_LISTENERS]; /* port | 0x10000 */
	unsigned n_listeners;
	struct request *pending, **pending_tail;
	uint64_t next_seq, next_key;
	int64_t now; /* newest instant seen */
	int64_t wall_offset;
	int64_t loss_ts;
	uint32_t hook_seq[RP_MAX_HOOKS];
	bool hook_seen[RP_MAX_HOOKS], hook_multi[RP_MAX_HOOKS];
	uint32_t hook_tid[RP_MAX_HOOKS];
	struct messages *msgs; /* NULL: none came */
	struct decoder *decoders[RP_MAX_CORES];
	unsigned n_decoders;
	uint32_t exited[RP_EXITED]; /* the newest processes that are no more; 0: none */
	unsigned exited_at;
	struct rp_engine_request told[RP_ENGINE_REQUESTS_TOLD]; /* of the record being told */
	bool uring_reads;   /* it moves bytes of sockets by system calls all the same */
	uint32_t uring_pid; /* has an io_uring, for whatever */
	int64_t tls_first;
	char tls_ports[128];
	uint32_t said; /* notices given, by kind */
};

enum notice { SAY_TLS, SAY_HTTP2, SAY_URING, SAY_LIMIT, SAY_LOSS, SAY_CUT, SAY_DEAD, SAY_PICKLE };

/* timeline.c */
void *rp_tl_alloc(struct rp_timeline *t, size_t n);
void rp_tl_free(struct rp_timeline *t, void *p, size_t n);
void rp_tl_notice(struct rp_timeline *t, int kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* n gaps of this length; whole: as in struct rp_gap_info */
void rp_tl_gap(struct rp_timeline *t, const struct request *q, bool chunk, int64_t gap, uint32_t n,
	       int64_t whole);
/* Tells observers, once. */
void rp_tl_started(struct rp_timeline *t, struct request *q);
/* Tokens of the engine, or of an event of the response: one of the two counts. */
void rp_tl_tokens(struct rp_timeline *t, struct request *q, bool engine, int64_t ts,
		  uint32_t tokens, uint32_t choice);
struct session *rp_tl_session(struct rp_timeline *t, uint32_t pid);
/* A place in st.cores, of one that is gone when all are taken; -1: none. */
/* A place in st.cores, -1: there is none. One that had the same pid and index comes back
 * to its own, and goes on with its totals: no two cores have the same name. */
int rp_tl_core_new(struct rp_timeline *t, uint32_t pid, int64_t index);
/* Has it exited, and no other has its pid since? Events of several CPUs come in any order. */
bool rp_tl_exited(const struct rp_timeline *t, uint32_t pid);
void rp_tl_mark(struct rp_timeline *t, struct request *q, struct marks *m, int64_t ts,
		uint32_t tokens, uint32_t choice);

void rp_tl_say_uring(struct rp_timeline *t);

/* connection.c */
int rp_tl_data(struct rp_timeline *t, const struct rp_ev_data *e, uint8_t *keep);
void rp_tl_conn_open(struct rp_timeline *t, const struct rp_ev_conn_open *e);
void rp_tl_conn_proto(struct rp_timeline *t, const struct rp_ev_conn_proto *e);
void rp_tl_conn_state(struct rp_timeline *t, const struct rp_ev_conn_state *e);
void rp_tl_conn_close(struct rp_timeline *t, const struct rp_ev_conn_close *e);
void rp_tl_conn_alive(struct rp_timeline *t, const struct rp_ev_conn_close *e);
void rp_tl_conn_accept(struct rp_timeline *t, const struct rp_ev_conn_accept *e);
void rp_tl_conn_tcp(struct rp_timeline *t, const struct rp_ev_tcp *e);
void rp_tl_conns_settle(struct rp_timeline *t, bool all);
void rp_tl_conn_gone(struct rp_timeline *t, struct conn *c);

/* request.c */
struct request *rp_tl_request_new(struct rp_timeline *t, struct conn *c, int64_t ts);
void rp_tl_request_head(struct rp_timeline *t, struct request *q, const struct rp_http1_head *h);
void rp_tl_request_body(struct rp_timeline *t, struct request *q, const struct rp_json_facts *f);
void rp_tl_response_head(struct rp_timeline *t, struct request *q, const struct rp_http1_head *h);
void rp_tl_event(struct rp_timeline *t, struct request *q, const struct rp_json_facts *f,
		 const char *event_name, int64_t ts);
void rp_tl_response_body(struct rp_timeline *t, struct request *q, const struct rp_json_facts *f);
/* The HTTP side is over; detaches from the connection and records it, now or
 * when the engine's side is over too. */
void rp_tl_request_end(struct rp_timeline *t, struct request *q, enum rp_end end, int64_t ts);
void rp_tl_pending(struct rp_timeline *t, bool all);
/* What came of the last bytes: acknowledged at ts, or RP_NONE: not any more. */
void rp_tl_acked(struct rp_timeline *t, struct conn *c, uint64_t upto, int64_t ts);
/* The client's reset: requests held for this connection never reached it. */
void rp_tl_reset(struct rp_timeline *t, const struct conn *c);
/* Is each line of such a body a document of its own? */
bool rp_tl_ndjson(const char *content_type);
/* May this request target, complete or not, stand in a recording? */
bool rp_tl_target_known(const char *target, size_t n, bool complete);
/* The same request further out, at a proxy of the tree: no record of its own. */
void rp_tl_proxied(struct rp_timeline *t, struct request *q);

/* step.c */
void rp_tl_hook(struct rp_timeline *t, const struct rp_ev_hook *e);
/* Entries of hooks were lost: whose is unknown, so all at work are touched. */
void rp_tl_hook_loss(struct rp_timeline *t);
/* They are not its own: free to be claimed by others. */
/* Tokens of a request's engine, as they come: the count never falls. */
void rp_tl_count_tokens(struct rp_timeline *t, uint64_t n);
void rp_tl_tasks_release(struct rp_timeline *t, struct request *q);
void rp_tl_tasks_detach(struct rp_timeline *t, struct request *q);
void rp_tl_proc_exit(struct rp_timeline *t, uint32_t pid);
void rp_tl_tasks_free(struct rp_timeline *t);
void rp_tl_task_over(struct rp_timeline *t, struct task *k, int64_t ts);
void rp_tl_task_free(struct rp_timeline *t, struct task *k);
/* An entry or output that may have been its own was not seen. */
void rp_tl_task_lost(struct task *k);
/* The hook's own count: a hole is a loss. */
void rp_tl_hook_seq(struct rp_timeline *t, unsigned hook, uint32_t seq, uint32_t tid);

/* decode.c */
void rp_tl_decode(struct rp_timeline *t, const struct rp_ev_hook *e);
/* A task begins to wait; it has a slot, the sequence `seq` in batches (-1 unknown); it is
 * over; it, or one that nobody knows (k NULL), has a token, not yet counted. */
void rp_tl_decode_queued(struct rp_timeline *t, struct task *k);
void rp_tl_decode_scheduled(struct rp_timeline *t, struct task *k, int64_t seq);
void rp_tl_decode_over(struct rp_timeline *t, const struct task *k);
void rp_tl_decode_token(struct rp_timeline *t, uint32_t pid, uint64_t key, struct task *k,
			int64_t ts);
/* A slot was given up, whoever had it. */
void rp_tl_decode_slot_free(struct rp_timeline *t, uint32_t pid, int64_t ts);
void rp_tl_decode_loss(struct rp_timeline *t);
void rp_tl_decode_tick(struct rp_timeline *t);
void rp_tl_decode_exit(struct rp_timeline *t, uint32_t pid);
void rp_tl_decode_finish(struct rp_timeline *t);
void rp_tl_decode_free(struct rp_timeline *t);

/* message.c */
void rp_tl_msg(struct rp_timeline *t, const struct rp_ev_msg *e, uint8_t *keep);
void rp_tl_step_tokens(struct rp_timeline *t, struct request *q, struct task *k, int64_t ts,
		       uint32_t tokens);
/* The response says its id; the request lets expect one; it has its record. */
void rp_tl_id_known(struct rp_timeline *t, struct request *q, const char *id);
void rp_tl_id_expected(struct rp_timeline *t, struct request *q);
void rp_tl_id_again(struct rp_timeline *t, struct request *q);
void rp_tl_id_forget(struct rp_timeline *t, struct request *q);
/* It is over: a guess that nothing confirms is dropped. */
void rp_tl_twin_check(struct rp_timeline *t, struct request *q);
void rp_tl_task_name_free(struct rp_timeline *t, struct task *k);
void rp_tl_msgs_loss(struct rp_timeline *t);
/* A place in st.cores is now that of a process without messages. */
void rp_tl_msgs_core_taken(struct rp_timeline *t, int i);
/* The engine no longer works on it: its part of the KV cache is free. */
void rp_tl_msgs_release(struct rp_timeline *t, struct task *k);
/* Without events: are the gaps between its outputs known for preemptions? */
bool rp_tl_msgs_gaps(const struct rp_timeline *t, const struct task *k);
/* More is known of the session's engine. */
void rp_tl_msgs_configure(struct rp_timeline *t);
void rp_tl_msgs_tick(struct rp_timeline *t);
void rp_tl_msgs_exit(struct rp_timeline *t, uint32_t pid);
void rp_tl_msgs_finish(struct rp_timeline *t);
void rp_tl_msgs_free(struct rp_timeline *t);

#endif
