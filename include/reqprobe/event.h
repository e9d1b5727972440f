/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * event.h - the contract between BPF programs, recordings and the daemon.
 *
 * Every fact reqprobe knows enters as one of these structs, either from a BPF
 * ring buffer, or from a recording. They are plain old data: fixed-width
 * types, explicit padding, no pointers, host byte order (recordings carry a
 * byte-order mark and are refused on the other order).
 *
 * All instants are nanoseconds of CLOCK_MONOTONIC, as bpf_ktime_get_ns() reads
 * it. All sizes are bytes. `size` in the header is the whole record, a
 * multiple of 8. A reader must skip types it does not know.
 */
#ifndef REQPROBE_EVENT_H
#define REQPROBE_EVENT_H

#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

enum rp_event_type {
	/* made by BPF programs */
	RP_EV_DATA = 1,		/* bytes moved on a connection */
	RP_EV_CONN_OPEN = 2,	/* a connection became known */
	RP_EV_CONN_PROTO = 3,	/* what its first bytes are */
	RP_EV_CONN_STATE = 4,	/* FIN or RST, by whom */
	RP_EV_CONN_CLOSE = 5,	/* the socket is gone */
	RP_EV_HOOK = 6,		/* an engine function was entered */
	RP_EV_PROC = 7,		/* fork, exec, exit in the watched tree */
	RP_EV_URING = 8,	/* a watched process made an io_uring instance */
	RP_EV_MSG = 9,		/* an engine sent a message between its processes */
	RP_EV_CONN_ACCEPT = 10, /* the application took it from the accept queue */
	/* made by user space, so that a recording is complete */
	RP_EV_SESSION = 64,   /* what is watched: engine, version, host */
	RP_EV_CLOCK = 65,     /* wall clock offset */
	RP_EV_TICK = 66,      /* time passes: timeouts are judged here */
	RP_EV_LOSS = 67,      /* loss counters moved */
	RP_EV_ALIVE = 68,     /* after a loss: this connection still exists */
	RP_EV_ALIVE_END = 69, /* after a loss: those not named are gone */
	RP_EV_LISTENER = 70,  /* a listening socket of the watched tree */
	RP_EV_STOP = 71,      /* the source ends here */
	RP_EV_TCP = 72,	      /* the peer has acknowledged all, or a look at a wait */
	RP_EV_ENGINE = 73,    /* what is known of the engine's configuration */
};

/* Loss is counted per class; `seen = submitted + lost` holds for each. */
enum rp_event_class {
	RP_CLASS_DATA = 0,
	RP_CLASS_CONN = 1,
	RP_CLASS_HOOK = 2,
	RP_CLASS_PROC = 3,
	RP_CLASS_COUNT = 4,
};

struct rp_event_hdr {
	__u32 size;  /* whole record, header included, multiple of 8 */
	__u8 type;   /* enum rp_event_type */
	__u8 dir;    /* RP_EV_DATA: enum rp_dir */
	__u16 flags; /* enum rp_event_flags */
	__u64 ts;    /* the instant that counts, see each type */
	__u32 pid;   /* process (thread group), as the caller of reqprobe sees it; 0 = none */
	__u32 tid;   /* thread, as the kernel's initial namespace sees it */
};

enum rp_dir { RP_RX = 0, RP_TX = 1 }; /* seen from the watched process */

enum rp_event_flags {
	RP_F_PRE_ATTACH = 1 << 0, /* CONN_*: older than the attach */
	RP_F_UNIX = 1 << 1,	  /* CONN_OPEN: a Unix socket */
	RP_F_MORE = 1 << 2,	  /* DATA: another fragment of this call follows; MSG: of this
				 * frame (in the ring only: the source joins them) */
	RP_F_CUT = 1 << 3,	  /* DATA, MSG: bytes were not captured (missing > 0);
				 * HOOK: more values than there is room for */
	RP_F_NO_ENTRY = 1 << 4,	  /* DATA tx: entry instant unknown, ts is the return */
	RP_F_TCP = 1 << 6,	  /* DATA: the last four numbers were read (rx: unacked and
				 * acked_ago_us) */
	RP_F_SYNTH = 1 << 5,	  /* made by user space on evidence other than this event */
};

/*
 * DATA: one fragment of what one system call moved. hdr.ts is the entry of a
 * writing call and the return of a reading call. A call makes one or more
 * fragments, in stream order, back to back unless some were lost. `off` is the
 * position of the fragment's first byte in its direction's stream, counted
 * from the first byte reqprobe saw: a jump against the last known end is the
 * exact number of bytes that were not delivered.
 */
