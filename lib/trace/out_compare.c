/* SPDX-License-Identifier: Apache-2.0 */
/* Prints two traces side by side, for people. */
#include "base/opt.h"
#include "trace/compare.h"

#include <inttypes.h>

#define RANKS_SHOWN 64
#define AWAITED_SHOWN 0.05              /* least share that is shown, in percent of the window */

static const char *describe_op(const struct pd_op *op, char buf[64])
{
	char name[40];

	if (op->peer >= 0)
		snprintf(buf, 64, "%s %s, peer %d", pd_op_short(op, name),
			 pd_op_kind_name[op->kind], op->peer);
	else
		snprintf(buf, 64, "%s %s", pd_op_short(op, name), pd_op_kind_name[op->kind]);
	return buf;
}

static void print_only(const struct pd_compare *compare, int which, const char *name, FILE *out)
{
	char text[64];

	if (compare->only[which] == 0)
		return;
	fprintf(out, "only in %s: %" PRId64, name, compare->only[which]);
	if (compare->only[which] > compare->missing[which])
		fprintf(out, ", %" PRId64 " of them of microbatches that the other does not have",
			compare->only[which] - compare->missing[which]);
	putc('\n', out);
	for (int i = 0; i < compare->shown[which]; i++)
		fprintf(out, "  rank %d: %s\n", compare->some[which][i].rank,
			describe_op(&compare->some[which][i], text));
	if (compare->missing[which] > compare->shown[which])
		fprintf(out, "  (%" PRId64 " more)\n",
			compare->missing[which] - compare->shown[which]);
}

static void print_order(const struct pd_compare *compare, FILE *out)
{
	char a[64], b[64];

	if (compare->disorder_count == 0) {
		fputs("every rank computes in the same order\n", out);
		return;
	}
	fprintf(out, "%d rank%s in another order; first difference:\n", compare->disorder_count,
		compare->disorder_count == 1 ? " computes" : "s compute");
	for (int i = 0; i < compare->disorder_count && i < RANKS_SHOWN; i++)
		fprintf(out, "  rank %d: operation %" PRId64 " is %s, there %s\n",
			compare->disorders[i].rank, compare->disorders[i].position,
			describe_op(&compare->disorders[i].op[0], a),
			describe_op(&compare->disorders[i].op[1], b));
	if (compare->disorder_count > RANKS_SHOWN)
		fprintf(out, "  (%d more)\n", compare->disorder_count - RANKS_SHOWN);
}

/* Writes a difference with its sign. */
static const char *show_difference(int64_t ns, char buf[40])
{
	char text[32];

	snprintf(buf, 40, "%s%s", ns < 0 ? "-" : ns > 0 ? "+" : "",
		 pd_show_time(ns < 0 ? -ns : ns, text));
	return buf;
}

static void print_residuals(const struct pd_compare *compare, FILE *out)
{
	fprintf(out, "\n%-26s %8s %10s %10s %23s\n%-26s %8s %10s %10s %10s %10s %10s\n",
		"", "", "median", "median", "difference", "operations", "count", "first",
		"second", "5 %", "median", "95 %");
	for (int i = 0; i < compare->residual_count; i++) {
		const struct pd_residual *one = &compare->residuals[i];
		char name[64], a[32], b[32], low[40], middle[40], high[40];

		snprintf(name, sizeof(name), "%s, stage %d", pd_op_kind_name[one->kind],
			 one->stage);
		fprintf(out, "%-26s %8" PRId64 " %10s %10s %10s %10s %10s", name, one->count,
			pd_show_time(one->median_ns[0], a), pd_show_time(one->median_ns[1], b),
			show_difference(one->low_ns, low), show_difference(one->middle_ns, middle),
			show_difference(one->high_ns, high));
		if (one->median_ns[1] > 0)
			fprintf(out, " %+6.1f%%", 100 * (double)one->middle_ns
						  / (double)one->median_ns[1]);
		putc('\n', out);
	}
}

void pd_compare_print(const struct pd_compare *compare, const char *const names[2], FILE *out)
{
	fprintf(out, "first:  %s\nsecond: %s\n\n%" PRId64 " operations in both\n", names[0],
		names[1], compare->matched);
	print_only(compare, 0, "the first", out);
	print_only(compare, 1, "the second", out);
	print_order(compare, out);
	print_residuals(compare, out);
}

