// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "util.h"

#include "cpu.h"

#define MS 1000000ULL
#define S (1000 * MS)

static struct rp_cpu_rules rules(enum rp_cpu_level lowest)
{
	return (struct rp_cpu_rules){
		.level = lowest, .lowest = lowest, .highest = RP_CPU_HURRY, .since = 100 * S
	};
}

/* A guard that looks only when it is told to, at a thread that is due at `due` and gets
 * no CPU, until `end`. */
static uint64_t starve(struct rp_cpu_rules *r, uint64_t due, uint64_t end)
{
	uint64_t now = due > r->since ? due : r->since;
	unsigned looks = 0;

	while (now < end) {
		rp_cpu_rule(r, now, due, 0);
		now = rp_cpu_look_at(r, now, due);
		assert_true(++looks < 2000);
	}
	return now;
}

static void on_time_nothing_changes(void **state)
{
	struct rp_cpu_rules r = rules(RP_CPU_IDLE);
	uint64_t now = 100 * S;

	(void)state;
	for (unsigned i = 0; i < 1000; i++, now += 100 * MS) {
		/* asleep, just woken up, and a little late */
		assert_int_equal(rp_cpu_rule(&r, now, now + 100 * MS, 0), RP_CPU_IDLE);
		assert_int_equal(rp_cpu_rule(&r, now, now, 0), RP_CPU_IDLE);
		assert_int_equal(rp_cpu_rule(&r, now + RP_CPU_IDLE_LATE_NS - 1, now, 0),
				 RP_CPU_IDLE);
		/* at work for all that time: not late */
		assert_int_equal(rp_cpu_rule(&r, now + S, now, S), RP_CPU_IDLE);
	}
	assert_int_equal(r.helped, 0);
	assert_true(rp_cpu_look_at(&r, now, now + 100 * MS) ==
		    now + 100 * MS + RP_CPU_IDLE_LATE_NS);
}

static void late_is_helped_step_by_step(void **state)
{
	struct rp_cpu_rules r = rules(RP_CPU_IDLE);
	uint64_t due = 200 * S;

	(void)state;
	starve(&r, due, due + RP_CPU_IDLE_LATE_NS);
	assert_int_equal(r.level, RP_CPU_IDLE);
	starve(&r, due, due + RP_CPU_IDLE_LATE_NS + 1);
	assert_int_equal(r.level, RP_CPU_USUAL);
	assert_int_equal(r.since, due + RP_CPU_IDLE_LATE_NS);
	starve(&r, due, due + RP_CPU_IDLE_LATE_NS + RP_CPU_USUAL_LATE_NS + 1);
	assert_int_equal(r.level, RP_CPU_HURRY);
	assert_int_equal(r.since, due + RP_CPU_IDLE_LATE_NS + RP_CPU_USUAL_LATE_NS);
	assert_int_equal(r.helped, 2);
	/* there is nothing above, and no need to look all the time */
	assert_true(rp_cpu_look_at(&r, r.since, due) >= r.since + S);
}

/* It goes down again after 2 s; when that was too early after 4, 8 and so on to 64; after
 * a good while below after 2 again. */
static void back_to_idle(void **state)
{
	struct rp_cpu_rules r = rules(RP_CPU_IDLE);
	uint64_t now = 200 * S, calm = RP_CPU_CALM_NS;

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		now += RP_CPU_IDLE_LATE_NS;
		assert_int_equal(rp_cpu_rule(&r, now, now - RP_CPU_IDLE_LATE_NS, 0), RP_CPU_USUAL);
		assert_int_equal(rp_cpu_rule(&r, now + calm - 1, now + calm, 0), RP_CPU_USUAL);
		assert_true(rp_cpu_look_at(&r, now + calm - 1, now + calm) == now + calm);
		now += calm;
		assert_int_equal(rp_cpu_rule(&r, now, now, 0), RP_CPU_IDLE);
		calm = calm < RP_CPU_CALM_MAX_NS ? 2 * calm : calm;
	}
	now += 20 * S;
	assert_int_equal(rp_cpu_rule(&r, now, now - RP_CPU_IDLE_LATE_NS, 0), RP_CPU_USUAL);
	now += RP_CPU_CALM_NS;
	assert_int_equal(rp_cpu_rule(&r, now, now, 0), RP_CPU_IDLE);
}

/* Ended by RLIMIT_RTTIME: it is late for good reason, and does not hurry again for a while. */
static void spent(void **state)
{
	struct rp_cpu_rules r = rules(RP_CPU_USUAL);
	uint64_t due = 200 * S, now;

	(void)state;
	now = starve(&r, due, due + RP_CPU_USUAL_LATE_NS + 1);
	assert_int_equal(r.level, RP_CPU_HURRY);
	r.no_hurry_until = now + 60 * S;
	assert_int_equal(rp_cpu_rule(&r, now, due, 0), RP_CPU_USUAL);
	starve(&r, now, now + 60 * S);
	assert_int_equal(r.level, RP_CPU_USUAL);
	starve(&r, now, now + 61 * S);
	assert_int_equal(r.level, RP_CPU_HURRY);
}