struct rp_ev_data {
	struct rp_event_hdr h;
	__u64 conn; /* connection id, never reused in one run */
	__u64 off;
	__u64 ret_ts;	/* return of the call */
	__u32 call_len; /* bytes the call really moved */
	__u32 call_off; /* of the first byte here, within the call */
	__u32 len;	/* payload bytes present below */
	__u32 missing;	/* bytes of the call after these that were left out */
	__u32 retrans;	/* the socket's retransmitted segments so far (TCP) */
	__u16 syscall;	/* number, for diagnosis */
	__u16 pad;
	/* when the call returned; RP_F_TCP */
	__u32 unacked; /* bytes written that the peer has not acknowledged */
	__u32 notsent; /* of them, still in the send buffer */
	union {
		__u32 srtt_us;
		__u32 acked_ago_us; /* rx: time since it last acknowledged any */
	};
	__u32 min_rtt_us;
	__u8 payload[];
};

enum rp_rtt_status {
	RP_RTT_NONE = 0,      /* not established under our eyes */
	RP_RTT_HANDSHAKE = 1, /* rtt_us is the kernel's own handshake sample */
	RP_RTT_RETRANS = 2,   /* SYN or SYN-ACK was retransmitted: untrusted */
	RP_RTT_NO_SAMPLE = 3, /* the kernel took none (SYN cookies, fast open) */
	RP_RTT_UNIX = 4,      /* no network */
};

struct rp_ev_conn_open {
	struct rp_event_hdr h; /* ts: when it was established, or first seen */
	__u64 conn;
	__u16 family;	    /* AF_INET, AF_INET6 (v4-mapped is AF_INET), AF_UNIX */
	__u16 lport, rport; /* host byte order */
	__u8 rtt_status;    /* enum rp_rtt_status */
	__u8 pad;
	__u8 laddr[16], raddr[16]; /* network byte order; AF_INET uses the first 4 */
	__u32 rtt_us;
	__u32 netns; /* inode of the network namespace */
};

enum rp_proto {
	RP_PROTO_UNKNOWN = 0,
	RP_PROTO_HTTP1 = 1,
	RP_PROTO_TLS = 2,
	RP_PROTO_HTTP2 = 3,
	RP_PROTO_OTHER = 4,	/* first bytes from the peer are no request */
	RP_PROTO_MIDSTREAM = 5, /* pre-attach, first seen while a response ran */
	RP_PROTO_COUNT,
	RP_PROTO_ZMTP = 16, /* messages; never leaves the source, which makes MSG of it */
};

struct rp_ev_conn_proto {
	struct rp_event_hdr h;
	__u64 conn;
	__u32 proto; /* enum rp_proto */
	__u32 pad;
};

enum rp_conn_what {
	RP_PEER_FIN = 1,
	RP_LOCAL_FIN = 2,
	RP_PEER_RST = 3,
	RP_LOCAL_RST = 4,	/* closed with data unread, or linger 0 */
	RP_PEER_LOST = 5,	/* retransmission or keep-alive timeout */
	RP_LOCAL_FIN_ACKED = 6, /* the peer has acknowledged all, our FIN included */
};

struct rp_ev_conn_state {
	struct rp_event_hdr h;
	__u64 conn;
	__u32 what; /* enum rp_conn_what */
	__s32 err;  /* sk_err, positive errno, 0 = none */
};

struct rp_ev_conn_accept {
	struct rp_event_hdr h; /* ts: return of accept(2) */
	__u64 conn;
};

/*
 * TCP: made by user space for a connection whose last write was not acknowledged
 * when it returned, and by BPF when the application closes it. hdr.ts is the look;
 * acked_ts the instant the peer last acknowledged anything, when unacked is 0
 * (tcp_sock.delivered_mstamp, us). A FIN does not count.
 */
struct rp_ev_tcp {
	struct rp_event_hdr h;
	__u64 conn;
	__u64 acked_ts;
	__u32 unacked, notsent;
	__u32 srtt_us, min_rtt_us;
	__u32 retrans;
	__u32 pad;
};

/* Also ALIVE: the totals let a reader count bytes it never got. */
struct rp_ev_conn_close {
	struct rp_event_hdr h;
	__u64 conn;
	__u64 rx, tx; /* bytes moved in each direction since first seen */
	__u32 retrans;
	__u32 pad;
};

#define RP_HOOK_VALUES 8
/*
 * HOOK: hdr.ts is the entry of the function. `hook` indexes the engine's hook
 * table (rp_engine_hook in user/engine/engine.h). `seq` counts entries of this
 * hook over all processes, lost records included: a jump tells a loss.
 * Values are what the table asked for; those beyond n are 0. A value that
 * could not be read from the target's memory clears its bit in `ok`. A list
 * longer than the room left sets RP_F_CUT.
 */