static double percent(const struct pd_time_spent *spent, int64_t ns, int ranks)
{
	double window = (double)(spent->end_ns - spent->begin_ns) * ranks;

	return window > 0 ? 100 * (double)ns / window : 0;
}

static void print_shares(const char *name, const char *which, const struct pd_time_spent *spent,
			 const int64_t ns[PD_SPENTS], int ranks, FILE *out)
{
	fprintf(out, "%-20s %-6s", name, which);
	fprintf(out, " %7.1f %7.1f %11.1f %9.1f %9.1f %10.1f %7.1f %6.1f\n",
		percent(spent, ns[PD_SPENT_COMPUTE], ranks),
		spent->end_ns > spent->begin_ns
			? 100 - percent(spent, ns[PD_SPENT_COMPUTE], ranks) : 0,
		percent(spent, ns[PD_SPENT_ACTIVATION], ranks),
		percent(spent, ns[PD_SPENT_GRADIENT], ranks),
		percent(spent, ns[PD_SPENT_TRANSFER], ranks),
		percent(spent, ns[PD_SPENT_ALLREDUCE], ranks),
		percent(spent, ns[PD_SPENT_LAUNCH], ranks),
		percent(spent, ns[PD_SPENT_OTHER], ranks));
}

static void print_sum(const char *which, const struct pd_time_spent *spent, FILE *out)
{
	int64_t sum[PD_SPENTS] = { 0 };

	for (int rank = 0; rank < spent->rank_count; rank++)
		for (int s = 0; s < PD_SPENTS; s++)
			sum[s] += spent->ns[rank][s];
	print_shares("all ranks", which, spent, sum, spent->rank_count, out);
}

static void print_awaited(const char *which, const struct pd_timeline *timeline,
			  const struct pd_time_spent *spent, FILE *out)
{
	int shown = 0;

	for (int i = 0; i < spent->awaited_count; i++) {
		const struct pd_awaited *one = &spent->awaited[i];
		double share = percent(spent, one->ns, 1);
		bool known = one->peer < timeline->rank_count;
		char mine[32], theirs[32] = "?";

		if (share < AWAITED_SHOWN || shown++ >= RANKS_SHOWN)
			continue;
		if (known)
			pd_timeline_stages(timeline, one->peer, ",", theirs, sizeof(theirs));
		fprintf(out, "%s%6.1f  rank %d (stage %s) for %s of rank %d (stage %s)\n", which,
			share, one->rank,
			pd_timeline_stages(timeline, one->rank, ",", mine, sizeof(mine)),
			one->gradient ? "gradients" : "activations", one->peer, theirs);
	}
	if (shown > RANKS_SHOWN)
		fprintf(out, "(%d more)\n", shown - RANKS_SHOWN);
}

void pd_time_spent_print(const struct pd_timeline *timeline, const struct pd_time_spent *first,
			 const struct pd_time_spent *second, FILE *out)
{
	const char *one = second ? "first" : "", *two = "second";

	fprintf(out, "\nwhere the time went, in %% of %s\n%-27s %7s %7s %s %18s\n"
		"%-27s %7s %7s %11s %9s %9s %10s %7s %6s\n",
		first->has_steady ? "the steady period" : "all", "", "", "",
		"  waiting for a rank", "exposed", "", "compute", "bubble", "activations",
		"gradients", "transfers", "all-reduce", "launch", "other");
	for (int i = 0; i < first->rank_count && i < RANKS_SHOWN; i++) {
		int rank = timeline->rows[i];
		char stages[32], name[80];

		pd_timeline_stages(timeline, rank, ",", stages, sizeof(stages));
		snprintf(name, sizeof(name), "stage %s, rank %d", stages, rank);
		print_shares(name, one, first, first->ns[rank], 1, out);
		if (second && rank < second->rank_count)
			print_shares("", two, second, second->ns[rank], 1, out);
	}
	if (first->rank_count > RANKS_SHOWN)
		fprintf(out, "(%d more ranks)\n", first->rank_count - RANKS_SHOWN);
	print_sum(one, first, out);
	if (second)
		print_sum(two, second, out);
	fputs("\nwaiting for whom, in % of the same\n", out);
	print_awaited(second ? "first  " : "", timeline, first, out);
	if (second)
		print_awaited("second ", timeline, second, out);
}
