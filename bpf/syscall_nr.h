/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * syscall_nr.h - the system calls that matter, what each does with its
 * arguments, and where the arguments are when it returns.
 */
#ifndef RP_SYSCALL_NR_H
#define RP_SYSCALL_NR_H

#if defined(__TARGET_ARCH_x86)

enum {
	RP_NR_read = 0,
	RP_NR_write = 1,
	RP_NR_close = 3,
	RP_NR_readv = 19,
	RP_NR_writev = 20,
	RP_NR_sendfile = 40,
	RP_NR_accept = 43,
	RP_NR_sendto = 44,
	RP_NR_recvfrom = 45,
	RP_NR_sendmsg = 46,
	RP_NR_recvmsg = 47,
	RP_NR_shutdown = 48,
	RP_NR_splice = 275,
	RP_NR_accept4 = 288,
	RP_NR_recvmmsg = 299,
	RP_NR_sendmmsg = 307,
	RP_NR_preadv2 = 327,
	RP_NR_pwritev2 = 328,
	RP_NR_io_uring_setup = 425,
};

/* the kernel leaves the argument registers alone until it returns */
#define RP_SYS_NR(raw, r) RP_LD(raw, r, orig_ax)
#define RP_SYS_ARG0(raw, r) RP_LD(raw, r, di)
#define RP_SYS_ARG1(raw, r) RP_LD(raw, r, si)
#define RP_SYS_ARG2(raw, r) RP_LD(raw, r, dx)
#define RP_SYS_ARG3(raw, r) RP_LD(raw, r, r10)

/* TS_COMPAT: an ia32 call, whose numbers mean other things */
#define RP_TASK_COMPAT(t) ((t)->thread_info.status & 2)

#elif defined(__TARGET_ARCH_arm64)

enum {
	RP_NR_close = 57,
	RP_NR_read = 63,
	RP_NR_write = 64,
	RP_NR_readv = 65,
	RP_NR_writev = 66,
	RP_NR_sendfile = 71,
	RP_NR_splice = 76,
	RP_NR_accept = 202,
	RP_NR_sendto = 206,
	RP_NR_recvfrom = 207,
	RP_NR_shutdown = 210,
	RP_NR_sendmsg = 211,
	RP_NR_recvmsg = 212,
	RP_NR_accept4 = 242,
	RP_NR_recvmmsg = 243,
	RP_NR_sendmmsg = 269,
	RP_NR_preadv2 = 286,
	RP_NR_pwritev2 = 287,
	RP_NR_io_uring_setup = 425,
};

/* x0 carries the return value at the end; the kernel keeps the argument apart */
#define RP_SYS_NR(raw, r) RP_LD(raw, r, syscallno)
#define RP_SYS_ARG0(raw, r) RP_LD(raw, r, orig_x0)
#define RP_SYS_ARG1(raw, r) RP_LD(raw, r, regs[1])
#define RP_SYS_ARG2(raw, r) RP_LD(raw, r, regs[2])
#define RP_SYS_ARG3(raw, r) RP_LD(raw, r, regs[3])

/* TIF_32BIT */
#define RP_TASK_COMPAT(t) ((t)->thread_info.flags & (1UL << 22))

#else
#error "no system call numbers for this architecture"
#endif

/*
 * A typed tracepoint lets us load from its arguments directly; a raw one hands
 * over plain numbers, which take a helper call each.
 */
#define RP_LD(raw, p, f) ((raw) ? BPF_CORE_READ(p, f) : (p)->f)

#define RP_NR_LIMIT 512 /* a power of two above every number here */

/* low bits: where the bytes are; flags: what the call does */
enum rp_op {
	RP_OP_BUF = 1,	  /* (fd, buf, len) */
	RP_OP_IOV = 2,	  /* (fd, iov, n) */
	RP_OP_MSG = 3,	  /* (fd, msghdr, flags) */
	RP_OP_MMSG = 4,	  /* (fd, mmsghdr[], n, flags) */
	RP_OP_UNSEEN = 5, /* bytes never pass through the process */
	RP_OP_SPLICE = 6,
	RP_OP_CLOSE = 7,
	RP_OP_SHUTDOWN = 8,
	RP_OP_URING = 9,
	RP_OP_ACCEPT = 11,
	RP_OP_RECVFROM = 10, /* (fd, buf, len, flags) */
	RP_OP_KIND = 15,
	RP_OP_TX = 16,
	RP_OP_EXIT = 32,  /* looked at when it returns */
	RP_OP_ENTER = 64, /* looked at when it starts */
};

#define RP_OP_R(kind) ((kind) | RP_OP_EXIT)
#define RP_OP_W(kind) ((kind) | RP_OP_TX | RP_OP_EXIT | RP_OP_ENTER)

static const u8 rp_ops[RP_NR_LIMIT] = {
	[RP_NR_read] = RP_OP_R(RP_OP_BUF),
	[RP_NR_readv] = RP_OP_R(RP_OP_IOV),
	[RP_NR_preadv2] = RP_OP_R(RP_OP_IOV),
	[RP_NR_recvfrom] = RP_OP_R(RP_OP_RECVFROM),
	[RP_NR_recvmsg] = RP_OP_R(RP_OP_MSG),
	[RP_NR_recvmmsg] = RP_OP_R(RP_OP_MMSG),
	[RP_NR_write] = RP_OP_W(RP_OP_BUF),
	[RP_NR_writev] = RP_OP_W(RP_OP_IOV),
	[RP_NR_pwritev2] = RP_OP_W(RP_OP_IOV),
	[RP_NR_sendto] = RP_OP_W(RP_OP_BUF),
	[RP_NR_sendmsg] = RP_OP_W(RP_OP_MSG),
	[RP_NR_sendmmsg] = RP_OP_W(RP_OP_MMSG),
	[RP_NR_sendfile] = RP_OP_W(RP_OP_UNSEEN),
	[RP_NR_splice] = RP_OP_W(RP_OP_SPLICE),
	/* the descriptor is gone when close returns */
	[RP_NR_close] = RP_OP_CLOSE | RP_OP_ENTER,
	[RP_NR_shutdown] = RP_OP_SHUTDOWN | RP_OP_ENTER | RP_OP_EXIT,
	[RP_NR_accept] = RP_OP_ACCEPT | RP_OP_EXIT,
	[RP_NR_accept4] = RP_OP_ACCEPT | RP_OP_EXIT,
	[RP_NR_io_uring_setup] = RP_OP_URING | RP_OP_EXIT,
};

#endif