struct rp_ev_hook {
	struct rp_event_hdr h;
	__u16 hook;
	__u8 n;
	__u8 ok; /* bit i: val[i] was read */
	__u32 seq;
	__u64 val[RP_HOOK_VALUES];
};

/*
 * MSG: one frame of a message that was about to be sent; hdr.ts is the entry of
 * the sending function. In the ring a frame may come in fragments, back to back
 * among those of one thread; what leaves the source is whole (off 0) or cut at
 * its end. `seq` counts the hook's frames as rp_ev_hook's does; fragments of one
 * frame share it.
 */
struct rp_ev_msg {
	struct rp_event_hdr h;
	__u16 hook;
	__u16 send_flags; /* as given to the function: enum rp_msg_flags */
	__u32 seq;
	__u64 sock;    /* the socket's address in the process: tells streams apart */
	__u32 total;   /* bytes of the frame */
	__u32 off;     /* of the first byte here */
	__u32 len;     /* payload bytes present below */
	__u32 missing; /* bytes of the frame after these that were left out */
	__u8 payload[];
};

/* libzmq's ZMQ_DONTWAIT and ZMQ_SNDMORE */
enum rp_msg_flags { RP_MSG_DONTWAIT = 1, RP_MSG_MORE = 2 };

enum rp_proc_what { RP_PROC_FORK = 1, RP_PROC_EXEC = 2, RP_PROC_EXIT = 3 };

struct rp_ev_proc {
	struct rp_event_hdr h; /* pid: the process; ts: when */
	__u32 what;	       /* enum rp_proc_what */
	__u32 ppid;	       /* FORK: the parent */
	__u32 gpid;	       /* pid in the initial namespace */
	__u32 pad;
	char comm[16];
};

struct rp_ev_uring {
	struct rp_event_hdr h;
};

/* SESSION: first record of every run. Strings are NUL-terminated, cut if long. */
struct rp_ev_session {
	struct rp_event_hdr h; /* pid: the process given by the user */
	char engine[32];       /* "llamacpp", "generic", ... */
	char version[64];      /* engine version, "" = unknown */
	char host[64];
	char reqprobe[32];	   /* version of reqprobe that made the recording */
	__u32 hooks_attached;	   /* bit i: hook i of the engine's table is attached */
	__u32 hook_reason;	   /* enum rp_hook_reason when queue/token hooks are absent */
	__u32 flags;		   /* enum rp_session_flags */
	__u32 hooks_attached_more; /* bit i: hook 32 + i */
	__u8 roles[32];		   /* enum rp_role of each hook: a recording needs no table */
	/* older recordings end here: RP_SESSION_SIZE_MIN */
	__u8 roles_more[32]; /* of hooks 32 and up */
};
#define RP_SESSION_SIZE_MIN 264

enum rp_session_flags {
	RP_SESSION_RAW = 1 << 0,  /* payload is raw, not replaced by filler */
	RP_SESSION_ACKS = 1 << 1, /* TCP events tell of acknowledgements */
};

/*
 * ENGINE: what the command line of a session's engine, or the user, says of its
 * configuration. Follows its SESSION; 0 is not known.
 */
struct rp_ev_engine {
	struct rp_event_hdr h; /* pid: the session's */
	__u64 kv_tokens;       /* the KV cache of each engine process holds; as the user says */
	__u64 kv_blocks;       /* the same, in blocks; as the command line says */
	__u32 block_size;      /* tokens in one */
	__u32 pipeline;	       /* pipeline parallel size */
	__u32 flags;	       /* enum rp_engine_flags */
	__u32 pad;
};

enum rp_engine_flags {
	RP_ENGINE_TRANSFER = 1 << 0, /* KV or encoder caches come from elsewhere, too */
};

/* Why an engine has no usable hooks; the text is in record.h's reason list. */
enum rp_hook_reason {
	RP_HOOKS_OK = 0,
	RP_HOOKS_NONE_FOR_ENGINE = 1, /* socket-only engine */
	RP_HOOKS_STRIPPED = 2,	      /* binary has no such symbols */
	RP_HOOKS_NOT_PERMITTED = 3,   /* kernel refused the attach */
	RP_HOOKS_OFF = 4,	      /* switched off by option */
};

/* CLOCK: wall time = ts + offset. One at start, one more on each step. */
struct rp_ev_clock {
	struct rp_event_hdr h;
	__s64 offset; /* CLOCK_REALTIME - CLOCK_MONOTONIC, ns */
	__u32 step;   /* 1: the wall clock was set while we ran */
	__u32 pad;
};

