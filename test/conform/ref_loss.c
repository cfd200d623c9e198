/* SPDX-License-Identifier: Apache-2.0 */
#include "ref_kind.h"

#include <math.h>

void ref_mse(const struct ref_job *j)
{
	int one = j->layer->inputs[0];
	int other = j->layer->input_count > 1 ? j->layer->inputs[1] : -1;
	int64_t each = pd_shape_elements(j->in);
	double weight = j->layer->weight;

	for (int64_t i = 0; i < j->r->valid * each; i++) {
		double d = j->r->x[one][i] - (other < 0 ? 0 : j->r->x[other][i]);
		double slope = 2 * weight * d / (double)(j->r->batch * each);

		if (j->back) {
			j->r->dx[one][i] += slope;
			if (other >= 0)
				j->r->dx[other][i] -= slope;
		} else {
			j->y[i / each] += weight * d * d / (double)each;
			j->r->loss += weight * d * d / (double)each;
		}
	}
	j->r->rows += j->back ? 0 : j->r->valid;
}

/* Returns how many of the rows have a label that is ignored. */
static int64_t ignored(const struct ref_job *j, const double *label, int64_t rows)
{
	int64_t count = 0;

	for (int64_t n = 0; n < rows; n++)
		count += label[n] == (double)j->layer->ignore_index;
	return count;
}

void ref_loss(const struct ref_job *j)
{
	int64_t classes = pd_shape_width(j->in), rows = pd_shape_rows(j->in);
	const double *label = j->r->x[j->layer->inputs[1]];
	double smooth = j->layer->label_smoothing;
	int64_t none = ignored(j, label, j->r->valid * rows);

	for (int64_t n = 0; n < j->r->valid * rows; n++) {
		const double *x = j->x + n * classes;
		int64_t y = (int64_t)label[n], best = 0;
		double sum = 0, all = 0;

		if (y == j->layer->ignore_index)
			continue;

		for (int64_t i = 0; i < classes; i++)
			best = x[i] > x[best] ? i : best;
		for (int64_t i = 0; i < classes; i++)
			sum += exp(x[i] - x[best]);
		for (int64_t i = 0; i < classes; i++)
			all += x[i] - x[best];
		for (int64_t i = 0; j->back && i < classes; i++)
			j->dx[n * classes + i] += (exp(x[i] - x[best]) / sum -
						   (1 - smooth) * (i == y) -
						   smooth / (double)classes) /
						  (double)(j->r->batch * rows - none);
		if (!j->back) {
			j->y[n] = log(sum) - (1 - smooth) * (x[y] - x[best]) -
				  smooth * all / (double)classes;
			j->r->loss += j->y[n];
			j->r->correct += best == y;
			j->r->rows++;
		}
	}
}