static void never_above_what_is_permitted(void **state)
{
	struct rp_cpu_rules r = rules(RP_CPU_IDLE);

	(void)state;
	r.highest = RP_CPU_USUAL;
	starve(&r, 200 * S, 201 * S);
	assert_int_equal(r.level, RP_CPU_USUAL);
}

static void picks(void **state)
{
	static const struct {
		uint64_t idle[4];
		const char *allowed, *idlest, *many; /* per CPU; "" stays */
		unsigned at;
	} c[] = {
		/* the one that is idle */
		{ { 0, 55, 0, 0 }, "1111", "0100", "0100", 0 },
		{ { 0, 55, 0, 0 }, "1111", "", "0100", 1 },
		{ { 0, 55, 90, 95 }, "1111", "0001", "0111", 0 },
		{ { 0, 55, 90, 120 }, "1111", "0001", "0011", 0 },
		/* no better than where it is, by less than a tenth */
		{ { 80, 90, 85, 70 }, "1111", "", "1111", 0 },
		{ { 80, 91, 85, 70 }, "1111", "0100", "1111", 0 },
		/* nothing to choose from */
		{ { 0, 10, 3, 0 }, "1111", "", "1111", 0 },
		/* only where it may run, also when it is elsewhere now */
		{ { 0, 55, 90, 95 }, "1100", "0100", "0100", 0 },
		{ { 5, 6, 90, 95 }, "1100", "0100", "1100", 3 },
		{ { 5, 6, 90, 95 }, "0000", "", "", 3 },
	};
	bool allowed[4], chosen[4];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(c); i++) {
		for (int one = 0; one < 2; one++) {
			const char *want = one ? c[i].idlest : c[i].many;
			unsigned n = 0, got;

			for (int k = 0; k < 4; k++)
				allowed[k] = c[i].allowed[k] == '1';
			got = rp_cpu_pick(c[i].idle, 100, allowed, 4, c[i].at, one, chosen);
			for (int k = 0; want[k] && k < 4; k++) {
				if (chosen[k] != (want[k] == '1'))
					fail_msg("case %zu, one %d: CPU %d", i, one, k);
				n += chosen[k];
			}
			assert_int_equal(got, n);
		}
	}
}

static cpu_set_t cpus(const char *s)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int i = 0; s[i]; i++)
		if (s[i] == '1')
			CPU_SET(i, &set);
	return set;
}

/* The looks of one thread: its CPUs, what the kernel gives it, what it may use; then where we put it. */
static void whose_word_it_is(void **state)
{
	static const struct {
		const char *set, *can, *may, *put; /* put "": it stays; set "": where we put it */
	} c[][6] = {
		{ { "1111", "1111", "1111", "0110" },
		  { "", "1111", "1111", "1000" },
		  { "", "1111", "1111", "" } },
		/* started with taskset(1) */
		{ { "0110", "1111", "0110", "0100" },
		  { "", "1111", "0110", "0110" },
		  { "", "1111", "0110", "" } },
		/* taskset(1) later: to elsewhere, to fewer, to all; and it is remembered */
		{ { "1111", "1111", "1111", "0110" },
		  { "1001", "1111", "1001", "1000" },
		  { "", "1111", "1001", "0001" },
		  { "", "1111", "1001", "" } },
		{ { "1111", "1111", "1111", "0110" },
		  { "0100", "1111", "0100", "" },
		  { "0100", "1111", "0100", "" } },
		{ { "0110", "1111", "0110", "0100" },
		  { "1111", "1111", "1111", "0001" },
		  { "", "1111", "1111", "" } },
		/* CPU 2 goes offline, or out of the cpuset; and comes back */
		{ { "1111", "1111", "1111", "0110" },
		  { "0100", "1101", "1101", "" },
		  { "0110", "1111", "1111", "1000" },
		  { "", "1111", "1111", "" } },
		/* all that we had chosen go: the kernel lets it run anywhere */
		{ { "1111", "1111", "1111", "0110" },
		  { "1001", "1001", "1001", "1000" },
		  { "", "1111", "1111", "" } },
		/* all that the user had chosen go */
		{ { "0110", "1111", "0110", "0100" }, { "1001", "1001", "1001", "" } },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(c); i++) {
		struct rp_cpu_places p = { .placed = false };

		for (size_t k = 0; k < COUNT_OF(c[i]) && c[i][k].set; k++) {
			cpu_set_t set = *c[i][k].set ? cpus(c[i][k].set) : p.set,
				  can = cpus(c[i][k].can), may = cpus(c[i][k].may);

			rp_cpu_obey(&p, &set, &can);
			if (!CPU_EQUAL(&can, &may))
				fail_msg("case %zu, look %zu", i, k);
			if (*c[i][k].put) {
				p.set = cpus(c[i][k].put);
				p.placed = true;
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(on_time_nothing_changes),
		cmocka_unit_test(late_is_helped_step_by_step),
		cmocka_unit_test(back_to_idle),
		cmocka_unit_test(spent),
		cmocka_unit_test(never_above_what_is_permitted),
		cmocka_unit_test(picks),
		cmocka_unit_test(whose_word_it_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