struct rp_ev_tick {
	struct rp_event_hdr h;
};

struct rp_ev_loss {
	struct rp_event_hdr h;
	__u64 seen[RP_CLASS_COUNT]; /* totals since start */
	__u64 lost[RP_CLASS_COUNT]; /* ring buffer was full */
	__u64 map_full[4];	    /* enum rp_map_full */
};

/* Inserts refused because a BPF map was full; each has an option to raise it. */
enum rp_map_full {
	RP_MAP_CONNS = 0,
	RP_MAP_THREADS = 1,
	RP_MAP_PROCS = 2,
	RP_MAP_LISTENERS = 3,
	RP_MAP_COUNT = 4,
};

struct rp_ev_listener {
	struct rp_event_hdr h; /* pid: its owner */
	__u16 family;
	__u16 port; /* host byte order, 0 for Unix */
	__u32 netns;
	__u8 addr[16];
	char path[112]; /* Unix: path, abstract names start with '@' */
};

_Static_assert(sizeof(struct rp_event_hdr) == 24, "header layout");
_Static_assert(sizeof(struct rp_ev_data) == 88, "data layout");
_Static_assert(sizeof(struct rp_ev_conn_open) == 80, "conn_open layout");
_Static_assert(sizeof(struct rp_ev_tcp) == 64, "tcp layout");
_Static_assert(sizeof(struct rp_ev_conn_close) == 56, "conn_close layout");
_Static_assert(sizeof(struct rp_ev_hook) == 96, "hook layout");
_Static_assert(sizeof(struct rp_ev_msg) == 56, "msg layout");
_Static_assert(sizeof(struct rp_ev_proc) == 56, "proc layout");
_Static_assert(sizeof(struct rp_ev_session) == RP_SESSION_SIZE_MIN + 32, "session layout");
_Static_assert(sizeof(struct rp_ev_engine) == 56, "engine layout");
_Static_assert(sizeof(struct rp_ev_loss) == 24 + 64 + 32, "loss layout");
_Static_assert(sizeof(struct rp_ev_listener) == 160, "listener layout");

/* ---- configuration shared by bpf/ and user/source/live.c ---- */

/* How one value is read at the entry of a hooked function. */
enum rp_read_kind {
	RP_READ_NONE = 0,
	RP_READ_REG = 1,   /* the argument register itself */
	RP_READ_MEM = 2,   /* follow `depth` pointers from it: see rp_hook_read */
	RP_READ_LIST = 3,  /* singly linked list: next at 0, value at off[1] */
	RP_READ_ZMQ = 4,   /* a zmq_msg_t and its body: makes a MSG instead of a HOOK */
	RP_READ_BATCH = 5, /* what llama.cpp computes next: see rp_hook_read */
};

/*
 * MEM: p = arg; for i in 0..depth-2: p = *(u64 *)(p + off[i]);
 *      value = *(uN *)(p + off[depth-1]), N = 8 * width, sign-extended when
 *      `sign` is set. depth 1 reads *(uN *)(arg + off[0]).
 * LIST: p = *(u64 *)(arg + off[0]); while p and room: value = *(uN *)(p +
 *      off[1]); p = *(u64 *)p. Fills all remaining values; must come last.
 *      (libstdc++ std::unordered_set: off[0] = 16, off[1] = 8.)
 * ZMQ: arg is the zmq_msg_t *, the next argument the socket, the one after it the
 *      flags. Stands alone. off[0]: frames that are a whole message and shorter
 *      than this are no message of interest, and make no event.
 * BATCH: arg is the address of a struct llama_batch (llama.h, since 2023), or, with
 *      `sign` set, of a struct llama_batch_ext (src/llama-batch.h, 2026), whose second
 *      argument before it says what is done: anything but LLAMA_PROCESS_TYPE_DECODE
 *      makes no event. Values: the number of tokens; then of at most 5 tokens
 *      sequence << 32 | position: the last one's; of up to 64 the others in turn, so
 *      that after some calls each was among them; of more, where there are prompts, the
 *      last ones of the sequences before it. Positions that the caller leaves to the
 *      library are not there. Comes third, after two values.
 * arg 6 is the address of the arguments on the stack.
 */
struct rp_hook_read {
	__u8 kind;
	__u8 arg;   /* 0..5, in the order of the C ABI; 6: see above */
	__u8 depth; /* 1..3 */
	__u8 width; /* 1, 2, 4 or 8 */
	__u8 sign;
	__u8 pad[3];
	__s32 off[4];
};

#define RP_HOOK_READS 3
struct rp_hook_spec {
	struct rp_hook_read read[RP_HOOK_READS];
};
#define RP_MAX_HOOKS 64

#endif
